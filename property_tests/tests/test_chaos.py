"""Chaos can fail: its judge catches ledgers that were broken on purpose, and finds nothing in one that was not."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from property_tests.chaos.delays import first_calls, recoveries, timeline
from property_tests.chaos.judge import judge
from property_tests.chaos.ledger import Evidence, Known
from property_tests.chaos.made_up import (
    BROKEN,
    FIRST,
    HEALTHY,
    KILL,
    KILLED,
    OUTAGE,
    SLOTS,
    TASKS,
    TENANT,
    again_more_than_were_in_flight,
    all_passed_over,
    brief,
    call_of,
    doubled_without_a_slot,
    early,
    late_before_the_first_fault,
    late_while_the_supervisor_is_away,
    lease_never_watched,
    longer,
    missing_call,
    missing_slot,
    passed_over,
    passed_over_before_the_first_fault,
    row_of,
    run_now_that_nobody_asked_for,
    run_of,
    sound,
    tried_after_its_deadline,
    tried_long_after_an_outage,
)


def broken_promises(evidence: Evidence) -> set[int]:
    return {finding.promise for finding in judge(evidence).findings if not finding.held}


def test_a_sound_ledger_holds_and_its_one_extra_call_is_within_the_bound() -> None:
    verdict = judge(sound())
    assert verdict.held, [finding for finding in verdict.findings if not finding.held]
    (extra,) = [finding for finding in verdict.of_promise(3) if finding.fault is not None]
    assert (extra.fault, extra.found, extra.bound) == (0, 1, 1)


@pytest.mark.parametrize(("promise", "break_it"), BROKEN, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_broken_ledger_is_caught(promise: int, break_it: Callable[[Evidence], None]) -> None:
    evidence = sound()
    break_it(evidence)
    assert promise in broken_promises(evidence)


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (again_more_than_were_in_flight, "failed processes with more extra calls than they had in flight"),
        (lease_never_watched, "recorded calls that were held against the heartbeats"),
        (tried_long_after_an_outage, "runs tried again after their deadline"),
        (passed_over_before_the_first_fault, "slots of `brief` skipped in no fault's time"),
        (doubled_without_a_slot, "runs without a slot that are no run-nows"),
        (run_now_that_nobody_asked_for, "run-nows that were not promised"),
        (late_while_the_supervisor_is_away, "first calls that were late in no fault's time"),
        (late_before_the_first_fault, "first calls that were late in no fault's time"),
    ],
)
def test_one_finding_alone_catches_it(break_it: Callable[[Evidence], None], what: str) -> None:
    evidence = sound()
    break_it(evidence)
    (found,) = [one for one in judge(evidence).findings if not one.held and one.fault is None]
    assert found.what.startswith(what)
    assert found.examples


def test_a_skip_after_a_brief_grace_accounts_for_its_slots_and_keeps_the_chain() -> None:
    evidence = sound()
    brief(evidence)
    passed_over(evidence)
    assert broken_promises(evidence) == set()


def test_a_drifting_clock_may_be_early_by_its_drift_and_no_more() -> None:
    evidence = sound()
    early(evidence)
    evidence.lives[HEALTHY].early = 0.0025
    assert broken_promises(evidence) == set()
    evidence.lives[HEALTHY].early = 0.0015
    assert broken_promises(evidence) == {8}


def test_a_retry_that_an_outage_put_off_may_come_after_its_deadline() -> None:
    evidence = sound()
    tried_after_its_deadline(evidence)
    evidence.faults = [evidence.faults[0], replace(evidence.faults[1], began=FIRST + 9)]
    assert broken_promises(evidence) == set()


def test_over_the_cap_is_allowed_while_a_process_fails_that_called_for_the_tenant() -> None:
    evidence = sound()
    longer(evidence, 7)
    evidence.lives[KILLED].failed = (KILL, FIRST + 8.0)
    assert 10 not in broken_promises(evidence)


def test_a_process_that_lingers_failed_when_it_wrote_its_last_result() -> None:
    evidence = sound()
    evidence.lives[KILLED].failed = (KILL + 1.0, KILL + 1.1)
    assert 3 in broken_promises(evidence)  # as far as is known it worked until then, and had the call's answer
    evidence.rows = [row_of(0, 4, lease=KILLED) if r.run_id == run_of(0, 4) else r for r in evidence.rows]
    assert broken_promises(evidence) == set()


def test_a_call_of_a_frozen_process_counts_against_the_cap_until_it_froze() -> None:
    evidence = sound()
    evidence.lives[KILLED].failed = (KILL, KILL)
    evidence.calls = [
        replace(c, until=math.inf) if (c.run_id, c.fence) == (run_of(0, 5), 1) else c for c in evidence.calls
    ]
    assert 10 not in broken_promises(evidence)


def test_a_run_taken_from_a_process_that_lives_on_makes_its_fence_count() -> None:
    evidence = sound()
    evidence.faults = [replace(evidence.faults[0], zombie=True), evidence.faults[1]]
    assert broken_promises(evidence) == set()
    evidence.faults = [evidence.faults[0], replace(evidence.faults[1], zombie=True, missed="its lease went on")]
    assert broken_promises(evidence) == set()


def test_recovery_lasts_until_the_last_late_call_or_the_last_call_made_again() -> None:
    evidence = sound()
    evidence.calls = [call_of(1, 13, late=2.5) if c.run_id == run_of(1, 13) else c for c in evidence.calls]
    books = judge(evidence).books
    kill, outage = recoveries(books, first_calls(evidence))
    assert kill.late == 0
    assert kill.after_began == pytest.approx(FIRST + 6.5 - KILL)
    assert outage.late == 1
    assert outage.worst == pytest.approx(2.5)
    assert outage.after_began == pytest.approx(3.5)
    assert outage.after_ended == pytest.approx(0.5)


def test_a_late_call_is_of_the_fault_in_whose_time_it_became_late() -> None:
    evidence = sound()
    late = OUTAGE + 0.5
    evidence.calls = [
        replace(c, at=late, until=late + 0.1) if FIRST + 6 <= c.scheduled < FIRST + 11 else c for c in evidence.calls
    ]
    kill, outage = recoveries(judge(evidence).books, first_calls(evidence))
    assert (kill.late, outage.late) == (10, 0)
    assert kill.after_began == pytest.approx(late - KILL)
    assert kill.worst == pytest.approx(late - FIRST - 6)


@pytest.mark.parametrize("break_it", [missing_slot, missing_call, passed_over, all_passed_over])
def test_a_slot_that_was_never_called_is_never_on_time_again(break_it: Callable[[Evidence], None]) -> None:
    evidence = sound()
    break_it(evidence)
    kill = recoveries(judge(evidence).books, first_calls(evidence))[0]
    assert math.inf in (kill.after_began, kill.worst)
    assert kill.late > 0
    assert kill.after_ended == math.inf


def test_what_is_passed_over_after_its_grace_is_not_late() -> None:
    evidence = sound()
    brief(evidence)
    passed_over(evidence)
    assert recoveries(judge(evidence).books, first_calls(evidence))[0].late == 0


def test_the_timeline_has_a_second_for_each_in_which_something_was_due() -> None:
    evidence = sound()
    evidence.tasks = {TASKS[0]: Known(TENANT, "second"), TASKS[1]: Known(TENANT, "capped", judged=False)}
    seconds = timeline(evidence, first_calls(evidence))
    assert [second.at for second in seconds] == [int(FIRST) + n for n in range(SLOTS)]
    assert all(second.count == 1 and second.worst == pytest.approx(0.01) for second in seconds)
