"""What the end of an attempt means for its run."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.common import backoff
from tocsin.common.models import RetrySpec
from tocsin.common.states import RunState
from tocsin.common.store.rows import Outcome
from tocsin.executor.classify import EndReason, Verdict, classify
from tocsin.executor.transport.port import Failure, Response

DUE = datetime(2026, 3, 1, 9, tzinfo=UTC)


def answer(status: int, *headers: tuple[str, str]) -> Response:
    return Response(status, headers, b"", False, 1.0)


def verdict(
    result: Response | Failure,
    retry: RetrySpec | None = None,
    *,
    attempt: int = 1,
    after: float = 1.0,
    seed: int = 1,
) -> Verdict:
    return classify(
        result,
        retry or RetrySpec(),
        attempt=attempt,
        now=DUE + timedelta(seconds=after),
        first_due=DUE,
        rng=random.Random(seed),
    )


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
def test_2xx_succeeds(status: int) -> None:
    assert verdict(answer(status)) == Verdict(Outcome.SUCCESS, RunState.SUCCEEDED)


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308, 400, 401, 404, 408, 429, 500, 503, 599])
def test_other_answers_are_tried_again(status: int) -> None:
    result = verdict(answer(status))
    assert (result.outcome, result.state, result.reason) == (Outcome.HTTP_ERROR, None, None)
    assert result.retry_in is not None
    assert result.error is not None
    assert str(status) in result.error
    assert ("redirect" in result.error) == (300 <= status < 400)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.TIMEOUT,
        Outcome.DNS_ERROR,
        Outcome.CONNECT_ERROR,
        Outcome.TLS_ERROR,
        Outcome.EGRESS_REFUSED,
        Outcome.PROTOCOL_ERROR,
        Outcome.CONNECTION_LOST,
    ],
)
def test_failures_are_tried_again(outcome: Outcome) -> None:
    result = verdict(Failure(outcome, "why", 1.0, 200))
    assert (result.outcome, result.state, result.error) == (outcome, None, "why")


def test_a_cancelled_call_cancels_its_run() -> None:
    result = verdict(Failure(Outcome.CANCELLED, "cancelled by its tenant"), attempt=99)
    assert (result.outcome, result.state) == (Outcome.CANCELLED, RunState.CANCELLED)


def test_410_is_dead_at_once() -> None:
    result = verdict(answer(410))
    assert (result.state, result.reason) == (RunState.DEAD, EndReason.GONE)


@pytest.mark.parametrize("value", ["true", "True", " true "])
def test_the_endpoint_may_forbid_retries(value: str) -> None:
    result = verdict(answer(500, ("TOCSIN-No-Retry", value)))
    assert (result.state, result.reason) == (RunState.DEAD, EndReason.NO_RETRY)
    assert verdict(answer(200, ("Tocsin-No-Retry", value))).state is RunState.SUCCEEDED
    assert verdict(answer(500, ("Tocsin-No-Retry", "false"))).state is None


def test_the_last_attempt_says_that_it_was_the_last() -> None:
    retry = RetrySpec(max_attempts=3, deadline_seconds=60)
    assert verdict(answer(500), retry, attempt=2).state is None
    result = verdict(answer(500), retry, attempt=3)
    assert (result.state, result.reason) == (RunState.DEAD, EndReason.MAX_ATTEMPTS)


def test_the_deadline_says_that_it_was_the_deadline() -> None:
    retry = RetrySpec(max_attempts=100, deadline_seconds=60)
    assert verdict(answer(500), retry, after=59.9).state is None
    result = verdict(answer(500), retry, after=60)
    assert (result.state, result.reason) == (RunState.DEAD, EndReason.DEADLINE)


@given(seed=st.integers(), after=st.floats(0, 59.9), attempt=st.integers(1, 99))
def test_no_retry_is_made_past_the_deadline(seed: int, after: float, attempt: int) -> None:
    retry = RetrySpec(max_attempts=100, deadline_seconds=60)
    result = verdict(answer(500), retry, after=after, seed=seed, attempt=attempt)
    assert result.retry_in is not None
    assert 0 <= result.retry_in <= 60 - after + 1e-6


@pytest.mark.parametrize("status", [429, 503])
def test_b40_retry_after_is_honoured_exactly(status: int) -> None:
    assert verdict(answer(status, ("Retry-After", "120"))).retry_in == 120
    in_90 = "Sun, 01 Mar 2026 09:01:31 GMT"
    assert verdict(answer(status, ("retry-after", in_90))).retry_in == 90
    assert verdict(answer(status, ("Retry-After", "99999999999999999999"))).retry_in == 86_400


def test_b40_what_is_not_usable_leaves_the_back_off() -> None:
    usual = verdict(answer(503)).retry_in
    assert usual is not None
    assert usual <= 5
    for headers in (
        [("Retry-After", "-5")],
        [("Retry-After", "")],
        [("Retry-After", "120, 240")],
        [("Retry-After", "120"), ("Retry-After", "240")],
        [("Retry-After", "Wed, 21 Oct 2015 07:28:00 -0000")],
    ):
        assert verdict(answer(503, *headers)).retry_in == usual
    assert verdict(answer(500, ("Retry-After", "120"))).retry_in == usual


def test_b40_a_wait_past_the_deadline_ends_the_run() -> None:
    retry = RetrySpec(deadline_seconds=60)
    result = verdict(answer(503, ("Retry-After", "59")), retry, after=1)
    assert (result.state, result.reason) == (RunState.DEAD, EndReason.DEADLINE)
    assert verdict(answer(503, ("Retry-After", "58")), retry, after=1).retry_in == 58


@pytest.mark.parametrize("attempts", [12, 13, 46, 47, 1_023, 1_024, 100_000])
def test_b39_the_cap_is_reached_and_never_passed(attempts: int) -> None:
    assert backoff.ceiling(attempts + 1, base=1, factor=2, cap=3_600) == 3_600
    assert backoff.ceiling(12, base=1, factor=2, cap=3_600) == 2_048
    assert backoff.ceiling(attempts, base=1, factor=1e9, cap=3_600) == 3_600
    assert backoff.ceiling(attempts, base=0, factor=2, cap=3_600) == 0


@pytest.mark.parametrize("attempt", [1, 12, 47, 1_024, 1_100, 100_000])
@pytest.mark.parametrize("factor", [2.0, 100.0, 1e9])
@pytest.mark.parametrize("base", [0.0, 1.0])
def test_b39_no_attempt_number_breaks_the_verdict(attempt: int, factor: float, base: float) -> None:
    retry = RetrySpec.model_construct(
        max_attempts=10**9, base_seconds=base, factor=factor, cap_seconds=3_600.0, deadline_seconds=None
    )
    wait = verdict(answer(500), retry, attempt=attempt).retry_in
    assert wait is not None
    assert 0 <= wait <= 3_600
    assert verdict(answer(500), attempt=attempt + 3).state is RunState.DEAD


def test_b39_the_power_before_the_cap_is_the_fault_that_this_would_catch() -> None:
    with pytest.raises(OverflowError):
        min(3_600.0, 0.1 * 2.0**1_024)


def test_full_jitter_spreads_over_the_whole_range() -> None:
    waits = [verdict(answer(500), attempt=2, seed=seed).retry_in or 0.0 for seed in range(300)]
    assert min(waits) < 0.5
    assert max(waits) > 9.5
