"""The world's time stands still between two steps, and nothing that runs in it may wait for a nanosecond to pass."""

from datetime import datetime, timedelta
from fractions import Fraction

import pytest

from property_tests.world import loop as world_loop
from property_tests.world.clocks import START, ProcessClock, WorldTime
from property_tests.world.loop import ProcessLoop
from tocsin.common.clock import DatabaseClock
from tocsin.executor.timers import Timers

STEP = 2**-22
"""Of a float that holds Unix seconds of this century."""
EARLY = Fraction(1, 10**9)
"""By how much an event loop fires early."""


class FloatTime(WorldTime):
    """Seconds as a sum of floats."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = 0.0

    @property
    def seconds(self) -> float:
        return self.sum

    def advance(self, seconds: float) -> None:
        self.sum += seconds

    def since_start(self, *, offset: float = 0.0) -> float:
        return offset + self.sum

    def undisturbed_now(self) -> datetime:
        return START + timedelta(seconds=self.sum)


def timers_fire(time: WorldTime, monkeypatch: pytest.MonkeyPatch) -> int:
    """Walks 50 s, with a timer for each instant to come and its neighbours; how many came due."""
    monkeypatch.setattr(world_loop, "_PATIENCE", 0.5)
    fired: list[int] = []
    clock, loop = ProcessClock(time, 0.0, 1000.0), ProcessLoop(time)
    database = DatabaseClock(clock)
    timers: Timers[int] = Timers(clock, fired.append)
    try:
        for number in range(1000):
            database.sample(time.database_now(), clock.monotonic(), clock.monotonic())
            for microseconds in (-1, 0, 1):
                due = time.database_now() + timedelta(seconds=0.05, microseconds=microseconds)
                loop.call_soon(timers.add, database.monotonic_at(due), number)
            loop.settle(lambda: False)
            time.advance(0.05)
            loop.settle(lambda: False)
    finally:
        loop.close()
    return len(fired)


def test_timers_fire_and_the_loop_comes_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timers_fire(WorldTime(), monkeypatch) > 2000


def test_a_sum_of_floats_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="does not come to rest"):
        timers_fire(FloatTime(), monkeypatch)


def test_no_instant_of_a_process_lies_just_before_a_whole_millisecond() -> None:
    """Which is what the world's time stands on: over a second and its steps all distances come again."""
    for millisecond in range(1000):
        instant = Fraction(millisecond, 1000)
        distance = (Fraction(instant // Fraction(STEP) + 1) * Fraction(STEP)) - instant
        assert distance > EARLY


@pytest.mark.parametrize("seconds", [-1.0, 0.0005])
def test_time_goes_on_by_whole_milliseconds(seconds: float) -> None:
    with pytest.raises(AssertionError):
        WorldTime().advance(seconds)
