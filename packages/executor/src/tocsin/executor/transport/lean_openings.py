"""Which connection is opened next, and when: a peak must not spend all of the event loop's time on handshakes.

A TLS handshake costs about a millisecond of processor time, more than a hundred calls; so there are only so many at
once, begun a little apart, and the places that want connections take turns.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from tocsin.common.clock import Clock

SLOW_SECONDS: Final = 0.1
"""An opening that takes longer waits for its endpoint, and costs nothing while it does: it no longer counts, or a few
dead endpoints would stop all others."""


class _HasPlace(Protocol):
    @property
    def place(self) -> object: ...


T = TypeVar("T", bound=_HasPlace)


Turns = OrderedDict[object, OrderedDict[T, None]]


class Lane(Generic[T]):
    """Begins openings with `begin`: at most `at_once` that are under way and not slow, `apart` seconds from one to the
    next, and only while `room(ahead)`. Each place in turn, whatever the others want; of one place the oldest first; and
    those that nobody waits for yet after all others."""

    def __init__(
        self,
        begin: Callable[[T], None],
        room: Callable[[bool], bool],
        clock: Clock,
        *,
        at_once: int,
        apart: float = 0.0,
    ) -> None:
        self._begin = begin
        self._room = room
        self._clock = clock
        self._at_once = at_once
        self._apart = apart
        self._turns: Turns[T] = OrderedDict()
        self._turns_ahead: Turns[T] = OrderedDict()
        self._busy: set[T] = set()
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, opening: T, *, ahead: bool = False) -> None:
        """`ahead`: nobody waits for it yet."""
        turns = self._turns_ahead if ahead else self._turns
        turns.setdefault(opening.place, OrderedDict())[opening] = None
        self.go()

    def remove_ahead(self, place: object) -> list[T]:
        """Takes back what is to be opened ahead for a place: somebody waits there now, and asks for himself."""
        return list(self._turns_ahead.pop(place, ()))

    def remove(self, opening: T) -> bool:
        """Takes one back; False if it is under way, or has been."""
        for turns in (self._turns, self._turns_ahead):
            waiting = turns.get(opening.place)
            if waiting is not None and opening in waiting:
                del waiting[opening]
                if not waiting:
                    del turns[opening.place]
                return True
        return False

    def free(self, opening: T) -> None:
        """The opening is over, or slow."""
        if opening in self._busy:
            self._busy.remove(opening)
            self.go()

    def go(self) -> None:
        """Begins what may begin now."""
        while (turns := self._turns or self._turns_ahead) and len(self._busy) < self._at_once and self._timer is None:
            now = self._clock.monotonic()
            if now < self._next:
                self._timer = asyncio.get_running_loop().call_later(self._next - now, self.fire)
                return
            if not self._room(turns is self._turns_ahead):
                return
            place, waiting = turns.popitem(last=False)
            opening, _ = waiting.popitem(last=False)
            if waiting:
                turns[place] = waiting
            self._busy.add(opening)
            self._next = now + self._apart
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self.free, opening)
            self._begin(opening)

    def fire(self) -> None:
        """The event loop calls it when the next one may begin."""
        self._timer = None
        self.go()

    def clear(self) -> None:
        self._turns.clear()
        self._turns_ahead.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
