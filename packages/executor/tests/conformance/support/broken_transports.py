"""Transports with one guard taken out each, to show that the suite sees it."""

import asyncio
import random
import ssl

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from tocsin.common.clock import Clock
from tocsin.common.target import Target
from tocsin.executor.egress import EgressGuard, EgressPolicy
from tocsin.executor.transport.aiohttp_transport import AiohttpTransport, GatedRequest, _Call
from tocsin.executor.transport.port import Failure, Gate, OutgoingRequest, Response


class _SendsAgain(GatedRequest):
    """Takes every send of the library for the first."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        self.call.started = None
        return await super().send(conn)


class FollowsRedirects(AiohttpTransport):
    request_class = _SendsAgain
    follow_redirects = True


class Resends(AiohttpTransport):
    request_class = _SendsAgain

    def _open(self, request_class: type[GatedRequest], context: ssl.SSLContext) -> aiohttp.ClientSession:
        session = super()._open(request_class, context)
        session._retry_connection = True
        return session


class HasNoDeadline(AiohttpTransport):
    def _limit(self, request: OutgoingRequest) -> float | None:
        return None


class ForgetsTheCap(AiohttpTransport):
    max_body_bytes = 1_000_000_000


class Decompresses(AiohttpTransport):
    def _open(self, request_class: type[GatedRequest], context: ssl.SSLContext) -> aiohttp.ClientSession:
        session = super()._open(request_class, context)
        session._auto_decompress = True
        return session


class _WritesByTheLibrary(GatedRequest):
    """The gate is checked, and then the library writes in its own way."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        await self.call.gate.ready()
        self.call.gate.check()
        self.call.started = self.clock.monotonic()
        for name, value in self.call.request.headers:
            self.headers.add(name, value)
        return await aiohttp.ClientRequest.send(self, conn)


class WritesByTheLibrary(AiohttpTransport):
    request_class = _WritesByTheLibrary


class KeepsCookies(WritesByTheLibrary):
    def _open(self, request_class: type[GatedRequest], context: ssl.SSLContext) -> aiohttp.ClientSession:
        session = super()._open(request_class, context)
        session._cookie_jar = aiohttp.CookieJar(unsafe=True)
        return session


class _Unchecked(GatedRequest):
    def _check(self) -> None: ...


class NeverChecks(AiohttpTransport):
    request_class = _Unchecked


class ChecksFirst(AiohttpTransport):
    """Checks when the call begins, not when it is sent."""

    request_class = _Unchecked

    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        await gate.ready()
        gate.check()
        return await super().call(request, gate)


class _AStepLate(GatedRequest):
    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        await self.call.gate.ready()
        self.call.gate.check()
        await asyncio.sleep(0)
        self.call.gate = _NoGate()
        return await super().send(conn)


class _NoGate:
    async def ready(self) -> None: ...

    def check(self) -> None: ...


class WritesAStepLate(AiohttpTransport):
    request_class = _AStepLate


class _TrustsThePool(GatedRequest):
    def _refuse_dead(self, protocol: ResponseHandler, transport: asyncio.Transport) -> None: ...


class TrustsThePool(AiohttpTransport):
    request_class = _TrustsThePool


class _ForgetsItsSocket(GatedRequest):
    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        response = await super().send(conn)
        self.call.transport = None
        return response


class ClosesPolitely(AiohttpTransport):
    """Leaves the end of a failed connection to the library, which waits for what is unsent."""

    request_class = _ForgetsItsSocket


class AllowsEverything(AiohttpTransport):
    def __init__(
        self, guard: EgressGuard, clock: Clock, rng: random.Random, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        guard._policy = EgressPolicy.parse("0.0.0.0/0 ::/0")
        super().__init__(guard, clock, rng, ssl_context)


class ResolvesTwice(AiohttpTransport):
    """Checks the addresses of a name and then connects to the name."""

    async def _try(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        again = await self._guard._resolver.resolve(call.request.target.host)
        return await super()._try(call, again[0], connect)


class KeepsToOldConnections(AiohttpTransport):
    """Resolves only when it has no connection to the name."""

    _known: dict[Target, tuple[str, ...]]

    async def _make(self, call: _Call, limit: asyncio.Timeout) -> Response | Failure:
        self._known = getattr(self, "_known", {})
        target = call.request.target
        if target not in self._known:
            self._known[target] = await self._guard.addresses(target)
        return await self._try(call, self._known[target][0], None)


class SharesConnections(AiohttpTransport):
    """One pool for all names of an address."""

    def _name(self, target: Target) -> str | None:
        return None


class TriesOneAddress(AiohttpTransport):
    def _pick(self, addresses: tuple[str, ...]) -> tuple[str, ...]:
        return addresses[-1:]


class BelievesEveryCertificate(AiohttpTransport):
    def _open(self, request_class: type[GatedRequest], context: ssl.SSLContext) -> aiohttp.ClientSession:
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        return super()._open(request_class, blind)


class UsesTheEnvironment(AiohttpTransport):
    def _open(self, request_class: type[GatedRequest], context: ssl.SSLContext) -> aiohttp.ClientSession:
        session = super()._open(request_class, context)
        session._trust_env = True
        return session
