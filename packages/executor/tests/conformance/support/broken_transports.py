"""Transports with one guard taken out each, to show that the suite sees it."""

import asyncio
import random
import ssl
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from yarl import URL

from tocsin.common.clock import Clock
from tocsin.common.store.rows import Outcome
from tocsin.common.target import Target
from tocsin.executor.egress import EgressGuard, EgressPolicy
from tocsin.executor.transport.aiohttp_transport import AiohttpTransport, _Call
from tocsin.executor.transport.port import Failure, Gate, OutgoingRequest, Response


class WritesByTheLibrary(AiohttpTransport):
    """Calls through the library's session: the gate is checked, and then the library writes in its own way."""

    redirects = False

    def __init__(
        self, guard: EgressGuard, clock: Clock, rng: random.Random, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(guard, clock, rng, ssl_context)
        self.session = aiohttp.ClientSession(
            connector=self._connector, **{"cookie_jar": aiohttp.DummyCookieJar(), **self.options()}
        )

    def options(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None:
        await self.session.close()
        await super().close()

    async def _exchange(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        request = call.request
        await call.gate.ready()
        call.gate.check()
        call.started = self._clock.monotonic()
        async with self.session.request(
            request.method,
            URL(f"{request.target.scheme}://{address}:{request.target.port}{request.target.path_and_query}"),
            headers=[*request.headers, ("Host", request.target.authority)],
            data=request.body or None,
            allow_redirects=self.redirects,
            server_hostname=self._name(request.target),
        ) as answer:
            body = await answer.read()
            return Response(answer.status, tuple(answer.headers.items()), body, False, call.started)


class WaitsForTheParser(AiohttpTransport):
    """Leaves it to the library to end a body that is badly framed."""

    async def _body(self, protocol: ResponseHandler, content: aiohttp.StreamReader) -> tuple[bytes, bool]:
        return await self._read(content)


class FollowsRedirects(WritesByTheLibrary):
    redirects = True


class Resends(WritesByTheLibrary):
    """The session sends an idempotent method again by itself."""


class KeepsCookies(WritesByTheLibrary):
    def options(self) -> dict[str, Any]:
        return {"cookie_jar": aiohttp.CookieJar(unsafe=True)}


class UsesTheEnvironment(WritesByTheLibrary):
    def options(self) -> dict[str, Any]:
        return {"trust_env": True}


class HasNoDeadline(AiohttpTransport):
    def _limit(self, request: OutgoingRequest) -> float | None:
        return None


class ForgetsTheCap(AiohttpTransport):
    max_body_bytes = 1_000_000_000


class Decompresses(AiohttpTransport):
    def _expect(self, protocol: ResponseHandler, method: str) -> None:
        protocol.set_response_params(skip_payload=method == "HEAD", read_until_eof=True, auto_decompress=True)


class TakesInterimAnswers(AiohttpTransport):
    """Takes the first head that comes for the answer's."""

    async def _answer(self, protocol: ResponseHandler) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
        return await protocol.read()


class ForgetsTheMethod(AiohttpTransport):
    """Waits for the body that an answer to HEAD only announces."""

    def _expect(self, protocol: ResponseHandler, method: str) -> None:
        super()._expect(protocol, "GET")


class NeverChecks(AiohttpTransport):
    def _check(self, call: _Call) -> None: ...


class ChecksFirst(NeverChecks):
    """Checks when the call begins, not when it is sent."""

    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        await gate.ready()
        gate.check()
        return await super().call(request, gate)


class _NoGate:
    async def ready(self) -> None: ...

    def check(self) -> None: ...


class WritesAStepLate(AiohttpTransport):
    async def _send(self, call: _Call, protocol: ResponseHandler) -> None:
        await call.gate.ready()
        call.gate.check()
        await asyncio.sleep(0)
        call.gate = _NoGate()
        await super()._send(call, protocol)


class TrustsThePool(AiohttpTransport):
    def _refuse_dead(self, protocol: ResponseHandler, transport: asyncio.Transport | None) -> None: ...


class _Polite(Connection):
    """A connection whose socket nobody finds."""

    @property
    def transport(self) -> None:
        return None


class ClosesPolitely(AiohttpTransport):
    """Leaves the end of a failed connection to the library, which waits for what is unsent."""

    async def _send(self, call: _Call, protocol: ResponseHandler) -> None:
        await super()._send(call, protocol)
        assert call.connection is not None
        call.connection.__class__ = _Polite


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
    def _open(self, context: ssl.SSLContext) -> aiohttp.TCPConnector:
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        return super()._open(blind)


class TakesOldTls(AiohttpTransport):
    def _open(self, context: ssl.SSLContext) -> aiohttp.TCPConnector:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
        context.set_ciphers("ALL:@SECLEVEL=0")
        return super()._open(context)


class CallsTlsAConnection(AiohttpTransport):
    """Tells no failure of TLS from one of TCP."""

    async def _try(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        result = await super()._try(call, address, connect)
        if isinstance(result, Failure) and result.outcome is Outcome.TLS_ERROR:
            return replace(result, outcome=Outcome.CONNECT_ERROR)
        return result


class WantsAFarewell(AiohttpTransport):
    """Takes a whole answer for a lost one where the connection ends after it."""

    async def _body(self, protocol: ResponseHandler, content: aiohttp.StreamReader) -> tuple[bytes, bool]:
        body = await super()._body(protocol, content)
        for _ in range(100):
            await asyncio.sleep(0)
        if protocol.transport is None or protocol.transport.is_closing():
            raise aiohttp.ClientPayloadError
        return body


class TakesWhatCame(AiohttpTransport):
    """Takes the part of a body that came for the whole."""

    async def _read(self, content: aiohttp.StreamReader) -> tuple[bytes, bool]:
        body = b""
        with suppress(aiohttp.ClientPayloadError):
            while not content.at_eof():
                body += await content.readany()
        return body, False


class TakesAnyEnd(AiohttpTransport):
    """Takes every end of a connection for the end of a body."""

    def _ended_well(self, protocol: ResponseHandler) -> bool:
        return True


class HearsNothing(AiohttpTransport):
    """Takes every end of a reused connection for one without a byte of an answer."""

    def _stale(self, call: _Call, error: Exception) -> bool:
        return call.reused


class PassesOverAllInterimAnswers(AiohttpTransport):
    max_interim_answers = 1_000_000_000


class CountsInterimAnswersShort(AiohttpTransport):
    max_interim_answers = 31


class AsksWithoutTheDot(AiohttpTransport):
    """Looks a fully qualified name up as a relative one."""

    async def _make(self, call: _Call, limit: asyncio.Timeout) -> Response | Failure:
        target = call.request.target
        call.request = call.request._replace(target=replace(target, host=target.host.rstrip(".")))
        return await super()._make(call, limit)


class LosesSlots(AiohttpTransport):
    """Has so many slots, and gets one back only from a call that ends by itself."""

    slots = 20

    async def _exchange(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        self._slots = getattr(self, "_slots", asyncio.Semaphore(self.slots))
        await self._slots.acquire()
        result = await super()._exchange(call, address, connect)
        self._slots.release()
        return result


class ForgetsSockets(AiohttpTransport):
    """Asks first whether somebody listens, and leaves that connection as it is."""

    async def _try(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        self._probes = getattr(self, "_probes", [])
        self._probes.append(await asyncio.open_connection(address, call.request.target.port))
        return await super()._try(call, address, connect)

    async def close(self) -> None:
        for _, writer in self._probes:
            writer.transport.abort()
        await super().close()


class LeavesCancelledCalls(AiohttpTransport):
    """Frees nothing where a call is cancelled."""

    async def _try(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        self._left = getattr(self, "_left", [])
        self._left.append(call)
        return await self._exchange(call, address, connect)
