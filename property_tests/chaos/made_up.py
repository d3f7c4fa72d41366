"""A made-up ledger in which all is well, and ways to break it: what the judge is tried on."""

from dataclasses import replace
from uuid import UUID

from property_tests.chaos.ledger import Call, Evidence, Known, Life, Row, Struck

FIRST = 1_800_000_000.0
TASKS = [UUID(int=1), UUID(int=2)]
SLOTS = 20
TENANT = UUID(int=9)
HEALTHY, KILLED = UUID(int=100), UUID(int=101)
KILL, OUTAGE = FIRST + 5.2, FIRST + 12.0
"""Instants of the two faults."""

RECOVER = 4.0
RUN_NOW = UUID(int=900)


def run_of(task: int, slot: int) -> UUID:
    return UUID(int=1000 + 100 * task + slot)


def row_of(task: int, slot: int, *, fence: int = 1, lease: UUID = HEALTHY) -> Row:
    due = FIRST + slot
    last = None if slot == 0 else due - 1
    return Row(
        *(run_of(task, slot), TASKS[task], fence, "slot", due, due, last, None, due + 0.3),
        *("succeeded", "success", True, False, lease),
    )


def call_of(task: int, slot: int, *, fence: int = 1, late: float = 0.01, lasts: float = 0.25) -> Call:
    at = FIRST + slot + late
    return Call(at, at + lasts, run_of(task, slot), TASKS[task], fence, FIRST + slot)


def run_now() -> Row:
    return replace(row_of(1, 7), run_id=RUN_NOW, kind="now", slot=None, last_slot=None)


def sound() -> Evidence:
    """Two tasks by the second. The executor of slot 5 of the first is killed during its call, which is made again. A
    run-now of the second is asked for in the very millisecond of its slot 7."""
    keys = [(task, slot) for task in range(len(TASKS)) for slot in range(SLOTS)]
    rows = [row_of(*key) for key in keys if key != (0, 5)]
    calls = [call_of(*key) for key in keys]
    lost = replace(row_of(0, 5, lease=KILLED), state=None, outcome="lost", ended_at=KILL + 1.2)
    rows += [lost, replace(row_of(0, 5, fence=2), ended_at=KILL + 2.0)]
    calls.append(call_of(0, 5, fence=2, late=1.5))
    rows.append(run_now())
    calls.append(replace(call_of(1, 7, late=0.4), run_id=RUN_NOW))
    beats = [FIRST - 1 + n for n in range(SLOTS + 2)]
    return Evidence(
        expected={(TASKS[task], FIRST + slot): FIRST + slot for task, slot in keys},
        tasks={task: Known(TENANT, "second") for task in TASKS},
        calls=calls,
        rows=rows,
        lives={
            HEALTHY: Life(HEALTHY, 11, 0.0, "shared", list(beats)),
            KILLED: Life(KILLED, 12, 0.0, "shared", [FIRST - 1, FIRST + 4], (KILL, KILL + 0.1), KILL + 1.2),
        },
        faults=[
            Struck("kill-executor", KILL, KILL, "killed one", database=False, recover=RECOVER),
            Struck("cut-postgres", OUTAGE, OUTAGE + 3, "cut", database=True, recover=RECOVER),
        ],
        ttl=10.0,
        margin=2.0,
        accepted=[run_of(0, 0), RUN_NOW],
        unanswered=3,
        run_now_task=TASKS[1],
        made=1,
        caps={TENANT: 2},
        terminal=[((run_of(0, 0), 1), FIRST + 0.3, "succeeded", "success")],
    )


def without_row(evidence: Evidence, task: int, slot: int) -> None:
    evidence.rows = [row for row in evidence.rows if row.run_id != run_of(task, slot)]


def missing_slot(evidence: Evidence) -> None:
    without_row(evidence, 1, 7)
    evidence.calls = [call for call in evidence.calls if call.run_id != run_of(1, 7)]


def missing_call(evidence: Evidence) -> None:
    evidence.calls = [call for call in evidence.calls if call.run_id != run_of(1, 7)]


def missing_row(evidence: Evidence) -> None:
    without_row(evidence, 1, 7)


def gap(evidence: Evidence) -> None:
    evidence.rows = [replace(r, last_slot=FIRST + 5) if r.run_id == run_of(1, 7) else r for r in evidence.rows]


def loose_end(evidence: Evidence) -> None:
    without_row(evidence, 1, SLOTS - 1)


def left_over(evidence: Evidence) -> None:
    evidence.left = 1


def broken_promise(evidence: Evidence) -> None:
    evidence.accepted = [UUID(int=77)]


def made_twice(evidence: Evidence) -> None:
    evidence.doubled = 1


def ended_dead(evidence: Evidence) -> None:
    evidence.rows = [replace(r, state="dead") if r.run_id == run_of(1, 7) else r for r in evidence.rows]


def second_run(evidence: Evidence) -> None:
    other = UUID(int=5000)
    evidence.calls = [*evidence.calls, replace(call_of(1, 7), run_id=other)]
    evidence.rows = [*evidence.rows, replace(row_of(1, 7), run_id=other)]


def doubled_without_a_slot(evidence: Evidence) -> None:
    """A slot's second run, recorded as a run-now of a task that is never run now."""
    other = UUID(int=5000)
    evidence.calls = [*evidence.calls, replace(call_of(0, 9, late=0.4), run_id=other)]
    evidence.rows = [*evidence.rows, replace(run_now(), run_id=other, task_id=TASKS[0])]


def run_now_that_nobody_asked_for(evidence: Evidence) -> None:
    doubled_without_a_slot(evidence)
    evidence.calls = [replace(c, task_id=TASKS[1]) if c.run_id == UUID(int=5000) else c for c in evidence.calls]
    evidence.rows = [replace(r, task_id=TASKS[1]) if r.run_id == UUID(int=5000) else r for r in evidence.rows]
    evidence.unanswered = 0


def late_while_the_supervisor_is_away(evidence: Evidence) -> None:
    """By which no run may be late."""
    evidence.faults = [
        Struck("kill-supervisor", FIRST - 1, FIRST + 3, "killed", database=False, recover=RECOVER, holds_up=False),
        *evidence.faults,
    ]
    late_before_the_first_fault(evidence)


def unrecorded_call(evidence: Evidence) -> None:
    evidence.calls = [*evidence.calls, call_of(1, 7, fence=2, late=0.5)]


def called_twice(evidence: Evidence) -> None:
    evidence.calls = [*evidence.calls, call_of(1, 7, late=0.4)]


def again(evidence: Evidence, slot: int, lease: UUID) -> None:
    """The call of a slot is lost and made again."""
    without_row(evidence, 1, slot)
    lost = replace(row_of(1, slot, lease=lease), state=None, outcome="lost", ended_at=FIRST + slot + 3)
    evidence.rows = [*evidence.rows, lost, replace(row_of(1, slot, fence=2), ended_at=FIRST + slot + 4)]
    evidence.calls = [*evidence.calls, call_of(1, slot, fence=2, late=3.5)]


def again_though_alive(evidence: Evidence) -> None:
    again(evidence, 7, HEALTHY)


def again_though_long_answered(evidence: Evidence) -> None:
    again(evidence, 1, KILLED)


def again_after_an_outage(evidence: Evidence) -> None:
    again(evidence, 13, HEALTHY)
    evidence.lives[HEALTHY].failed = (OUTAGE + 1.0, OUTAGE + 1.1)


def again_more_than_were_in_flight(evidence: Evidence) -> None:
    """Its process failed between two instants far apart: each of two calls was in flight at one between them, but at
    none were both."""
    again(evidence, 8, KILLED)
    evidence.lives[KILLED].failed = (KILL, FIRST + 9)
    evidence.lives[KILLED].expired = FIRST + 9.2


def groundless_stale(evidence: Evidence) -> None:
    stale = replace(row_of(1, 7), state=None, stale=True, ended_at=FIRST + 9)
    evidence.rows = [*evidence.rows, stale]


def ended_twice(evidence: Evidence) -> None:
    evidence.rows = [*evidence.rows, replace(row_of(1, 7), ended_at=FIRST + 9)]


def called_after_its_end(evidence: Evidence) -> None:
    evidence.calls = [*evidence.calls, call_of(1, 7, fence=2, late=2)]
    evidence.rows = [*evidence.rows, replace(row_of(1, 7, fence=2), state=None, stale=True, ended_at=FIRST + 9)]


def rewritten(evidence: Evidence) -> None:
    evidence.rows = [replace(r, ended_at=FIRST + 9) if r.run_id == run_of(0, 0) else r for r in evidence.rows]


def reopened(evidence: Evidence) -> None:
    evidence.reopened = 1


def untrusted(evidence: Evidence) -> None:
    evidence.lives[HEALTHY].beats = evidence.lives[HEALTHY].beats[:8]


def expired_though_alive(evidence: Evidence) -> None:
    evidence.lives[HEALTHY].expired = FIRST + 3


def early(evidence: Evidence) -> None:
    evidence.calls = [call_of(1, 7, late=-0.002) if c.run_id == run_of(1, 7) else c for c in evidence.calls]


def tried_after_its_deadline(evidence: Evidence, *, due: float = 10.0) -> None:
    evidence.tasks = {**evidence.tasks, TASKS[1]: Known(TENANT, "deadline", fails=True, deadline=1.0)}
    failed = replace(row_of(1, 7), state=None, outcome="http_error")
    without_row(evidence, 1, 7)
    evidence.rows = [*evidence.rows, failed, replace(row_of(1, 7, fence=2), due_at=FIRST + due)]
    evidence.calls = [*evidence.calls, call_of(1, 7, fence=2, late=3.5)]


def tried_long_after_an_outage(evidence: Evidence) -> None:
    tried_after_its_deadline(evidence)
    evidence.faults = [
        replace(evidence.faults[0], recover=0.0),
        replace(evidence.faults[1], began=FIRST + 7, ended=FIRST + 8, recover=1.9),
    ]


def tried_long_after_a_loss(evidence: Evidence) -> None:
    tried_after_its_deadline(evidence, due=9.5)
    evidence.rows = [
        replace(r, outcome="lost", sent=True, lease_id=KILLED, ended_at=KILL + 1.2) if r.outcome == "http_error" else r
        for r in evidence.rows
    ]
    evidence.lives[KILLED].failed = (KILL, FIRST + 7.1)


def late_before_the_first_fault(evidence: Evidence) -> None:
    evidence.calls = [call_of(1, 2, late=1.5) if c.run_id == run_of(1, 2) else c for c in evidence.calls]


def always_late(evidence: Evidence) -> None:
    evidence.calls = [replace(c, at=c.at + 1.5, until=c.until + 1.5) for c in evidence.calls]


def longer(evidence: Evidence, slot: int) -> None:
    evidence.calls = [replace(c, until=c.at + 1.5) if c.run_id == run_of(1, slot) else c for c in evidence.calls]


def over_the_cap(evidence: Evidence) -> None:
    longer(evidence, 16)


def over_the_cap_after_a_failure(evidence: Evidence) -> None:
    longer(evidence, 7)


def over_the_cap_while_another_tenants_executor_fails(evidence: Evidence) -> None:
    longer(evidence, 16)
    failing = Life(UUID(int=102), 13, 0.0, "tenant-x", [FIRST - 1], (FIRST, FIRST + SLOTS))
    evidence.lives = {**evidence.lives, failing.lease_id: failing}


def never_at_its_cap(evidence: Evidence) -> None:
    evidence.caps = {TENANT: 3}


def nothing_due(evidence: Evidence) -> None:
    evidence.expected = {}


def no_run_now_taken(evidence: Evidence) -> None:
    evidence.accepted = []


def no_task_made(evidence: Evidence) -> None:
    evidence.made = 0


def no_terminal_row_looked_at(evidence: Evidence) -> None:
    evidence.terminal = []


def nothing_taken_from_a_zombie(evidence: Evidence) -> None:
    evidence.faults = [evidence.faults[0], replace(evidence.faults[1], zombie=True)]


def no_lease_watched(evidence: Evidence) -> None:
    evidence.lives = {}


def lease_never_watched(evidence: Evidence) -> None:
    evidence.rows = [replace(r, lease_id=UUID(int=103)) if r.run_id == run_of(1, 7) else r for r in evidence.rows]


def no_calm(evidence: Evidence) -> None:
    kill, outage = evidence.faults
    evidence.faults = [replace(kill, began=FIRST - 1, ended=OUTAGE), replace(outage, ended=FIRST + SLOTS)]
