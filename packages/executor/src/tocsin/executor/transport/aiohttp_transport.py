"""The reference transport: `aiohttp` for connections, TLS and the parsing of answers.

The library chooses nothing that matters here. Names are resolved and checked before it is asked, so
it is given addresses; its pool is keyed by (address, port, host name). Its session, which knows of
redirects, cookies, proxies and sending again, is left out: a call takes a connection from the
connector, writes one request on it, in one write and in the same step as the gate's check, and reads
one answer. That is also half of the session's time for a call.

Parts of `aiohttp` in use that its documentation does not promise, each held by the conformance suite:
`ResponseHandler`, which parses what a connection receives and keeps how it ended, what makes one for a connection,
and a request as what a connection is asked for.
"""

import asyncio
import random
import select
import ssl
from functools import lru_cache
from typing import ClassVar
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.hdrs import CONTENT_LENGTH
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD
from yarl import URL

from tocsin.common.clock import Clock
from tocsin.common.store.rows import Outcome
from tocsin.common.target import DEFAULT_PORTS, Target
from tocsin.executor.egress import EgressGuard, EgressRefusedError
from tocsin.executor.resolver import ResolveError
from tocsin.executor.transport.connecting import KEEPALIVE_SECONDS, default_ssl_context, in_order_of_trial, unsent
from tocsin.executor.transport.failures import lost, refused
from tocsin.executor.transport.port import (
    MAX_BODY_BYTES,
    MAX_INTERIM_ANSWERS,
    Failure,
    Gate,
    OutgoingRequest,
    Response,
)
from tocsin.executor.transport.wire import serialize


class _StaleConnectionError(Exception):
    """A pooled connection was found dead or spoiled before anything was written: take another."""


class _Call:
    """What is known of one call while it runs."""

    __slots__ = ("connection", "gate", "phase", "request", "reused", "started", "status", "unshared")

    def __init__(self, request: OutgoingRequest, gate: Gate) -> None:
        self.request = request
        self.gate = gate
        self.phase = "resolving the name"
        self.started: float | None = None
        self.status: int | None = None
        self.connection: Connection | None = None
        self.unshared = request.fresh  # the connection must not go back to the pool
        self.reused = False  # it comes out of the pool

    def release(self) -> None:
        """Gives the connection back to the pool, which closes it if it is not fit to be used again."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.release()

    def abort(self) -> None:
        """Frees the socket now: closing would first wait for unsent bytes, or for TLS's farewell."""
        connection, self.connection = self.connection, None
        if connection is not None:
            if connection.transport is not None:
                connection.transport.abort()
            connection.close()


class _Handler(ResponseHandler):
    """`heard`: something has come since that was set back."""

    heard = False

    def data_received(self, data: bytes) -> None:
        self.heard = True
        super().data_received(data)


class AiohttpTransport:
    """See `tocsin.executor.transport.port.Transport`. Made inside a running loop.

    `rng` spreads calls over a name's addresses. `ssl_context` replaces the default one (the system's
    certificate authorities, TLS 1.2 and later, certificates and names verified).
    """

    max_body_bytes: ClassVar[int] = MAX_BODY_BYTES
    max_interim_answers: ClassVar[int] = MAX_INTERIM_ANSWERS

    def __init__(
        self, guard: EgressGuard, clock: Clock, rng: random.Random, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._rng = rng
        self._polls: WeakKeyDictionary[ResponseHandler, select.poll] = WeakKeyDictionary()
        self._connector = self._open(ssl_context or default_ssl_context())
        self._peer = lru_cache(maxsize=8_192)(_peer)

    def _open(self, context: ssl.SSLContext) -> aiohttp.TCPConnector:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS, ssl=context)
        connector._factory = lambda: _Handler(asyncio.get_running_loop())  # type: ignore[assignment]
        return connector

    async def close(self) -> None:
        await self._connector.close()
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
        return in_order_of_trial(addresses, self._rng)

    async def _try(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        """One exchange with one address; `connect` limits the time for a connection, in seconds."""
        while True:
            try:
                return await self._exchange(call, address, connect)
            except _StaleConnectionError:
                call.abort()  # one less in the pool each time
            except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
                stale = self._stale(call, error)
                call.abort()
                if call.started is None:
                    return refused(error, address, call.request.target)
                return lost(error, call.started, call.status, reused=stale)
            except BaseException:
                call.abort()
                raise

    async def _exchange(self, call: _Call, address: str, connect: float | None) -> Response | Failure:
        target = call.request.target
        peer = self._peer(target.scheme, address, target.port, self._name(target), call.request.fresh)
        call.connection = await self._connector.connect(peer, [], _timeout(connect))
        protocol = call.connection.protocol
        assert protocol is not None
        self._expect(protocol, call.request.method)
        await self._send(call, protocol)
        assert call.started is not None
        head, content = await self._answer(protocol)
        call.status, call.phase = head.code, "reading the answer"
        body, truncated = await self._body(protocol, content)
        if not truncated and _ends_with_connection(head, content) and not self._ended_well(protocol):
            raise aiohttp.ClientPayloadError
        if truncated or call.unshared:
            call.abort()
        else:
            call.release()
        if head.code < 200:
            error = f"the endpoint answered {head.code}, which ends no request"
            return Failure(Outcome.PROTOCOL_ERROR, error, call.started, head.code)
        return Response(head.code, tuple(head.headers.items()), body, truncated, call.started)

    def _expect(self, protocol: ResponseHandler, method: str) -> None:
        """How the next answer is to be parsed; all sizes are the library's own defaults."""
        if isinstance(protocol, _Handler):
            protocol.heard = False
        protocol.set_response_params(skip_payload=method == "HEAD", read_until_eof=True, auto_decompress=False)

    async def _send(self, call: _Call, protocol: ResponseHandler) -> None:
        """Writes the request, once, in the step in which the gate was checked."""
        transport = protocol.transport
        await call.gate.ready()
        call.reused = protocol in self._polls
        self._refuse_dead(protocol, transport)
        assert transport is not None
        wire = serialize(call.request)
        self._check(call)
        call.started = self._clock.monotonic()
        transport.write(wire)
        call.phase = "waiting for the answer"
        if unsent(transport):
            call.unshared = True  # an answer may come before the rest is taken

    def _check(self, call: _Call) -> None:
        call.gate.check()

    def _refuse_dead(self, protocol: ResponseHandler, transport: asyncio.Transport | None) -> None:
        """A connection out of the pool must be silent: what can be read on it is its end, or an answer
        to nobody that would be taken for this call's."""
        poll = self._polls.get(protocol)
        if poll is None:
            if transport is None or transport.is_closing():
                raise aiohttp.ClientConnectionResetError("closed before the request was sent")
            poll = self._polls[protocol] = select.poll()
            poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
            if protocol.closed is not None:
                protocol.closed.add_done_callback(_seen)
        elif protocol.should_close or transport is None or transport.is_closing() or poll.poll(0):
            raise _StaleConnectionError

    async def _answer(self, protocol: ResponseHandler) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
        """The answer's head, and its body to come. Interim answers are passed over (RFC 9110, section 15.2)."""
        for _ in range(self.max_interim_answers + 1):
            head, content = await protocol.read()
            if not 100 <= head.code <= 199 or head.code == 101:
                return head, content
        raise HttpProcessingError(message=f"more than {self.max_interim_answers} interim answers")

    def _stale(self, call: _Call, error: Exception) -> bool:
        """Whether a connection out of the pool ended without a byte of an answer."""
        if not call.reused or call.connection is None:
            return False
        handler = call.connection.protocol
        ended = isinstance(error, OSError | aiohttp.ServerDisconnectedError)
        return ended and isinstance(handler, _Handler) and not handler.heard

    def _name(self, target: Target) -> str | None:
        """The name that a certificate must bear; without TLS too, it keeps the connections of names apart."""
        return None if target.is_ip else target.host

    async def _body(self, protocol: ResponseHandler, content: aiohttp.StreamReader) -> tuple[bytes, bool]:
        """A body that is not whole yet ends with its connection: a parser that finds the framing broken closes that,
        as does the connector when it is closed, but neither wakes who waits for more of the body."""

        def end(_: "asyncio.Future[None] | None") -> None:
            if not content.is_eof() and content.exception() is None:
                content.set_exception(aiohttp.ClientPayloadError())

        if content.is_eof():
            return await self._read(content)
        closed = protocol.closed
        if closed is None:
            end(None)
            return await self._read(content)
        closed.add_done_callback(end)
        try:
            return await self._read(content)
        finally:
            closed.remove_done_callback(end)

    async def _read(self, content: aiohttp.StreamReader) -> tuple[bytes, bool]:
        body = b""
        while not content.at_eof():
            chunk = await content.readany()
            body = body + chunk if body else chunk
            if len(body) > self.max_body_bytes:
                return body[: self.max_body_bytes], True
        return body, False

    def _ended_well(self, protocol: ResponseHandler) -> bool:
        """Whether the endpoint ended the connection, by FIN: not a reset, and not this side. The library takes any end
        of a connection for the end of such a body."""
        return isinstance(protocol.exception(), aiohttp.ServerDisconnectedError) and not self._connector.closed


def _ends_with_connection(head: RawResponseMessage, content: aiohttp.StreamReader) -> bool:
    """Whether only the connection's end says where the body ends."""
    return content is not EMPTY_PAYLOAD and not head.chunked and CONTENT_LENGTH not in head.headers


def _seen(closed: "asyncio.Future[None]") -> None:
    """A reset is told by the answer, that of an idle connection by nobody: it is not to be reported as forgotten."""
    if not closed.cancelled():
        closed.exception()


def _share(limit: asyncio.Timeout, parts: int) -> float | None:
    """An equal part of the time left, in seconds."""
    end = limit.when()
    return None if end is None else max(0.001, (end - asyncio.get_running_loop().time()) / parts)


def _timeout(connect: float | None) -> aiohttp.ClientTimeout:
    return _NO_LIMIT if connect is None else aiohttp.ClientTimeout(sock_connect=connect, ceil_threshold=1e9)


_NO_LIMIT = aiohttp.ClientTimeout()


class _Fresh(aiohttp.ClientRequest):
    """Finds nothing in the pool, for nothing is put there under its key: its connections are not shared."""

    @property
    def connection_key(self) -> ConnectionKey:
        return super().connection_key._replace(proxy_headers_hash=1)


def _peer(scheme: str, address: str, port: int, name: str | None, fresh: bool) -> aiohttp.ClientRequest:
    """What the connector is asked for: it reads nothing of a request but where it goes, and under which name."""
    host = f"[{address}]" if ":" in address else address
    default = "" if port == DEFAULT_PORTS[scheme] else f":{port}"
    url = URL(f"{scheme}://{host}{default}/", encoded=True)
    kind = _Fresh if fresh else aiohttp.ClientRequest
    return kind("GET", url, loop=asyncio.get_running_loop(), server_hostname=name)
