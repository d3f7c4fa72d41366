"""The connections of the lean transport: who holds which, who waits, and what is opened and closed for it."""

import asyncio
import ssl
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple

from tocsin.common.clock import Clock
from tocsin.executor.transport.connecting import KEEPALIVE_SECONDS
from tocsin.executor.transport.lean_openings import Lane, Turn
from tocsin.executor.transport.lean_protocol import Connection

HANDSHAKES_AT_ONCE: Final = 32
HANDSHAKES_APART_SECONDS: Final = 0.002
CONNECTS_AT_ONCE: Final = 256
OPENING_SECONDS: Final = 30.0
"""After which an opening is given up; who still waits gets another one."""

_SWEEP_SECONDS = 5.0


class PeerKey(NamedTuple):
    """Whom a connection may be used for: what a certificate must name, and where it goes."""

    address: str
    port: int
    host: str
    scheme: str


_Waiter = asyncio.Future[Connection]
"""A call that waits: for the connection that it is given."""


@dataclass(eq=False, slots=True)
class Opening:
    """A connection to be; `task` once it is under way. `over`: of one that is opened ahead, for who asked."""

    place: "Place"
    task: "asyncio.Task[None] | None" = None
    over: "asyncio.Future[bool] | None" = None

    def end(self, *, failed: bool = False) -> None:
        if self.over is not None and not self.over.done():
            self.over.set_result(not failed)


class Place:
    """One peer: its connections, of the idle ones that on top which was used last, and its openings, which are as many
    as its waiters or more, so that every waiter gets a connection or hears why not."""

    __slots__ = ("connections", "idle", "key", "openings", "waiters")

    def __init__(self, key: PeerKey) -> None:
        self.key = key
        self.connections = 0
        self.idle: dict[Connection, None] = {}
        self.waiters: OrderedDict[_Waiter, bool] = OrderedDict()  # whether only a new connection will do
        self.openings: OrderedDict[Opening, None] = OrderedDict()

    @property
    def unused(self) -> bool:
        return not (self.connections or self.waiters or self.openings)


class Pool:
    """At most `open_limit` connections, idle ones and openings included: before one more is opened, that which has been
    idle for longest is closed. Where none is idle, the opening waits until one is, or is closed."""

    connection = Connection

    def __init__(self, clock: Clock, context: ssl.SSLContext, open_limit: int) -> None:
        self._clock = clock
        self._context = context
        self._open_limit = open_limit
        self._loop = asyncio.get_running_loop()
        self._places: dict[PeerKey, Place] = {}
        self._idle: OrderedDict[Connection, float] = OrderedDict()  # since when; the longest idle first
        self._open_ones: set[Connection] = set()
        self._under_way: set[Opening] = set()
        self._lanes = {
            "http": Lane(self._begin, self._room, clock, at_once=CONNECTS_AT_ONCE),
            "https": Lane(self._begin, self._room, clock, at_once=HANDSHAKES_AT_ONCE, apart=HANDSHAKES_APART_SECONDS),
        }
        self._full = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None

    def take(self, key: PeerKey) -> Connection | None:
        """The connection that was used last, if one is idle; it is the caller's now, who looks whether it is silent."""
        place = self._places.get(key)
        if place is None:
            return None
        while place.idle:
            connection, _ = place.idle.popitem()
            del self._idle[connection]
            if connection.open:
                return connection
        return None

    async def wait(self, key: PeerKey, *, limit: float | None, fresh: bool) -> Connection:
        """The next connection to be had: one that is opened, or, unless `fresh`, one that is released meanwhile.

        Raises:
            OSError, ValueError: none could be opened.
            TimeoutError: `limit` seconds have passed.
        """
        if self._emptied is not None:
            raise ConnectionAbortedError("the transport is closed")
        place = self._place(key)
        for opening in self._lanes[key.scheme].remove_ahead(place):
            del place.openings[opening]
            opening.end()
        waiter: _Waiter = self._loop.create_future()
        place.waiters[waiter] = fresh
        self._cover(place)
        timer = None if limit is None else self._loop.call_later(limit, _give_up, waiter)
        try:
            return await waiter
        except BaseException:
            self._leave(place, waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def warm(self, key: PeerKey, count: int) -> bool:
        """Opens a connection that nobody waits for yet, unless the peer has `count`: as long as half of the limit is
        left to calls, and behind all that calls wait for. Returns when it is open, or will not be; False: none was
        missing, there was no room, or it failed."""
        place = self._place(key)
        if place.connections + len(place.openings) >= count or self._free_ahead() <= 0:
            self._forget(place)
            return False
        over: asyncio.Future[bool] = self._loop.create_future()
        self._ask(Opening(place, over=over), ahead=True)
        return await over

    def release(self, connection: Connection) -> None:
        """Takes a connection back, or takes over a new one that nobody waits for."""
        connection.reused = True
        place = _place_of(connection)
        if self._emptied is not None:
            connection.abort()
        elif self._give(place, connection):
            while len(place.openings) > len(place.waiters) and self._take_back(next(reversed(place.openings))):
                pass
        else:
            place.idle[connection] = None
            self._idle[connection] = self._clock.monotonic()
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self.sweep)
            self._go_on()

    def lost(self, connection: Connection) -> None:
        self._strike(connection)
        if self._emptied is not None and not self._open_ones and not self._emptied.done():
            self._emptied.set_result(None)
        self._go_on()

    def sweep(self) -> None:
        """Closes what has been idle for too long; the event loop calls it."""
        self._sweeper = None
        old = self._clock.monotonic() - KEEPALIVE_SECONDS
        while self._idle and next(iter(self._idle.values())) <= old:
            self._close_oldest()
        if self._idle:
            self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self.sweep)

    async def close(self) -> None:
        """Every connection is closed when it returns; calls on them, and those that wait for one, fail."""
        self._emptied = self._loop.create_future()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for lane in self._lanes.values():
            lane.clear()
        tasks = [opening.task for opening in self._under_way if opening.task is not None]
        for task in tasks:
            task.cancel()
        for place in list(self._places.values()):
            for opening in place.openings:
                opening.end()
            place.openings.clear()
            while place.waiters:
                _refuse(place, ConnectionAbortedError("the transport was closed"))
        for connection in self._open_ones:
            connection.drop()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._open_ones:
            await self._emptied

    # --- openings -----------------------------------------------------------------------------------------------------

    def _cover(self, place: Place) -> None:
        """An opening for every waiter."""
        while len(place.openings) < len(place.waiters):
            self._ask(Opening(place))

    def _ask(self, opening: Opening, *, ahead: bool = False) -> None:
        place = opening.place
        turn = Turn.AHEAD if ahead else Turn.FURTHER if place.connections or place.openings else Turn.FIRST
        place.openings[opening] = None
        self._lanes[place.key.scheme].add(opening, turn)

    def _place(self, key: PeerKey) -> Place:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(key)
        return place

    def _free_ahead(self) -> int:
        return self._open_limit // 2 - len(self._open_ones) - len(self._under_way)

    def _room(self, ahead: bool) -> bool:
        if ahead and self._free_ahead() <= 0:
            self._full = True
            return False
        if len(self._open_ones) + len(self._under_way) < self._open_limit:
            return True
        if self._idle:
            self._close_oldest()
            return True
        self._full = True
        return False

    def _close_oldest(self) -> None:
        connection = next(iter(self._idle))
        self._strike(connection)
        connection.abort()

    def _strike(self, connection: Connection) -> None:
        """Off the books."""
        place = _place_of(connection)
        if self._idle.pop(connection, None) is not None:
            del place.idle[connection]
        if connection in self._open_ones:
            self._open_ones.remove(connection)
            place.connections -= 1
        self._forget(place)

    def _go_on(self) -> None:
        """There may be room again."""
        if self._full:
            self._full = False
            for lane in self._lanes.values():
                lane.go()

    def _begin(self, opening: Opening) -> None:
        self._under_way.add(opening)
        opening.task = self._loop.create_task(self._open(opening))
        # a callback, for a task that is cancelled before its first step takes none
        opening.task.add_done_callback(lambda _: self._over(opening))

    def _over(self, opening: Opening) -> None:
        self._under_way.discard(opening)
        opening.end()
        self._lanes[opening.place.key.scheme].free(opening)
        self._go_on()  # a slow one has left its lane before, and the other lane waits for its room too

    async def _open(self, opening: Opening) -> None:
        place = opening.place
        key = place.key
        connection = self.connection(self._loop, self, place)
        tls = key.scheme == "https"
        limit = asyncio.timeout(OPENING_SECONDS)
        try:
            async with limit:
                await self._loop.create_connection(
                    lambda: connection,
                    key.address,
                    key.port,
                    ssl=self._context if tls else None,
                    server_hostname=key.host.removesuffix(".") if tls else None,
                )
        except Exception as error:
            connection.abort()
            self._failed(opening, None if limit.expired() else error)
        except BaseException:
            connection.abort()
            raise
        else:
            self._opened(opening, connection)

    def _opened(self, opening: Opening, connection: Connection) -> None:
        place = opening.place
        if not connection.open:
            self._failed(opening, ConnectionResetError("closed before the request was sent"))
            return
        self._under_way.discard(opening)
        self._open_ones.add(connection)
        place.connections += 1
        place.openings.pop(opening, None)
        if self._give(place, connection):
            return
        if place.waiters:
            connection.abort()  # whoever it was opened for has just been cancelled: that leaves no socket open
        else:
            self.release(connection)

    def _failed(self, opening: Opening, error: Exception | None) -> None:
        """One waiter hears why, if there are more than openings now; none where the opening has only taken too long."""
        place = opening.place
        place.openings.pop(opening, None)
        opening.end(failed=True)
        if error is None:
            self._cover(place)
        while error is not None and len(place.waiters) > len(place.openings):
            _refuse(place, error)
        self._forget(place)

    def _take_back(self, opening: Opening) -> bool:
        """Drops an opening that is not yet under way."""
        if not self._lanes[opening.place.key.scheme].remove(opening):
            return False
        del opening.place.openings[opening]
        opening.end()
        return True

    # --- waiters ------------------------------------------------------------------------------------------------------

    def _give(self, place: Place, connection: Connection) -> bool:
        """To the waiter that came first and may have it."""
        for waiter, only_fresh in place.waiters.items():
            if not (connection.reused and only_fresh) and not waiter.done():
                del place.waiters[waiter]
                waiter.set_result(connection)
                return True
        return False

    def _leave(self, place: Place, waiter: _Waiter) -> None:
        """A waiter goes without: nothing is opened for it any more, and what it was given goes to another or is closed,
        for a call that is cancelled leaves no socket open."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            if not self._give(place, waiter.result()):
                waiter.result().abort()
            return
        place.waiters.pop(waiter, None)
        while len(place.openings) > len(place.waiters):
            opening = next(reversed(place.openings))
            if not self._take_back(opening):
                del place.openings[opening]
                assert opening.task is not None
                opening.task.cancel()
        self._forget(place)

    def _forget(self, place: Place) -> None:
        if place.unused and self._places.get(place.key) is place:
            del self._places[place.key]


def _place_of(connection: Connection) -> Place:
    place = connection.place
    assert isinstance(place, Place)
    return place


def _refuse(place: Place, error: Exception) -> None:
    """Tells the waiter that came first."""
    waiter, _ = place.waiters.popitem(last=False)
    if not waiter.done():
        waiter.set_exception(error)


def _give_up(waiter: _Waiter) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
