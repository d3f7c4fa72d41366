"""The fast transport: its own connections (`lean_pool`), `httptools` for the parsing of answers, and little else.

On a warm connection a call is one request written, one future, and one step of its task when the answer is there: no
timer, no task and no lock of its own.
"""

import asyncio
import random
import ssl

from tocsin.common.clock import Clock
from tocsin.common.store.rows import Outcome
from tocsin.common.target import Target
from tocsin.executor.egress import EgressGuard, EgressRefusedError
from tocsin.executor.resolver import ResolveError
from tocsin.executor.transport.connecting import default_ssl_context, in_order_of_trial
from tocsin.executor.transport.lean_deadlines import Deadlines
from tocsin.executor.transport.lean_failures import refused
from tocsin.executor.transport.lean_pool import PeerKey, Pool
from tocsin.executor.transport.lean_protocol import Connection
from tocsin.executor.transport.lean_warming import Warming
from tocsin.executor.transport.port import Failure, Gate, OutgoingRequest, Response
from tocsin.executor.transport.wire import serialize

OPEN_LIMIT = 10_000
"""Connections at once where nobody says how many files the process may open."""


class _Call:
    """What is known of one call while it runs."""

    __slots__ = ("answer", "ends", "gate", "phase", "request", "started", "status")

    def __init__(self, request: OutgoingRequest, gate: Gate, ends: float) -> None:
        self.request = request
        self.gate = gate
        self.ends = ends
        self.phase = "resolving the name"
        self.answer: asyncio.Future[Response | Failure] | None = None
        self.started: float | None = None
        self.status: int | None = None


class LeanTransport:
    """See `tocsin.executor.transport.port.Transport`. Made inside a running loop.

    `rng` spreads calls over a name's addresses. `ssl_context` replaces the default one (the system's
    certificate authorities, TLS 1.2 and later, certificates and names verified). `open_limit`: connections at once.
    """

    def __init__(
        self,
        guard: EgressGuard,
        clock: Clock,
        rng: random.Random,
        ssl_context: ssl.SSLContext | None = None,
        open_limit: int = OPEN_LIMIT,
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._rng = rng
        self._deadlines = Deadlines()
        self._pool = Pool(clock, ssl_context or default_ssl_context(), open_limit)
        self._warming = Warming(guard, self._pool, clock, rng)

    def warm(self, target: Target, count: int) -> None:
        """See `tocsin.executor.transport.port.Warmer`."""
        self._warming.want(target, count)

    async def close(self) -> None:
        await self._warming.close()
        await self._pool.close()
        self._deadlines.close()
        await self._guard.close()

    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        task = asyncio.current_task()
        assert task is not None
        call = _Call(request, gate, self._clock.monotonic() + request.deadline)
        deadline = self._deadlines.begin(task, request.deadline)
        try:
            result = await self._make(call)
        except asyncio.CancelledError:
            if self._deadlines.end(deadline):
                if call.answer is not None and call.answer.done() and not call.answer.cancelled():
                    return call.answer.result()  # it came first: the loop was late for both
                error = f"not done within {request.deadline:g} s: {call.phase}"
                return Failure(Outcome.TIMEOUT, error, call.started, call.status)
            raise
        except BaseException:
            self._deadlines.end(deadline)
            raise
        self._deadlines.end(deadline)
        return result

    async def _make(self, call: _Call) -> Response | Failure:
        target = call.request.target
        try:
            addresses = await self._guard.addresses(target)
        except EgressRefusedError as error:
            return Failure(Outcome.EGRESS_REFUSED, str(error))
        except ResolveError as error:
            return Failure(Outcome.DNS_ERROR, str(error))
        call.phase = "connecting"
        if len(addresses) == 1:
            return await self._try(call, addresses[0], None)
        addresses = self._pick(addresses)
        left = len(addresses)
        for address in addresses[:-1]:
            result = await self._try(call, address, max(0.001, (call.ends - self._clock.monotonic()) / left))
            if not (isinstance(result, Failure) and result.outcome is Outcome.CONNECT_ERROR):
                return result
            left -= 1
        return await self._try(call, addresses[-1], None)

    def _pick(self, addresses: tuple[str, ...]) -> tuple[str, ...]:
        return in_order_of_trial(addresses, self._rng)

    async def _try(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        """One exchange with one address; `connect` limits the time for a connection, in seconds."""
        target, fresh = call.request.target, call.request.fresh
        key = self._key(target, address)
        while True:
            connection = None if fresh else self._pool.take(key)
            if connection is None:
                try:
                    connection = await self._pool.wait(key, limit=connect, fresh=fresh)
                except (OSError, ValueError) as error:
                    return refused(error, address, target)
            try:
                await call.gate.ready()
            except BaseException:
                connection.abort()
                raise
            if self._usable(connection):
                return await self._exchange(call, connection)
            connection.abort()  # one less in the pool each time
            if not connection.reused:
                return refused(ConnectionError("closed before the request was sent"), address, target)

    async def _exchange(self, call: _Call, connection: Connection) -> Response | Failure:
        """Writes the request, once, in the step in which the gate is checked, and waits for the answer."""
        answer: asyncio.Future[Response | Failure] | None = None
        try:
            wire = serialize(call.request)
            self._check(call)
            call.started = self._clock.monotonic()
            answer = call.answer = connection.send(wire, call.request.method, call.started)
            call.phase = "waiting for the answer"
            return await answer
        except BaseException:
            if answer is None or answer.cancelled():  # else the connection is no longer this call's
                call.status = connection.status if answer else None
                if call.status is not None:
                    call.phase = "reading the answer"
                connection.abort()
            raise

    def _check(self, call: _Call) -> None:
        call.gate.check()

    def _usable(self, connection: Connection) -> bool:
        return connection.open and (connection.silent or not connection.reused)

    def _key(self, target: Target, address: str) -> PeerKey:
        return PeerKey(address, target.port, target.host, target.scheme)
