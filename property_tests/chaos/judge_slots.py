"""Promises 1 and 2: every slot ends in one run or in a recorded skip, and none has two."""

from collections import defaultdict
from uuid import UUID

from property_tests.chaos.books import Books, Finding, counted
from property_tests.chaos.ledger import Evidence, Row, SlotKey


def no_loss(books: Books) -> list[Finding]:
    evidence = books.evidence
    ended = {(row.task_id, row.slot) for rows in books.terminal.values() for row in rows if row.slot is not None}
    lost = [
        f"task {task}, slot {slot:.0f}"
        for task, slot in evidence.expected
        if (task, slot) not in ended and not skipped(books, (task, slot))
    ]
    uncalled = [
        f"run {run_id} of task {rows[0].task_id}"
        for run_id, rows in books.terminal.items()
        if rows[0].state == "succeeded" and run_id not in books.calls_of
    ]
    broken = [run for run in evidence.accepted if run not in books.terminal]
    given_up = [
        f"run {run_id} of task {rows[0].task_id}, {rows[0].outcome}"
        for run_id, rows in books.terminal.items()
        if rows[0].state != "succeeded" and not _may_fail(evidence, rows[0])
    ]
    return [
        counted(1, "slots without a terminal run and without a recorded skip", lost),
        counted(1, "succeeded runs that the endpoint never saw", uncalled),
        counted(1, "gaps, repeats and loose ends in the tasks' chains of slots", _chain_faults(books)),
        counted(1, "runs that did not succeed though their endpoint works", given_up),
        counted(1, "run-nows that the API had taken and that never ended", broken),
        Finding(1, "rows still pending or running at the end", evidence.left),
        Finding(1, "tasks made twice under one idempotency key", evidence.doubled),
    ]


def _may_fail(evidence: Evidence, row: Row) -> bool:
    known = evidence.tasks.get(row.task_id)
    return known is not None and known.fails


def skipped(books: Books, key: SlotKey) -> bool:
    task, slot = key
    return any(
        skip.slot is not None and skip.slot <= slot <= (skip.until_slot or skip.slot)
        for skip in books.skips.get(task, ())
    )


def _chain_faults(books: Books) -> list[str]:
    """Each accounted slot names the one before it; together they are the task's slots, each once."""
    links: dict[UUID, list[tuple[float, float, float | None]]] = defaultdict(list)
    for rows in books.terminal.values():
        links_of = [(row.slot, row.slot, row.last_slot) for row in rows[:1] if row.slot is not None]
        if links_of:
            links[rows[0].task_id] += links_of
    for task, skips in books.skips.items():
        links[task] += [(s.slot, s.until_slot or s.slot, s.last_slot) for s in skips if s.slot is not None]
    last_of: dict[UUID, float] = {}
    for task, slot in books.evidence.expected:
        last_of[task] = max(slot, last_of.get(task, slot))
    found = []
    for task, chain in links.items():
        chain.sort(key=lambda link: link[0])
        until: float | None = None
        for first, last, before in chain:
            if before != until:
                found.append(f"task {task}: slot {first:.0f} follows {before}, and {until} was accounted for")
            until = last
        if task in last_of and until != last_of[task]:
            found.append(f"task {task}: its chain ends at {until}, not at {last_of[task]:.0f}")
    return found


def one_run_per_slot(books: Books) -> list[Finding]:
    expected = books.evidence.expected
    recorded: dict[SlotKey, set[UUID]] = defaultdict(set)
    seen: dict[SlotKey, set[UUID]] = defaultdict(set)
    for row in books.evidence.rows:
        if row.slot is not None and row.state != "skipped":
            recorded[row.task_id, row.slot].add(row.run_id)
    for call in books.evidence.calls:
        if (call.task_id, call.scheduled) in expected:
            seen[call.task_id, call.scheduled].add(call.run_id)
    both = [f"task {key[0]}, slot {key[1]:.0f}" for key in recorded if skipped(books, key)]
    return [
        counted(2, "slots with several runs in the database", [k for k, runs in recorded.items() if len(runs) > 1]),
        counted(2, "slots with several runs at the endpoint", [k for k, runs in seen.items() if len(runs) > 1]),
        counted(2, "slots with a run and a recorded skip", both),
    ]
