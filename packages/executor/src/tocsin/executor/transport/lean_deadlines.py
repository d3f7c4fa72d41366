"""The deadlines of thousands of calls at once: one timer of the event loop, and a few steps a call."""

import asyncio
import heapq
from typing import Any, Final

TICK_SECONDS: Final = 0.05
"""A call ends at its deadline or at most so long after it."""


class Deadline:
    """Of one call, in its task; to be given to `Deadlines.end` however the call ends."""

    __slots__ = ("cancelling", "expired", "task", "tick")

    def __init__(self, task: "asyncio.Task[Any]", tick: int) -> None:
        self.task = task
        self.tick = tick
        self.cancelling = task.cancelling()
        self.expired = False


class Deadlines:
    """Cancels a task when its deadline has passed, as `asyncio.timeout` does. Most calls end long before: then nothing
    was done but to put them into a set and to take them out, where a timer each would have to be sorted."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, set[Deadline]] = {}
        self._ticks: list[int] = []  # a heap of the keys of `_waiting`
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0

    def begin(self, task: "asyncio.Task[Any]", seconds: float) -> Deadline:
        deadline = Deadline(task, int((self._loop.time() + seconds) / TICK_SECONDS) + 1)
        waiting = self._waiting.get(deadline.tick)
        if waiting is None:
            waiting = self._waiting[deadline.tick] = set()
            heapq.heappush(self._ticks, deadline.tick)
            if self._timer is None or deadline.tick < self._armed_for:
                self._arm()
        waiting.add(deadline)
        return deadline

    def end(self, deadline: Deadline) -> bool:
        """Whether its passing, and nobody else, has cancelled the task; then it is no longer cancelled."""
        if deadline.expired:
            return deadline.task.uncancel() <= deadline.cancelling
        self._waiting[deadline.tick].remove(deadline)
        return False

    def fire(self) -> None:
        """The event loop calls it at the first tick that a call was to end at."""
        self._timer = None
        now = max(self._armed_for, int(self._loop.time() / TICK_SECONDS))
        while self._ticks and self._ticks[0] <= now:
            for deadline in self._waiting.pop(heapq.heappop(self._ticks)):
                deadline.expired = True
                deadline.task.cancel()
        if self._ticks:
            self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._ticks[0]
        self._timer = self._loop.call_at(self._armed_for * TICK_SECONDS, self.fire)
