"""Lean transports with one guard of their own taken out each, to show that the suite sees it."""

import asyncio
import random
import ssl
from dataclasses import replace

from tocsin.common.clock import Clock
from tocsin.common.store.rows import Outcome
from tocsin.common.target import Target
from tocsin.executor.egress import EgressGuard
from tocsin.executor.transport.lean import LeanTransport, _Call
from tocsin.executor.transport.lean_pool import PeerKey
from tocsin.executor.transport.lean_protocol import Connection
from tocsin.executor.transport.port import Failure, Gate, OutgoingRequest, Response


class _OnConnections(LeanTransport):
    """With connections of another class."""

    connection: type[Connection] = Connection

    def __init__(
        self, guard: EgressGuard, clock: Clock, rng: random.Random, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(guard, clock, rng, ssl_context)
        self._pool.connection = self.connection

    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        return await super().call(request._replace(deadline=min(request.deadline, 0.5)), gate)  # nobody waits for long


class Resends(LeanTransport):
    """Sends again, in the same call, where a connection out of the pool was dead after all."""

    async def _exchange(self, call: _Call, connection: Connection) -> Response | Failure:
        result = await super()._exchange(call, connection)
        if isinstance(result, Failure) and result.reused:
            call.request = call.request._replace(fresh=True)
            (address,) = await self._guard.addresses(call.request.target)
            return await self._try(call, address, None)
        return result


class CallsEveryEndStale(LeanTransport):
    """Does not look whether the connection was new, or whether something came."""

    async def _exchange(self, call: _Call, connection: Connection) -> Response | Failure:
        result = await super()._exchange(call, connection)
        if isinstance(result, Failure) and result.outcome is Outcome.CONNECTION_LOST:
            return replace(result, reused=True)
        return result


class IgnoresFresh(LeanTransport):
    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        return await super().call(request._replace(fresh=False), gate)


class HasNoDeadline(LeanTransport):
    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        return await super().call(request._replace(deadline=1e6), gate)


class NeverChecks(LeanTransport):
    def _check(self, call: _Call) -> None: ...


class WritesAStepLate(NeverChecks):
    async def _exchange(self, call: _Call, connection: Connection) -> Response | Failure:
        call.gate.check()
        await asyncio.sleep(0)
        return await super()._exchange(call, connection)


class TrustsThePool(LeanTransport):
    def _usable(self, connection: Connection) -> bool:
        return connection.open


class SharesConnections(LeanTransport):
    """One pool for all names of an address."""

    def _key(self, target: Target, address: str) -> PeerKey:
        return super()._key(target, address)._replace(host=address)


class _FirstAnswer(EgressGuard):
    """Asks for a name once."""

    def __init__(self, guard: EgressGuard) -> None:
        super().__init__(guard._policy, guard._resolver)
        self._known: dict[Target, tuple[str, ...]] = {}

    async def addresses(self, target: Target) -> tuple[str, ...]:
        if target not in self._known:
            self._known[target] = await super().addresses(target)
        return self._known[target]


class KeepsToOldConnections(LeanTransport):
    """Resolves only when it has no connection to the name."""

    def __init__(
        self, guard: EgressGuard, clock: Clock, rng: random.Random, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(_FirstAnswer(guard), clock, rng, ssl_context)


class ConnectsToTheName(LeanTransport):
    """Checks the addresses of a name, and resolves it again for the connection."""

    async def _try(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        again = await self._guard._resolver.resolve(call.request.target.host)
        return await super()._try(call, again[0], connect)


class CallsTlsAConnection(LeanTransport):
    """Tells no failure of TLS from one of TCP."""

    async def _try(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        result = await super()._try(call, address, connect)
        if isinstance(result, Failure) and result.outcome is Outcome.TLS_ERROR:
            return replace(result, outcome=Outcome.CONNECT_ERROR)
        return result


class TriesOneAddress(LeanTransport):
    def _pick(self, addresses: tuple[str, ...]) -> tuple[str, ...]:
        return addresses[-1:]


class _KeepsWhatComes(Connection):
    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        if self._answer is None and self._parser is not None:
            self.status, self._whole = None, False
            self._fields, self._pieces = [], []
            self._parser.feed_data(data)
        else:
            super().data_received(data)

    def send(self, wire: bytes, method: str, started: float) -> "asyncio.Future[Response | Failure]":
        pieces, whole = getattr(self, "_pieces", []), getattr(self, "_whole", False)
        answer = super().send(wire, method, started)
        if whole and pieces:
            self.status, self._fields, self._pieces, self._whole = 200, [], pieces, True
            self._settle()
        return answer


class TakesAnAnswerToNobody(_OnConnections):
    connection = _KeepsWhatComes


class _Polite(Connection):
    __slots__ = ()

    def abort(self) -> None:
        self._answer = None
        if self._transport is not None:
            self._transport.close()


class ClosesPolitely(_OnConnections):
    connection = _Polite


class _Uncapped(Connection):
    __slots__ = ()
    max_body_bytes = 1_000_000_000


class ForgetsTheCap(_OnConnections):
    connection = _Uncapped


class _Methodless(Connection):
    __slots__ = ()

    def send(self, wire: bytes, method: str, started: float) -> "asyncio.Future[Response | Failure]":
        return super().send(wire, "GET", started)


class ForgetsTheMethod(_OnConnections):
    connection = _Methodless


class _Hasty(Connection):
    __slots__ = ()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.status is None:
            assert self._parser is not None
            self.status, self._whole = self._parser.get_status_code(), True


class TakesInterimAnswers(_OnConnections):
    connection = _Hasty


class _Content(Connection):
    __slots__ = ()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and self.status is not None:
            self._settle()
        super().connection_lost(exc)


class TakesWhatCame(_OnConnections):
    """Takes the part of a body that came for the whole."""

    connection = _Content


class _Endless(Connection):
    __slots__ = ()

    def _break(self, error: str) -> None:
        """Leaves it to the deadline."""


class WaitsForMore(_OnConnections):
    """Ends no call whose answer cannot be parsed, or is too long."""

    connection = _Endless


class _Lasting(Connection):
    __slots__ = ()

    def abort(self) -> None:
        self._answer = None


class ForgetsItsSockets(_OnConnections):
    """Frees nothing where a call is cancelled or its time is over."""

    connection = _Lasting
