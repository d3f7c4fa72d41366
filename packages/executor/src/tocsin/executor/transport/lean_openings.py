"""Which connection is opened next, and when: a peak must not spend all of the event loop's time on handshakes.

A TLS handshake costs about a millisecond of processor time, more than a hundred calls; so there are only so many at
once, begun a little apart, and the places that want connections take turns.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tocsin.common.clock import Clock


class _HasPlace(Protocol):
    @property
    def place(self) -> object: ...


T = TypeVar("T", bound=_HasPlace)


class Lane(Generic[T]):
    """Begins openings with `begin`: at most `at_once` under way, `apart` seconds from one to the next, and only while
    `room()`. Each place in turn, whatever the others want; of one place the oldest first."""

    def __init__(
        self, begin: Callable[[T], None], room: Callable[[], bool], clock: Clock, *, at_once: int, apart: float = 0.0
    ) -> None:
        self._begin = begin
        self._room = room
        self._clock = clock
        self._at_once = at_once
        self._apart = apart
        self._turns: OrderedDict[object, deque[T]] = OrderedDict()
        self._under_way = 0
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, opening: T) -> None:
        self._turns.setdefault(opening.place, deque()).append(opening)
        self.go()

    def remove(self, opening: T) -> bool:
        """Takes one back; False if it is under way, or has been."""
        waiting = self._turns.get(opening.place)
        if waiting is None or opening not in waiting:
            return False
        waiting.remove(opening)
        if not waiting:
            del self._turns[opening.place]
        return True

    def ended(self) -> None:
        """One that was under way is over."""
        self._under_way -= 1
        self.go()

    def go(self) -> None:
        """Begins what may begin now."""
        while self._turns and self._under_way < self._at_once and self._timer is None and self._room():
            wait = self._next - self._clock.monotonic()
            if wait > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self.fire)
                return
            place, waiting = self._turns.popitem(last=False)
            opening = waiting.popleft()
            if waiting:
                self._turns[place] = waiting
            self._under_way += 1
            self._next = self._clock.monotonic() + self._apart
            self._begin(opening)

    def fire(self) -> None:
        """The event loop calls it when the next one may begin."""
        self._timer = None
        self.go()

    def clear(self) -> None:
        self._turns.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
