"""The clocks: the machine's, the test's, and the lower bound of the database's."""

import random
from collections import deque
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.common.clock import PARKED, DatabaseClock, ManualClock, SystemClock

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
ROUNDING = 1e-5
"""Seconds that a Unix time in a float may be off by."""


def test_the_machines_clocks_agree_with_themselves() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()
    assert clock.boottime() <= clock.boottime()


def test_a_manual_clock_stands_until_it_is_moved() -> None:
    clock = ManualClock(NOW, monotonic=5.0)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic(), clock.boottime()) == (NOW + timedelta(seconds=2.5), 7.5, 7.5)
    clock.set_wall(NOW)
    assert (clock.now(), clock.monotonic()) == (NOW, 7.5)
    clock.suspend(100)
    assert (clock.now(), clock.monotonic(), clock.boottime()) == (NOW + timedelta(seconds=100), 7.5, 107.5)
    with pytest.raises(ValueError):
        clock.advance(-1)


def test_parked_is_later_than_every_instant() -> None:
    assert datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) < PARKED


SAMPLES = st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40)


def greatest_lead(clock_class: type[DatabaseClock], samples: list[tuple[float, float, float]], offset: float) -> float:
    """Seconds by which it ever ran ahead of a database whose clock is the process's plus `offset`.

    Of each sample: the pause before it, and how long the question and the answer took.
    """
    clock = ManualClock(NOW)
    bound = clock_class(clock)
    lead = -1e9
    for pause, there, back in samples:
        clock.advance(pause)
        sent = clock.monotonic()
        clock.advance(there)
        t_db = clock.now() + timedelta(seconds=offset)
        clock.advance(back)
        bound.sample(t_db, sent, clock.monotonic())
        lead = max(lead, bound.timestamp() - clock.now().timestamp() - offset)
    return lead


class Midpoint(DatabaseClock):
    """Broken: NTP's guess, that question and answer took equally long."""

    def sample(self, t_db: datetime, sent: float, received: float) -> None:
        super().sample(t_db, sent, (sent + received) / 2)


@given(samples=SAMPLES, offset=st.floats(-1e6, 1e6))
def test_the_bound_never_runs_ahead_of_the_database(samples: list[tuple[float, float, float]], offset: float) -> None:
    assert greatest_lead(DatabaseClock, samples, offset) <= ROUNDING


def test_the_check_catches_a_guess() -> None:
    assert greatest_lead(Midpoint, [(0, 0.8, 0.1)], 0) > 0.1


def test_the_tightest_sample_counts() -> None:
    clock = ManualClock(NOW)
    bound = DatabaseClock(clock)
    for back in (0.5, 0.001, 0.3):
        sent = clock.monotonic()
        t_db = clock.now()
        clock.advance(back)
        bound.sample(t_db, sent, clock.monotonic())
    assert clock.now().timestamp() - bound.timestamp() == pytest.approx(0.001, abs=ROUNDING)


def lead_after_an_outage(clock_class: type[DatabaseClock]) -> float:
    """Seconds by which the bound is ahead, by a clock that runs too fast by 500 ppm (as much as NTP slews), after 30 s
    without a sample. Questions take 50 ms by then, so that no sample contradicts another."""
    clock = ManualClock(NOW)
    bound = clock_class(clock)
    real = NOW
    for pause, there in [*[(1.25, 0.001)] * 16, (30.0, 0.05)]:
        clock.advance(pause * 1.0005)
        sent = clock.monotonic()
        clock.advance(there * 1.0005)
        real += timedelta(seconds=pause + there)
        bound.sample(real, sent, clock.monotonic())
    return bound.timestamp() - real.timestamp()


class NeverForgets(DatabaseClock):
    KEEP_SECONDS = 1e9


def test_what_was_read_before_an_outage_is_forgotten() -> None:
    assert lead_after_an_outage(DatabaseClock) <= ROUNDING
    assert lead_after_an_outage(NeverForgets) > 0.01


def test_a_database_that_was_set_back_is_believed() -> None:
    clock = ManualClock(NOW)
    bound = DatabaseClock(clock)
    bound.sample(NOW, clock.monotonic(), clock.monotonic())
    bound.sample(NOW - timedelta(seconds=30), clock.monotonic(), clock.monotonic())
    assert bound.now() == NOW - timedelta(seconds=30)


def test_a_suspended_process_catches_up_with_the_next_sample() -> None:
    clock = ManualClock(NOW)
    bound = DatabaseClock(clock)
    bound.sample(clock.now(), clock.monotonic(), clock.monotonic())
    clock.suspend(3600)
    assert bound.now() == NOW
    bound.sample(clock.now(), clock.monotonic(), clock.monotonic())
    assert bound.now() == NOW + timedelta(hours=1)


def test_old_samples_are_forgotten() -> None:
    """Else one that was tight long ago would outlive the drift of two clocks."""
    clock = ManualClock(NOW)
    bound = DatabaseClock(clock)
    bound.sample(NOW, clock.monotonic(), clock.monotonic())
    for _ in range(16):
        sent, t_db = clock.monotonic(), clock.now()
        clock.advance(0.25)
        bound.sample(t_db, sent, clock.monotonic())
    assert clock.now().timestamp() - bound.timestamp() == pytest.approx(0.25, abs=ROUNDING)
    assert isinstance(bound._samples, deque)


def test_when_the_bound_reaches_an_instant() -> None:
    rng = random.Random(1)
    clock = ManualClock(NOW)
    bound = DatabaseClock(clock)
    known = [bound.known]
    with pytest.raises(RuntimeError):
        bound.timestamp()
    bound.sample(NOW, clock.monotonic() - 0.2, clock.monotonic())
    assert [*known, bound.known] == [False, True]
    for _ in range(100):
        instant = NOW + timedelta(seconds=rng.uniform(0, 1e6))
        at = bound.monotonic_at(instant)
        clock.advance(max(0.0, at - clock.monotonic()))
        assert bound.timestamp() >= instant.timestamp() - ROUNDING
