"""The checks of the lifecycle world: each takes what is right, and refuses what is wrong by a little."""

import inspect
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from property_tests.world import promises
from property_tests.world.endpoint import Answer, Call
from property_tests.world.promises import Beaten
from property_tests.world.tables import Tables
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


@pytest.mark.parametrize("outcome", ["success", "protocol_error", "cancelled", "lost"])
def test_promise_4_takes_what_the_endpoint_answered(outcome: str) -> None:
    promises.promise_4_a_result_is_of_the_call_that_it_names(
        tables(history=[result(1, outcome)]), [a_call(1, Answer.OK), a_call(2, None)]
    )


@pytest.mark.parametrize(("fence", "outcome"), [(2, "success"), (3, "success"), (1, "http_error"), (1, "timeout")])
def test_promise_4_refuses_another_calls_result(fence: int, outcome: str) -> None:
    calls = [a_call(1, Answer.OK), a_call(2, None)]
    with pytest.raises(AssertionError, match="promise 4"):
        promises.promise_4_a_result_is_of_the_call_that_it_names(tables(history=[result(fence, outcome)]), calls)


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
        promises.promise_8_a_call_is_not_early(RUN, NOW + timedelta(seconds=0.1), NOW)


def test_promise_11_only_owned_tenants_are_begun() -> None:
    begun = Begun(RUN, 1, TENANT, TASK, Priority.NORMAL, NOW, NOW, None, 0, Kind.SLOT, 1, 0, 1)
    promises.promise_11_only_owned_tenants_are_begun([begun], {TENANT, OTHER})
    with pytest.raises(AssertionError, match="promise 11"):
        promises.promise_11_only_owned_tenants_are_begun([begun], {OTHER})
