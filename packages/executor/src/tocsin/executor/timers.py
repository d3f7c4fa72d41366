"""A timer heap: thousands of waiting runs, one timer of the event loop, nothing held by any of them."""

import asyncio
import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

from tocsin.common.clock import Clock

T = TypeVar("T")

AT_ONCE = 64
"""Items handed over in one step of the event loop. Thousands are due at one instant: were they all handed over at once,
the first of them, the most urgent, would wait for the first step of the last before its connection is looked at."""


class Timers(Generic[T]):
    """Calls `due` with each item once its monotonic instant has come, in order of the instants, never early."""

    def __init__(self, clock: Clock, due: Callable[[T], None]) -> None:
        self._clock = clock
        self._due = due
        self._heap: list[tuple[float, int, T]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at: float, item: T) -> None:
        """Takes an item that is due at the monotonic instant `at`; one in the past is due in the next step."""
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, item))
        if self._timer is None or at < self._armed_for:
            self._arm()

    def clear(self) -> list[T]:
        """Forgets every item, and returns them."""
        items = [item for _, _, item in self._heap]
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return items

    def fire(self) -> None:
        """Hands over what is due now, so much at once; the event loop calls it."""
        self._timer = None
        now = self._clock.monotonic()
        for _ in range(AT_ONCE):
            if not self._heap or self._heap[0][0] > now:
                break
            self._due(heapq.heappop(self._heap)[2])
        if self._heap:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._heap[0][0]
        self._timer = asyncio.get_running_loop().call_later(
            max(0.0, self._armed_for - self._clock.monotonic()), self.fire
        )
