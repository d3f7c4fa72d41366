"""The reference transport: `aiohttp` for connections, TLS and the parsing of answers.

The library chooses nothing that matters here. Names are resolved and checked before it is asked, so
it is given addresses; its pool is keyed by (address, port, host name). The request is written by
`GatedRequest.send`, which `aiohttp` calls with the connection open: one write, in the same step as
the gate's check, instead of the library's own, which may come a step later.

Private parts of `aiohttp` in use, each held by the conformance suite: `_retry_connection`, and the
constructor of its response.
"""

import asyncio
import random
import select
import ssl
from functools import lru_cache
from typing import Any, ClassVar
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import StreamWriter
from yarl import URL

from tocsin.common.clock import Clock
from tocsin.common.store.rows import Outcome
from tocsin.common.target import DEFAULT_PORTS, Target
from tocsin.executor.egress import EgressGuard, EgressRefusedError
from tocsin.executor.resolver import ResolveError
from tocsin.executor.transport.failures import lost, refused
from tocsin.executor.transport.port import MAX_BODY_BYTES, Failure, Gate, OutgoingRequest, Response
from tocsin.executor.transport.wire import serialize

KEEPALIVE_SECONDS = 75.0
"""Longer than a minute, so that a task that runs every minute finds its connection open."""

MAX_ADDRESSES = 4
"""How many addresses of a name one call tries; each but the last gets its part of the time left."""


class _StaleConnectionError(Exception):
    """A pooled connection was found dead or spoiled before anything was written: take another."""


class _SecondSendError(Exception):
    """The library tried to send a call's request again."""


class _Call:
    """What is known of one call while it runs."""

    __slots__ = ("answer", "gate", "phase", "request", "started", "transport", "unshared")

    def __init__(self, request: OutgoingRequest, gate: Gate) -> None:
        self.request = request
        self.gate = gate
        self.phase = "resolving the name"
        self.started: float | None = None
        self.transport: asyncio.Transport | None = None
        self.unshared = False  # the connection will not go back to the pool
        self.answer: aiohttp.ClientResponse | None = None

    @property
    def status(self) -> int | None:
        return None if self.answer is None else self.answer.status

    async def attach(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """The middleware that hands this call to its `GatedRequest`."""
        assert isinstance(request, GatedRequest)
        request.call = self
        return await handler(request)

    def abort(self) -> None:
        """Frees the socket now: closing would first wait for unsent bytes, or for TLS's farewell.

        A connection that has gone back to the pool is no longer this call's to end.
        """
        released = self.answer is not None and self.answer.connection is None
        if self.transport is not None and (self.unshared or not released):
            self.transport.abort()
        self.transport = None
        if self.answer is not None:
            self.answer.close()


class GatedRequest(aiohttp.ClientRequest):
    """Writes one request, once, in the step in which the gate was checked."""

    call: _Call
    clock: ClassVar[Clock]
    used: ClassVar["WeakSet[ResponseHandler]"]

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        if self.call.started is not None:
            raise _SecondSendError
        protocol, transport = conn.protocol, conn.transport
        if protocol is None or transport is None:
            raise _StaleConnectionError
        self.call.transport = transport
        await self.call.gate.ready()
        self._refuse_dead(protocol, transport)
        wire = serialize(self.call.request)
        self._check()
        self.call.started = self.clock.monotonic()
        transport.write(wire)
        self.call.phase = "waiting for the answer"
        if transport.get_write_buffer_size():
            protocol.force_close()  # an answer may come before the rest is taken
            self.call.unshared = True
        return self.response_class(
            self.method,
            self.original_url,
            writer=None,
            continue100=None,
            timer=self._timer,
            request_info=self.request_info,
            traces=self._traces,
            loop=self.loop,
            session=self.session,
            stream_writer=StreamWriter(protocol, self.loop),
        )

    def _check(self) -> None:
        self.call.gate.check()

    def _refuse_dead(self, protocol: ResponseHandler, transport: asyncio.Transport) -> None:
        """A connection out of the pool must be silent: what can be read on it is its end, or an answer
        to nobody that would be taken for this call's."""
        if protocol not in self.used:
            self.used.add(protocol)
            if transport.is_closing():
                raise aiohttp.ClientConnectionResetError("closed before the request was sent")
        elif protocol.should_close or transport.is_closing() or _readable(transport):
            raise _StaleConnectionError


def _readable(transport: asyncio.Transport) -> bool:
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


class AiohttpTransport:
    """See `tocsin.executor.transport.port.Transport`. Made inside a running loop.

    `rng` spreads calls over a name's addresses. `ssl_context` replaces the default one (the system's
    certificate authorities, TLS 1.2 and later, certificates and names verified).
    """

    request_class: ClassVar[type[GatedRequest]] = GatedRequest
    follow_redirects: ClassVar[bool] = False
    max_body_bytes: ClassVar[int] = MAX_BODY_BYTES

    def __init__(
        self, guard: EgressGuard, clock: Clock, rng: random.Random, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._guard = guard
        self._rng = rng
        request_class = type(
            "BoundRequest", (self.request_class,), {"clock": clock, "used": WeakSet[ResponseHandler]()}
        )
        self._session = self._open(request_class, ssl_context or default_ssl_context())

    def _open(self, request_class: type[GatedRequest], context: ssl.SSLContext) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS, ssl=context)
        session = aiohttp.ClientSession(
            connector=connector,
            request_class=request_class,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )
        session._retry_connection = False  # PUT and GET would be sent again on a reused connection
        return session

    async def close(self) -> None:
        await self._session.close()
        await self._guard.close()

    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        call = _Call(request, gate)
        try:
            async with asyncio.timeout(self._limit(request)) as limit:
                return await self._make(call, limit)
        except TimeoutError:
            error = f"not done within {request.deadline:g} s: {call.phase}"
            return Failure(Outcome.TIMEOUT, error, call.started, call.status)

    def _limit(self, request: OutgoingRequest) -> float | None:
        return request.deadline

    async def _make(self, call: _Call, limit: asyncio.Timeout) -> Response | Failure:
        target = call.request.target
        try:
            addresses = self._pick(await self._guard.addresses(target))
        except EgressRefusedError as error:
            return Failure(Outcome.EGRESS_REFUSED, str(error))
        except ResolveError as error:
            return Failure(Outcome.DNS_ERROR, str(error))
        call.phase = "connecting"
        left = len(addresses)
        for address in addresses[:-1]:
            result = await self._try(call, address, _share(limit, left))
            if not (isinstance(result, Failure) and result.outcome is Outcome.CONNECT_ERROR):
                return result
            left -= 1
        return await self._try(call, addresses[-1], None)

    def _pick(self, addresses: tuple[str, ...]) -> tuple[str, ...]:
        """Some of a name's addresses, in order of trial: IPv4 first, each family from a random one on."""
        if len(addresses) == 1:
            return addresses
        picked: list[str] = []
        for family in (
            [address for address in addresses if ":" not in address],
            [address for address in addresses if ":" in address],
        ):
            first = self._rng.randrange(len(family)) if family else 0
            picked += family[first:] + family[:first]
        return tuple(picked[:MAX_ADDRESSES])

    async def _try(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        """One exchange with one address; `connect` limits the time for a connection, in seconds."""
        while True:
            try:
                return await self._exchange(call, address, connect)
            except _StaleConnectionError:
                continue  # one less in the pool each time
            except (aiohttp.ClientError, OSError, _SecondSendError) as error:
                call.abort()
                if call.started is None:
                    return refused(error, address, call.request.target)
                return lost(error, call.started, call.status)
            except BaseException:
                call.abort()
                raise

    async def _exchange(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        target = call.request.target
        answer = await self._session.request(
            call.request.method,
            self._url(target, address),
            server_hostname=self._name(target),
            allow_redirects=self.follow_redirects,
            timeout=_timeout(connect),
            middlewares=(call.attach,),
        )
        call.answer, call.phase = answer, "reading the answer"
        body, truncated = await self._read(answer.content)
        if truncated or call.unshared:
            call.abort()
        assert call.started is not None
        if answer.status < 200:
            error = f"the endpoint answered {answer.status}, which ends no request"
            return Failure(Outcome.PROTOCOL_ERROR, error, call.started, answer.status)
        return Response(answer.status, tuple(answer.headers.items()), body, truncated, call.started)

    def _name(self, target: Target) -> str | None:
        """The name that a certificate must bear; without TLS too, it keeps the connections of names apart."""
        return None if target.is_ip else target.host

    def _url(self, target: Target, address: str) -> URL:
        return _pool_url(target.scheme, address, target.port)

    async def _read(self, content: aiohttp.StreamReader) -> tuple[bytes, bool]:
        body = b""
        while len(body) <= self.max_body_bytes:
            chunk = await content.readany()
            if not chunk:
                return body, False
            body = body + chunk if body else chunk
        return body[: self.max_body_bytes], True


def default_ssl_context() -> ssl.SSLContext:
    """Certificates and names verified against the system's authorities; HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _share(limit: asyncio.Timeout, parts: int) -> float | None:
    """An equal part of the time left, in seconds."""
    end = limit.when()
    return None if end is None else max(0.001, (end - asyncio.get_running_loop().time()) / parts)


def _timeout(connect: float | None) -> aiohttp.ClientTimeout:
    return _NO_LIMIT if connect is None else aiohttp.ClientTimeout(sock_connect=connect, ceil_threshold=1e9)


_NO_LIMIT = aiohttp.ClientTimeout()


@lru_cache(maxsize=8_192)
def _pool_url(scheme: str, address: str, port: int) -> URL:
    host: Any = f"[{address}]" if ":" in address else address
    default = "" if port == DEFAULT_PORTS[scheme] else f":{port}"
    return URL(f"{scheme}://{host}{default}/", encoded=True)
