"""Which connection is opened next, and when: a peak must not spend all of the event loop's time on handshakes.

A TLS handshake costs about a millisecond of processor time, as much as ten calls; so there are only so many at once,
begun a little apart, and the places that want connections take turns.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Generic, Protocol, TypeVar

from tocsin.common.clock import Clock

SLOW_SECONDS: Final = 0.1
"""An opening that takes longer waits for its endpoint, and costs nothing while it does: it no longer counts, or a few
dead endpoints would stop all others."""


LATE_SECONDS: Final = 0.005
"""A step of the event loop that comes so late says that the loop has more to do than it can."""

FURTHER_APART: Final = 4
"""How many times as far apart further openings are begun by a loop that is late: what they cost, calls lack, and a
connection that comes back serves a call for a tenth of it."""


class Turn(IntEnum):
    """What an opening is to its place; lower ones go first."""

    FIRST = 0
    """The place has no connection."""
    FURTHER = 1
    """The place has some, which may come back sooner."""
    AHEAD = 2
    """Nobody waits for it yet."""


class _HasPlace(Protocol):
    @property
    def place(self) -> object: ...


T = TypeVar("T", bound=_HasPlace)


Turns = OrderedDict[object, OrderedDict[T, None]]


class Lane(Generic[T]):
    """Begins openings with `begin`: at most `at_once` that are under way and not slow, `apart` seconds from one to the
    next, and only while `room(ahead)`. Of each `Turn` each place in turn, whatever the others want; of one place the
    oldest first. While the loop is late, further ones are begun `FURTHER_APART` times as far apart."""

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
        self._turns: dict[Turn, Turns[T]] = {turn: OrderedDict() for turn in Turn}
        self._busy: set[T] = set()
        self._next = 0.0
        self._planned = 0.0
        self._late = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, opening: T, turn: Turn) -> None:
        self._turns[turn].setdefault(opening.place, OrderedDict())[opening] = None
        self.go()

    def remove_ahead(self, place: object) -> list[T]:
        """Takes back what is to be opened ahead for a place: somebody waits there now, and asks for himself."""
        return list(self._turns[Turn.AHEAD].pop(place, ()))

    def remove(self, opening: T) -> bool:
        """Takes one back; False if it is under way, or has been."""
        for turns in self._turns.values():
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
        self._go(catching_up=False)

    def fire(self) -> None:
        """The event loop calls it when the next one may begin. Where it comes late, those begin that had their time
        meanwhile, of places that have no connection."""
        self._timer = None
        self._late = self._clock.monotonic() - self._planned > LATE_SECONDS
        self._go(catching_up=True)

    def _go(self, *, catching_up: bool) -> None:
        while self._timer is None and len(self._busy) < self._at_once:
            turn = next((turn for turn, turns in self._turns.items() if turns), None)
            if turn is None:
                return
            now = self._clock.monotonic()
            self._planned = self._next
            if self._late and turn is Turn.FURTHER:
                self._planned += (FURTHER_APART - 1) * self._apart
            if now < self._planned:
                self._timer = asyncio.get_running_loop().call_later(self._planned - now, self.fire)
                return
            if not self._room(turn is Turn.AHEAD):
                return
            self._next = self._apart + (self._next if catching_up and turn is Turn.FIRST else now)
            self._begin_one(self._turns[turn])

    def _begin_one(self, turns: Turns[T]) -> None:
        place, waiting = turns.popitem(last=False)
        opening, _ = waiting.popitem(last=False)
        if waiting:
            turns[place] = waiting
        self._busy.add(opening)
        asyncio.get_running_loop().call_later(SLOW_SECONDS, self.free, opening)
        self._begin(opening)

    def clear(self) -> None:
        for turns in self._turns.values():
            turns.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
