"""The timer heap: in order, never early, on one timer of the loop."""

import asyncio
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_bench import turns
from tocsin.common.clock import ManualClock, SystemClock
from tocsin.executor.timers import AT_ONCE, Timers

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)


def earliest_margin(timers: type[Timers[float]], items: list[float]) -> float:
    """The least (hand-over minus due instant) over all items, while the clock moves in steps of 0.7 s."""
    clock = ManualClock(NOW, monotonic=0.0)
    handed: list[tuple[float, float]] = []

    async def run() -> None:
        heap = timers(clock, lambda at: handed.append((at, clock.monotonic())))
        for at in items:
            heap.add(at, at)
        while len(heap):
            clock.advance(0.7)
            heap.fire()

    asyncio.run(run())
    assert [at for at, _ in handed] == sorted(items)
    return min(when - at for at, when in handed)


class HandsOverTheNext(Timers[float]):
    """Broken: takes it that the loop's timer came for the first item, whatever the clock says."""

    def fire(self) -> None:
        before, self._clock = self._clock, ManualClock(NOW, monotonic=(self._heap[0][0] if self._heap else 0.0))
        super().fire()
        self._clock = before


@given(st.lists(st.floats(0, 50, allow_nan=False), min_size=1, max_size=40))
def test_in_order_and_never_early(items: list[float]) -> None:
    assert earliest_margin(Timers, items) >= 0


def test_the_check_catches_a_heap_that_trusts_its_timer() -> None:
    assert earliest_margin(HandsOverTheNext, [3.0, 9.0]) < 0


async def test_what_is_due_already_is_handed_over_in_the_next_step() -> None:
    clock = ManualClock(NOW)
    handed: list[str] = []
    timers = Timers(clock, handed.append)
    timers.add(clock.monotonic() - 5, "past")
    assert handed == []
    await turns()
    assert handed == ["past"]


async def test_an_earlier_item_is_not_kept_waiting_by_a_later_one() -> None:
    """On the machine's clock: the timer is set anew."""
    clock = SystemClock()
    done = asyncio.Event()
    timers: Timers[str] = Timers(clock, lambda _item: done.set())
    timers.add(clock.monotonic() + 3600, "late")
    timers.add(clock.monotonic() + 0.005, "soon")
    await asyncio.wait_for(done.wait(), 10)
    assert len(timers) == 1
    assert timers.clear() == ["late"]


async def test_items_of_one_instant_keep_the_order_in_which_they_came() -> None:
    clock = ManualClock(NOW)
    handed: list[int] = []
    timers = Timers(clock, handed.append)
    for item in (3, 1, 2):
        timers.add(clock.monotonic() + 1, item)
    clock.advance(1)
    timers.fire()
    assert handed == [3, 1, 2]


async def steps_before_the_first_is_seen(timers: type[Timers[int]]) -> int:
    """How many of a thousand items of one instant are handed over before what the first has begun goes on."""
    clock = ManualClock(NOW)
    handed: list[int] = []
    seen: list[int] = []

    def due(item: int) -> None:
        handed.append(item)
        if item == 0:
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, lambda: seen.append(len(handed)))

    heap = timers(clock, due)
    for item in range(1000):
        heap.add(clock.monotonic(), item)
    await turns(60)
    assert handed == list(range(1000))
    return seen[0]


class HandsOverAll(Timers[int]):
    """Broken: hands over all that is due in one step."""

    def fire(self) -> None:
        while self._heap:
            super().fire()


async def test_a_peak_is_handed_over_in_parts_so_that_its_first_calls_go_on_meanwhile() -> None:
    assert await steps_before_the_first_is_seen(Timers) <= 3 * AT_ONCE
    assert await steps_before_the_first_is_seen(HandsOverAll) == 1000


async def test_an_item_that_is_added_while_others_are_handed_over() -> None:
    clock = ManualClock(NOW)
    handed: list[str] = []

    def due(item: str) -> None:
        handed.append(item)
        if item == "first":
            timers.add(clock.monotonic(), "second")

    timers = Timers(clock, due)
    timers.add(clock.monotonic(), "first")
    await turns()
    assert handed == ["first", "second"]


@pytest.mark.parametrize("count", [0, 3])
async def test_cleared_timers_hand_over_nothing(count: int) -> None:
    clock = ManualClock(NOW)
    handed: list[int] = []
    timers = Timers(clock, handed.append)
    for item in range(count):
        timers.add(clock.monotonic() - 1, item)
    assert timers.clear() == list(range(count))
    await turns()
    assert handed == []
    assert len(timers) == 0
