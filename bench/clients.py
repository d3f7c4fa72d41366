"""The transports that are compared: the product's own, as shipped, and a Rust client behind the same port.

pyreqwest is reqwest (hyper, rustls) for asyncio: it opens, chooses and writes to connections in a thread of its own, so
the gate's last check cannot be in the step of the first byte, and what goes out is not ours to the letter. Which
promises of the port that breaks, `bench.conformance` finds out.
"""

import asyncio
import random
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import RequestError
from pyreqwest.request import StreamRequest

from tocsin.common.clock import Clock
from tocsin.common.settings import Settings
from tocsin.common.store.rows import Outcome
from tocsin.common.target import Target
from tocsin.executor.egress import EgressGuard, EgressRefusedError
from tocsin.executor.resolver import ResolveError
from tocsin.executor.transport.aiohttp_transport import AiohttpTransport
from tocsin.executor.transport.connecting import KEEPALIVE_SECONDS, default_ssl_context
from tocsin.executor.transport.lean import LeanTransport
from tocsin.executor.transport.port import MAX_BODY_BYTES, Failure, Gate, OutgoingRequest, Response, Transport
from tocsin.executor.transport.texts import clean

Factory = Callable[[EgressGuard, Clock, random.Random, ssl.SSLContext | None], Transport]


@dataclass(slots=True)
class _Sent:
    """What is known of one call while it runs."""

    at: float | None = None
    status: int | None = None


class PyreqwestTransport:
    """See `tocsin.executor.transport.port.Transport`; what it cannot keep is told above.

    A client per host name and address: only so can a connection be held to the address that was checked, under the
    name that the certificate bears.
    """

    def __init__(
        self, guard: EgressGuard, clock: Clock, rng: random.Random, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._rng = rng
        self._roots = (ssl_context or default_ssl_context()).get_ca_certs(binary_form=True)
        self._clients: dict[tuple[str, str, int], Client] = {}

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        await self._guard.close()

    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        sent = _Sent()
        try:
            async with asyncio.timeout(request.deadline):
                return await self._make(request, gate, sent)
        except TimeoutError:
            return Failure(Outcome.TIMEOUT, f"not done within {request.deadline:g} s", sent.at, sent.status)

    async def _make(self, request: OutgoingRequest, gate: Gate, sent: _Sent) -> Response | Failure:
        try:
            addresses = await self._guard.addresses(request.target)
        except EgressRefusedError as error:
            return Failure(Outcome.EGRESS_REFUSED, str(error))
        except ResolveError as error:
            return Failure(Outcome.DNS_ERROR, str(error))
        await gate.ready()
        for address in addresses[:-1]:
            result = await self._try(request, address, gate, sent)
            if not (isinstance(result, Failure) and result.outcome is Outcome.CONNECT_ERROR):
                return result
        return await self._try(request, addresses[-1], gate, sent)

    async def _try(self, request: OutgoingRequest, address: str, gate: Gate, sent: _Sent) -> Response | Failure:
        built = self._build(request, address)
        gate.check()
        sent.at, sent.status = self._clock.monotonic(), None
        try:
            return await _exchange(built, sent)
        except RequestError as error:
            return _failure(error, sent)

    def _build(self, request: OutgoingRequest, address: str) -> StreamRequest:
        target = request.target
        url = f"{target.scheme}://{target.authority}{target.path_and_query}"
        builder = self._client(target, address).request(request.method, url).headers(list(request.headers))
        return builder.body_bytes(request.body).build_streamed()

    def _client(self, target: Target, address: str) -> Client:
        key = (target.host, address, target.port)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = self._open(target, address)
        return client

    def _open(self, target: Target, address: str) -> Client:
        builder = ClientBuilder().http1_only().no_proxy().follow_redirects(False).referer(False)
        builder = builder.gzip(False).brotli(False).zstd(False).deflate(False)
        builder = builder.pool_idle_timeout(timedelta(seconds=KEEPALIVE_SECONDS))
        if not target.is_ip:
            builder = builder.resolve(target.host, address, target.port)
        for root in self._roots if target.scheme == "https" else ():
            builder = builder.add_root_certificate_der(root)
        return builder.build()


async def _exchange(request: StreamRequest, sent: _Sent) -> Response | Failure:
    assert sent.at is not None
    async with request as answer:
        sent.status = answer.status
        if answer.status < 200:
            error = f"the endpoint answered {answer.status}, which ends no request"
            return Failure(Outcome.PROTOCOL_ERROR, error, sent.at, answer.status)
        headers = tuple((str(name), str(value)) for name, value in answer.headers.items())
        body = b""
        while len(body) <= MAX_BODY_BYTES and (chunk := await answer.body_reader.read_chunk()) is not None:
            body += bytes(chunk)
        return Response(answer.status, headers, body[:MAX_BODY_BYTES], len(body) > MAX_BODY_BYTES, sent.at)


def _failure(error: RequestError, sent: _Sent) -> Failure:
    """The library tells by its texts alone whether a connection failed to open or was lost."""
    causes = [cause["message"] for cause in error.details.get("causes") or []]
    text = clean("; ".join([error.message, *causes]))
    if "client error (Connect)" in text:
        is_tls = any(word in text.lower() for word in ("certificate", "tls", "handshake", "corrupt message"))
        return Failure(Outcome.TLS_ERROR if is_tls else Outcome.CONNECT_ERROR, text)
    is_broken = any(word in text for word in ("pars", "invalid", "too large"))
    outcome = Outcome.PROTOCOL_ERROR if is_broken else Outcome.CONNECTION_LOST
    return Failure(outcome, text, sent.at, sent.status)


SHIPPED: Mapping[str, Factory] = {"aiohttp": AiohttpTransport, "lean": LeanTransport}
"""Those of the product, by their names in its setting."""

DEFAULT: str = Settings.model_fields["transport"].default

CLIENTS: Mapping[str, Factory] = {**SHIPPED, "pyreqwest": PyreqwestTransport}
