"""The checks of the lifecycle world: each takes what is right, and refuses what is wrong by a little."""

import inspect
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from property_tests.world import promises
from property_tests.world.backends import MemoryBackend
from property_tests.world.endpoint import Answer, Call
from property_tests.world.process import Injected
from property_tests.world.promises import Beaten
from property_tests.world.tables import Tables, TaskRows
from property_tests.world.world import World
from tocsin.common.clock import ManualClock
from tocsin.common.ids import Ids
from tocsin.common.models import Kind, Priority
from tocsin.common.store.rows import Begun

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
RUN, TENANT, TASK, LEASE, OTHER = (UUID(int=number) for number in range(1, 6))


def tables(**given: Any) -> Tables:
    nothing: dict[str, Any] = {"pending": [], "running": [], "history": [], "tasks": {}, "leases": {}, "caps": {}}
    return Tables(now=NOW, **(nothing | given))


def running(lease_id: UUID = LEASE, fence: int = 1) -> dict[str, Any]:
    return {"run_id": RUN, "fence": fence, "lease_id": lease_id, "tenant_id": TENANT}


def a_call(fence: int, answer: Answer | None) -> Call:
    future: Any = None
    return Call(RUN, fence, "/ok", "process 1", LEASE, 0.0, NOW, answer, future=future)


def result(fence: int, outcome: str) -> dict[str, Any]:
    return {"run_id": RUN, "fence": fence, "sent": True, "outcome": outcome, "stale": False}


def beats(*seconds: float) -> list[Beaten]:
    return [Beaten(each, NOW + timedelta(seconds=each)) for each in seconds]


def test_every_promise_but_the_ninth_is_code_here() -> None:
    names = [name for name, _ in inspect.getmembers(promises, inspect.isfunction)]
    numbers = {int(found[1]) for name in names if (found := re.match(r"promise_(\d+)_", name))}
    assert numbers == set(range(1, 13)) - {9}


def test_promise_1_a_lost_begin_may_be_called_put_back_or_lost_with_its_lease() -> None:
    check = promises.promise_1_a_lost_begin_is_found_again
    held = {(RUN, 1)}
    check(tables(leases={LEASE: None}), LEASE, held)
    check(tables(leases={LEASE: None}, running=[running(fence=2)]), LEASE, held)
    check(tables(leases={LEASE: NOW}, running=[running()]), LEASE, held)
    with pytest.raises(AssertionError, match="promise 1"):
        check(tables(leases={LEASE: None}, running=[running()]), LEASE, held)


def test_promise_3_a_begin_is_called_once() -> None:
    promises.promise_3_a_fence_is_called_once([a_call(1, Answer.OK), a_call(2, None)])
    with pytest.raises(AssertionError, match="promise 3"):
        promises.promise_3_a_fence_is_called_once([a_call(1, Answer.OK), a_call(1, None)])


def test_promise_3_an_ended_lease_keeps_what_it_had_and_begins_nothing() -> None:
    check = promises.promise_3_an_ended_lease_begins_nothing
    lives, ended = {LEASE: None}, {LEASE: NOW}
    check(tables(leases=lives), tables(leases=lives, running=[running()]))
    check(tables(leases=lives), tables(leases=ended, running=[running()]))
    check(tables(leases=ended, running=[running()]), tables(leases=ended, running=[running()]))
    with pytest.raises(AssertionError, match="promise 3"):
        check(tables(leases=ended), tables(leases=ended, running=[running()]))
    with pytest.raises(AssertionError, match="promise 3"):
        check(tables(leases=ended, running=[running()]), tables(leases=ended, running=[running(fence=2)]))


def test_promise_1_a_skip_is_counted_and_a_bound_is_one_of_many_years() -> None:
    def check(until: datetime, count: int, exact: bool) -> None:
        skip = {"run_id": RUN, "slot": NOW, "last_slot": None, "until_slot": until, "state": "skipped"}
        row = skip | {"skip_count": count, "skip_exact": exact}
        promises.promise_1_an_undisturbed_schedule_is_walked(TaskRows([], [], [row]), 2.0)

    soon, late = NOW + timedelta(seconds=10), NOW + timedelta(days=4000)
    check(soon, 6, True)
    check(late, 1000, False)
    for until, count, exact in [(soon, 5, True), (soon, 6, False), (late, 1000, True), (late, 10**9, False)]:
        with pytest.raises(AssertionError, match="promise 1"):
            check(until, count, exact)


@pytest.mark.parametrize("place", ["pending", "running", "history"])
def test_promise_1_no_run_vanishes(place: str) -> None:
    row = running() | {"kind": "now", "state": "succeeded", "stale": False}
    promises.promise_1_no_run_vanishes(tables(**{place: [row]}), {RUN})
    with pytest.raises(AssertionError, match="promise 1"):
        promises.promise_1_no_run_vanishes(tables(**{place: [row]}), {RUN, OTHER})


@pytest.mark.parametrize("change", [{"state": None}, {"stale": True}])
def test_promise_1_a_run_between_attempts_is_not_at_its_end(change: dict[str, Any]) -> None:
    row = running() | {"kind": "now", "state": "succeeded", "stale": False} | change
    with pytest.raises(AssertionError, match="promise 1"):
        promises.promise_1_no_run_vanishes(tables(history=[row]), {RUN})


def test_promise_3_every_call_is_on_record() -> None:
    def check(*called: tuple[UUID, int], at_rest: bool = False, **rows: Any) -> None:
        promises.promise_3_every_call_is_a_recorded_attempt(tables(**rows), set(called), at_rest=at_rest)

    answered, lost = [result(1, "success")], [result(1, "lost")]
    check((RUN, 1), history=answered, at_rest=True)
    check((RUN, 1), history=lost, at_rest=True)
    check(history=lost)  # it may not have come to the call
    check((RUN, 1), (RUN, 2), history=answered, running=[running(fence=2)])
    with pytest.raises(AssertionError, match="never seen"):
        check(history=answered)
    wrong: list[tuple[list[tuple[UUID, int]], dict[str, Any]]] = [
        ([(RUN, 1), (RUN, 2)], {"history": lost}),
        ([(RUN, 1)], {"running": [running(fence=2)]}),  # begun again, and the first call is on no record
        ([(RUN, 1)], {"history": [result(1, "success") | {"stale": True}]}),
    ]
    for called, rows in wrong:
        with pytest.raises(AssertionError, match="promise 3"):
            check(*called, **rows)
    with pytest.raises(AssertionError, match="promise 3"):
        check((RUN, 1), running=[running()], at_rest=True)


def test_promise_3_a_lease_that_lives_loses_nothing() -> None:
    lost = [result(1, "lost") | {"lease_id": LEASE}]
    promises.promise_3_only_ended_leases_lose_runs(tables(history=lost, leases={LEASE: NOW}))
    promises.promise_3_only_ended_leases_lose_runs(tables(history=lost))
    with pytest.raises(AssertionError, match="promise 3"):
        promises.promise_3_only_ended_leases_lose_runs(tables(history=lost, leases={LEASE: None}))


@pytest.mark.parametrize("outcome", ["success", "cancelled", "lost"])
def test_promise_4_takes_what_the_endpoint_answered(outcome: str) -> None:
    promises.promise_4_a_result_is_of_the_call_that_it_names(
        tables(history=[result(1, outcome)]), [a_call(1, Answer.OK), a_call(2, None)], set()
    )


@pytest.mark.parametrize(
    ("fence", "outcome"),
    [(2, "success"), (3, "success"), (1, "http_error"), (1, "timeout"), (1, "protocol_error")],
)
def test_promise_4_refuses_another_calls_result(fence: int, outcome: str) -> None:
    calls = [a_call(1, Answer.OK), a_call(2, None)]
    with pytest.raises(AssertionError, match="promise 4"):
        promises.promise_4_a_result_is_of_the_call_that_it_names(tables(history=[result(fence, outcome)]), calls, set())


def test_promise_4_a_process_that_failed_inside_says_so() -> None:
    def check(outcome: str) -> None:
        promises.promise_4_a_result_is_of_the_call_that_it_names(
            tables(history=[result(1, outcome)]), [a_call(1, Answer.OK)], {(RUN, 1)}
        )

    check("protocol_error")
    with pytest.raises(AssertionError, match="promise 4"):
        check("success")


def test_promise_6_is_the_ttl_without_its_margin() -> None:
    check = promises.promise_6_a_call_starts_within_the_trust_window
    check(beats(0.0, 1.25), 9.2, lives=True)
    with pytest.raises(AssertionError, match="promise 6"):
        check(beats(0.0, 1.25), 9.3, lives=True)
    with pytest.raises(AssertionError, match="promise 6"):
        check(beats(0.0, 1.25), 1.25, lives=False)


STEADY = beats(*(1.25 * number for number in range(10)))
"""Until 11.25 s."""


def test_promise_7_the_silent_are_ended_by_who_was_there() -> None:
    promises.promise_7_only_the_silent_are_ended(beats(0.0), STEADY, NOW + timedelta(seconds=11.25))


@pytest.mark.parametrize(
    ("ended", "judge", "now"),
    [
        (beats(0.0, 2.5), STEADY, 11.25),
        (beats(0.0), beats(10.0, 11.25), 11.25),
        (beats(0.0), beats(0.0, 1.25, 11.25), 11.25),
        (beats(0.0), STEADY, 14.0),
    ],
    ids=["not silent", "just come", "away before", "away since"],
)
def test_promise_7_nobody_else_is_ended(ended: list[Beaten], judge: list[Beaten], now: float) -> None:
    with pytest.raises(AssertionError, match="promise 7"):
        promises.promise_7_only_the_silent_are_ended(ended, judge, NOW + timedelta(seconds=now))


def test_promise_8_a_call_is_not_early() -> None:
    promises.promise_8_a_call_is_not_early(RUN, NOW, NOW)
    promises.promise_8_a_call_is_not_early(RUN, None, NOW)
    with pytest.raises(AssertionError, match="promise 8"):
        promises.promise_8_a_call_is_not_early(RUN, NOW + timedelta(seconds=0.005), NOW)


def a_process_set_back(*answered: bool) -> datetime:
    """What a process may believe at 20 s, of a database that was set back by 10 s at 0.5 s; it beat each second."""
    before, after = [Beaten(0.0, NOW)], timedelta(seconds=-10)
    later = [Beaten(at, NOW + timedelta(seconds=at) + after, heard) for at, heard in enumerate(answered, 1)]
    return promises.believed_now([*before, *later], 20.0)


def test_promise_8_who_was_answered_knows_of_a_step() -> None:
    assert a_process_set_back() == NOW + timedelta(seconds=20)
    assert a_process_set_back(False, False) == NOW + timedelta(seconds=20)
    assert a_process_set_back(True) == NOW + timedelta(seconds=10)
    assert a_process_set_back(True, False) == NOW + timedelta(seconds=10)


@pytest.mark.parametrize("fails", [False, True])
def test_promise_8_who_fails_inside_after_an_answer_has_not_heard_it(fails: bool) -> None:
    world = World(MemoryBackend)
    try:
        process = world.a_process()
        lease_id = process.lease_id
        assert lease_id is not None
        owner = process.owner
        assert owner is not None
        world.advance(1.0)
        world.step_database(-10.0)
        if fails:
            process.armed["beat.after"] = Injected
        process.step("beat")
        world.advance(1.0)
        believed = promises.believed_now(world.ledgers.beats[lease_id], world.time.seconds)
        assert believed == world.time.database_now() + timedelta(seconds=10.0 if fails else 0.0)
        assert abs(owner._database_clock.now() - believed) < timedelta(milliseconds=1)
    finally:
        world.close()


def test_promise_8_ids_are_of_the_time_since_the_last_look() -> None:
    def check(planted: float, *known: UUID) -> None:
        run_id = Ids(ManualClock(NOW), random.Random(1)).new(NOW + timedelta(seconds=planted))
        promises.promise_8_runs_bear_the_databases_time(
            tables(pending=[{"run_id": run_id}]),
            {run_id} if known else set(),
            NOW,
            NOW + timedelta(seconds=1),
        )

    check(0.0)
    check(1.0)
    check(-3600.0, RUN)
    for planted in (-0.1, -3600.0, 1.1):
        with pytest.raises(AssertionError, match="promise 8"):
            check(planted)


def test_promise_11_only_owned_tenants_are_begun() -> None:
    begun = Begun(RUN, 1, TENANT, TASK, Priority.NORMAL, NOW, NOW, None, 0, Kind.SLOT, 1, 0, 1)
    promises.promise_11_only_owned_tenants_are_begun([begun], {TENANT, OTHER})
    with pytest.raises(AssertionError, match="promise 11"):
        promises.promise_11_only_owned_tenants_are_begun([begun], {OTHER})


def test_promise_12_another_tenant_finds_nothing_and_changes_nothing() -> None:
    promises.promise_12_another_tenant_finds_nothing("edit", None)
    promises.promise_12_and_changes_nothing(
        "edit", tables(tasks={TASK: {"version": 1}}), tables(tasks={TASK: {"version": 1}})
    )
    with pytest.raises(AssertionError, match="promise 12"):
        promises.promise_12_another_tenant_finds_nothing("edit", "done")
    with pytest.raises(AssertionError, match="promise 12"):
        promises.promise_12_and_changes_nothing(
            "edit", tables(tasks={TASK: {"version": 1}}), tables(tasks={TASK: {"version": 2}})
        )
