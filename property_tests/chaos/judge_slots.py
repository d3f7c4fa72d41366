"""Promises 1 and 2: every slot ends in one run or, where it may be passed over, in a recorded skip; none has two."""

from collections import defaultdict
from uuid import UUID

from property_tests.chaos.books import EXAMPLES, Books, Finding, counted
from property_tests.chaos.ledger import Evidence, Row, SlotKey

_ROUNDING = 0.001
"""Seconds between an instant of the database and the same as a float."""


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
        *_skips_allowed(books),
        counted(1, "run-nows that the API had taken and that never ended", broken),
        Finding(1, "rows still pending or running at the end", evidence.left),
        Finding(1, "tasks made twice under one idempotency key", evidence.doubled),
    ]


def _may_fail(evidence: Evidence, row: Row) -> bool:
    known = evidence.tasks.get(row.task_id)
    return known is not None and known.fails


def _skips_allowed(books: Books) -> list[Finding]:
    """Nobody here pauses, edits, deletes or skips anything, and no overlap is forbidden: only what has a short grace is
    passed over, and only when that is over."""
    evidence = books.evidence
    brief = {task for task, known in evidence.tasks.items() if known.grace is not None}
    passed_over = [
        f"task {task} ({evidence.tasks[task].group}), slot {slot:.0f}"
        for task, slot in evidence.expected
        if task in books.skips and task not in brief and skipped(books, (task, slot))
    ]
    withdrawn = [
        f"run {skip.run_id} of task {task}, {skip.kind}"
        for task, skips in books.skips.items()
        if task not in brief
        for skip in skips
        if skip.slot is None
    ]
    return [
        counted(1, "slots and runs skipped in groups other than `brief`", [*passed_over, *withdrawn]),
        counted(1, "slots of `brief` skipped within their grace", _too_soon(books)),
        counted(1, "slots of `brief` skipped in no fault's time", _skipped_in_calm(books)),
    ]


def _skipped_in_calm(books: Books) -> list[str]:
    """A slot is passed over where some of the time from its due instant to the end of its grace was a fault's, or that
    in which the fault is recovered from."""
    evidence = books.evidence
    found = []
    for (task, slot), due in evidence.expected.items():
        if task not in books.skips:
            continue
        grace = evidence.tasks[task].grace
        if grace is None or not skipped(books, (task, slot)):
            continue
        if evidence.held_up_by(due + grace, grace) is None:
            found.append(f"task {task}, slot {slot:.0f}")
    return found


def _too_soon(books: Books) -> list[str]:
    evidence = books.evidence
    found = []
    for task, skips in books.skips.items():
        known = evidence.tasks.get(task)
        for skip in skips:
            last = skip.slot if skip.until_slot is None else skip.until_slot
            if known is None or known.grace is None or last is None:
                continue
            due = evidence.expected.get((task, last), last)
            if skip.ended_at < due + known.grace - _ROUNDING:
                found.append(f"task {task}, slot {last:.0f}, {skip.ended_at - due:.2f} s after it was due")
    return found


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
    """What the database says has no slot is no more than was asked for, and no slot's run."""
    expected = books.evidence.expected
    without_slot = books.evidence.without_slot()
    unasked = without_slot.difference(books.evidence.accepted)
    may_be_asked = {row.run_id for row in books.evidence.rows if _may_be_asked(books.evidence, row)}
    recorded: dict[SlotKey, UUID] = {}
    seen: dict[SlotKey, UUID] = {}
    several, called = set[SlotKey](), set[SlotKey]()
    for row in books.evidence.rows:
        if row.slot is not None and row.state != "skipped":
            key = (row.task_id, row.slot)
            if recorded.setdefault(key, row.run_id) != row.run_id:
                several.add(key)
    for call in books.evidence.calls:
        key = (call.task_id, call.scheduled)
        if key in expected and call.run_id not in without_slot and seen.setdefault(key, call.run_id) != call.run_id:
            called.add(key)
    both = [f"task {key[0]}, slot {key[1]:.0f}" for key in recorded if skipped(books, key)]
    return [
        counted(2, "slots with several runs in the database", several),
        counted(2, "slots with several runs at the endpoint", called),
        counted(2, "slots with a run and a recorded skip", both),
        counted(2, "runs without a slot that are no run-nows", [f"run {run}" for run in unasked - may_be_asked]),
        Finding(
            *(2, "run-nows that were not promised", len(unasked & may_be_asked), books.evidence.unanswered),
            examples=tuple(f"run {run}" for run in sorted(unasked & may_be_asked)[:EXAMPLES]),
        ),
    ]


def _may_be_asked(evidence: Evidence, row: Row) -> bool:
    return row.kind == "now" and row.task_id == evidence.run_now_task
