"""Ways to pass slots of the made-up ledger over, most of which no promise allows."""

from dataclasses import replace
from uuid import UUID

from property_tests.chaos.ledger import Evidence, Known, Row
from property_tests.chaos.made_up import FIRST, SLOTS, TASKS, TENANT, row_of, run_of, without_row


def skip_of(task: int, first: int, last: int, *, ended: float = 9.0) -> Row:
    skip = replace(row_of(task, first), run_id=UUID(int=5001), state="skipped", outcome="skipped", sent=False)
    return replace(skip, until_slot=FIRST + last, lease_id=None, ended_at=FIRST + last + ended)


def passed_over(evidence: Evidence, *, first: int = 7, ended: float = 9.0) -> None:
    for slot in (first, first + 1):
        without_row(evidence, 1, slot)
        evidence.calls = [call for call in evidence.calls if call.run_id != run_of(1, slot)]
    evidence.rows = [*evidence.rows, skip_of(1, first, first + 1, ended=ended)]


def all_passed_over(evidence: Evidence) -> None:
    evidence.rows = [skip_of(task, 0, SLOTS - 1) for task in range(len(TASKS))]
    evidence.calls, evidence.terminal = [], []


def brief(evidence: Evidence) -> None:
    evidence.tasks = {**evidence.tasks, TASKS[1]: Known(TENANT, "brief", judged=False, grace=3.0)}


def seen_while_it_ran(evidence: Evidence, *, since: float = 0.0) -> None:
    """The skip of what is passed over, which was written `since` seconds after it was seen."""
    (skip,) = [row for row in evidence.rows if row.state == "skipped"]
    evidence.terminal = [*evidence.terminal, (skip.attempt, skip.ended_at - since, "skipped", "skipped")]


def skip_rewritten(evidence: Evidence) -> None:
    brief(evidence)
    passed_over(evidence)
    seen_while_it_ran(evidence, since=1.0)


def passed_over_within_its_grace(evidence: Evidence) -> None:
    brief(evidence)
    passed_over(evidence, ended=2.0)


def passed_over_before_the_first_fault(evidence: Evidence) -> None:
    brief(evidence)
    passed_over(evidence, first=1)


def always_passed_over(evidence: Evidence) -> None:
    brief(evidence)
    evidence.rows = [row for row in evidence.rows if row.task_id != TASKS[1]] + [skip_of(1, 0, SLOTS - 1)]
    evidence.calls = [call for call in evidence.calls if call.task_id != TASKS[1]]


def passed_over_after_a_fault(evidence: Evidence) -> None:
    """That was over, with its time to recover, before the slots were due."""
    passed_over_before_the_first_fault(evidence)
    evidence.faults = [replace(evidence.faults[0], began=FIRST - 7, ended=FIRST - 6), evidence.faults[1]]


def withdrawn(evidence: Evidence) -> None:
    now = replace(skip_of(1, 7, 7), kind="now", slot=None, last_slot=None, until_slot=None)
    evidence.rows = [*evidence.rows, now]


def run_and_skip(evidence: Evidence) -> None:
    skip = replace(row_of(1, 7), run_id=UUID(int=5001), state="skipped", outcome="skipped", sent=False, lease_id=None)
    evidence.rows = [*evidence.rows, skip]
