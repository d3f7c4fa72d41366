"""Chaos can fail: its judge catches ledgers that were broken on purpose, and finds nothing in one that was not."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from property_tests.chaos import made_up, made_up_skips
from property_tests.chaos.delays import first_calls, recoveries, timeline
from property_tests.chaos.judge import judge
from property_tests.chaos.ledger import Evidence, Known
from property_tests.chaos.made_up import FIRST, HEALTHY, KILL, KILLED, OUTAGE, SLOTS, TASKS, TENANT

BROKEN: list[tuple[int, Callable[[Evidence], None]]] = [
    (1, made_up.missing_slot),
    (1, made_up.missing_call),
    (1, made_up.missing_row),
    (1, made_up.gap),
    (1, made_up.loose_end),
    (1, made_up.left_over),
    (1, made_up.broken_promise),
    (1, made_up.made_twice),
    (1, made_up.ended_dead),
    (2, made_up.second_run),
    (2, made_up.doubled_without_a_slot),
    (2, made_up.run_now_that_nobody_asked_for),
    (2, made_up_skips.run_and_skip),
    (3, made_up.missing_call),
    (3, made_up.missing_row),
    (3, made_up.unrecorded_call),
    (3, made_up.called_twice),
    (3, made_up.again_though_alive),
    (3, made_up.again_though_long_answered),
    (3, made_up.again_more_than_were_in_flight),
    (4, made_up.groundless_stale),
    (5, made_up.ended_twice),
    (5, made_up.called_after_its_end),
    (5, made_up.rewritten),
    (5, made_up_skips.skip_rewritten),
    (5, made_up.reopened),
    (6, made_up.untrusted),
    (7, made_up.expired_though_alive),
    (7, made_up.again_after_an_outage),
    (8, made_up.early),
    (8, made_up.tried_after_its_deadline),
    (8, made_up.tried_long_after_an_outage),
    (8, made_up.tried_long_after_a_loss),
    (8, made_up.late_before_the_first_fault),
    (8, made_up.always_late),
    (8, made_up.late_while_the_supervisor_is_away),
    (10, made_up.over_the_cap),
    (10, made_up.over_the_cap_after_a_failure),
    (10, made_up.over_the_cap_while_another_tenants_executor_fails),
    (10, made_up.never_at_its_cap),
    (1, made_up_skips.passed_over),
    (1, made_up_skips.all_passed_over),
    (1, made_up_skips.passed_over_within_its_grace),
    (1, made_up_skips.passed_over_before_the_first_fault),
    (1, made_up_skips.passed_over_after_a_fault),
    (1, made_up_skips.always_passed_over),
    (1, made_up_skips.withdrawn),
    (1, made_up.nothing_due),
    (1, made_up.no_run_now_taken),
    (1, made_up.no_task_made),
    (5, made_up.no_terminal_row_looked_at),
    (8, made_up.no_calm),
    (6, made_up.no_lease_watched),
    (6, made_up.lease_never_watched),
    (4, made_up.nothing_taken_from_a_zombie),
]


def broken_promises(evidence: Evidence) -> set[int]:
    return {finding.promise for finding in judge(evidence).findings if not finding.held}


def test_a_sound_ledger_holds_and_its_one_extra_call_is_within_the_bound() -> None:
    verdict = judge(made_up.sound())
    assert verdict.held, [finding for finding in verdict.findings if not finding.held]
    (extra,) = [finding for finding in verdict.of_promise(3) if finding.fault is not None]
    assert (extra.fault, extra.found, extra.bound) == (0, 1, 1)


@pytest.mark.parametrize(("promise", "break_it"), BROKEN, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_broken_ledger_is_caught(promise: int, break_it: Callable[[Evidence], None]) -> None:
    evidence = made_up.sound()
    break_it(evidence)
    assert promise in broken_promises(evidence)


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (made_up.again_more_than_were_in_flight, "failed processes with more extra calls than they had in flight"),
        (made_up.lease_never_watched, "recorded calls that were held against the heartbeats"),
        (made_up.tried_long_after_an_outage, "runs tried again after their deadline"),
        (made_up_skips.passed_over_before_the_first_fault, "slots of `brief` skipped in no fault's time"),
        (made_up_skips.passed_over_after_a_fault, "slots of `brief` skipped in no fault's time"),
        (made_up.doubled_without_a_slot, "runs without a slot that are no run-nows"),
        (made_up.run_now_that_nobody_asked_for, "run-nows that were not promised"),
        (made_up.late_while_the_supervisor_is_away, "first calls that were late in no fault's time"),
        (made_up.late_before_the_first_fault, "first calls that were late in no fault's time"),
    ],
)
def test_one_finding_alone_catches_it(break_it: Callable[[Evidence], None], what: str) -> None:
    evidence = made_up.sound()
    break_it(evidence)
    (found,) = [one for one in judge(evidence).findings if not one.held and one.fault is None]
    assert found.what.startswith(what)
    assert found.examples


def test_a_skip_after_a_brief_grace_accounts_for_its_slots_and_keeps_the_chain() -> None:
    evidence = made_up.sound()
    made_up_skips.brief(evidence)
    made_up_skips.passed_over(evidence)
    made_up_skips.seen_while_it_ran(evidence)
    assert broken_promises(evidence) == set()


def test_a_drifting_clock_may_be_early_by_its_drift_and_no_more() -> None:
    evidence = made_up.sound()
    made_up.early(evidence)
    evidence.lives[HEALTHY].early = 0.0025
    assert broken_promises(evidence) == set()
    evidence.lives[HEALTHY].early = 0.0015
    assert broken_promises(evidence) == {8}


def test_a_retry_that_an_outage_put_off_may_come_after_its_deadline() -> None:
    evidence = made_up.sound()
    made_up.tried_after_its_deadline(evidence)
    evidence.faults = [evidence.faults[0], replace(evidence.faults[1], began=FIRST + 9)]
    assert broken_promises(evidence) == set()


def test_over_the_cap_is_allowed_while_a_process_fails_that_called_for_the_tenant() -> None:
    evidence = made_up.sound()
    made_up.longer(evidence, 7)
    evidence.lives[KILLED].failed = (KILL, FIRST + 8.0)
    assert 10 not in broken_promises(evidence)


def test_a_process_that_lingers_failed_when_it_wrote_its_last_result() -> None:
    evidence = made_up.sound()
    evidence.lives[KILLED].failed = (KILL + 1.0, KILL + 1.1)
    assert 3 in broken_promises(evidence)  # as far as is known it worked until then, and had the call's answer
    evidence.rows = [
        made_up.row_of(0, 4, lease=KILLED) if r.run_id == made_up.run_of(0, 4) else r for r in evidence.rows
    ]
    assert broken_promises(evidence) == set()


def test_a_call_of_a_frozen_process_counts_against_the_cap_until_it_froze() -> None:
    evidence = made_up.sound()
    evidence.lives[KILLED].failed = (KILL, KILL)
    evidence.calls = [
        replace(c, until=math.inf) if (c.run_id, c.fence) == (made_up.run_of(0, 5), 1) else c for c in evidence.calls
    ]
    assert 10 not in broken_promises(evidence)


def test_a_run_taken_from_a_process_that_lives_on_makes_its_fence_count() -> None:
    evidence = made_up.sound()
    evidence.faults = [replace(evidence.faults[0], zombie=True), evidence.faults[1]]
    assert broken_promises(evidence) == set()
    evidence.faults = [evidence.faults[0], replace(evidence.faults[1], zombie=True, missed="its lease went on")]
    assert broken_promises(evidence) == set()


def test_recovery_lasts_until_the_last_late_call_or_the_last_call_made_again() -> None:
    evidence = made_up.sound()
    evidence.calls = [
        made_up.call_of(1, 13, late=2.5) if c.run_id == made_up.run_of(1, 13) else c for c in evidence.calls
    ]
    books = judge(evidence).books
    kill, outage = recoveries(books, first_calls(evidence))
    assert kill.late == 0
    assert kill.after_began == pytest.approx(FIRST + 6.5 - KILL)
    assert outage.late == 1
    assert outage.worst == pytest.approx(2.5)
    assert outage.after_began == pytest.approx(3.5)
    assert outage.after_ended == pytest.approx(0.5)


def test_a_late_call_is_of_the_fault_in_whose_time_it_became_late() -> None:
    evidence = made_up.sound()
    late = OUTAGE + 0.5
    evidence.calls = [
        replace(c, at=late, until=late + 0.1) if FIRST + 6 <= c.scheduled < FIRST + 11 else c for c in evidence.calls
    ]
    kill, outage = recoveries(judge(evidence).books, first_calls(evidence))
    assert (kill.late, outage.late) == (10, 0)
    assert kill.after_began == pytest.approx(late - KILL)
    assert kill.worst == pytest.approx(late - FIRST - 6)


@pytest.mark.parametrize(
    "break_it", [made_up.missing_slot, made_up.missing_call, made_up_skips.passed_over, made_up_skips.all_passed_over]
)
def test_a_slot_that_was_never_called_is_never_on_time_again(break_it: Callable[[Evidence], None]) -> None:
    evidence = made_up.sound()
    break_it(evidence)
    kill = recoveries(judge(evidence).books, first_calls(evidence))[0]
    assert math.inf in (kill.after_began, kill.worst)
    assert kill.late > 0
    assert kill.after_ended == math.inf


def test_what_is_passed_over_after_its_grace_is_not_late() -> None:
    evidence = made_up.sound()
    made_up_skips.brief(evidence)
    made_up_skips.passed_over(evidence)
    assert recoveries(judge(evidence).books, first_calls(evidence))[0].late == 0


def test_the_timeline_has_a_second_for_each_in_which_something_was_due() -> None:
    evidence = made_up.sound()
    evidence.tasks = {TASKS[0]: Known(TENANT, "second"), TASKS[1]: Known(TENANT, "capped", judged=False)}
    seconds = timeline(evidence, first_calls(evidence))
    assert [second.at for second in seconds] == [int(FIRST) + n for n in range(SLOTS)]
    assert all(second.count == 1 and second.worst == pytest.approx(0.01) for second in seconds)
