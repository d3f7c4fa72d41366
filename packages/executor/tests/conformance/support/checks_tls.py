"""Checks of B61: certificates are verified, faults are named, nothing is left open."""

import asyncio
import ssl
import warnings
from datetime import UTC, datetime

import trustme

from endpoints import (
    DEADLINE,
    OK,
    Line,
    Names,
    TransportFactory,
    always,
    answering,
    calling,
    listening,
    outgoing,
    sockets,
)
from tocsin.common.store.rows import Outcome

_PAST = datetime(2001, 1, 1, tzinfo=UTC)
_NAMES: dict[str, list[tuple[str, ...]]] = {"api_example": [("127.0.0.1",)]}


def _server(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def _client(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def b61_a_good_certificate_is_taken_and_the_name_is_kept(make: TransportFactory) -> None:
    authority = trustme.CA()
    server = _server(authority.issue_cert("api.example"))
    asked: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: asked.append(name)
    names = Names(**_NAMES)
    names.names["api.example."] = [("127.0.0.1",)]
    async with (
        answering(always(OK), server) as endpoint,
        calling(make, names=names, context=_client(authority)) as caller,
    ):
        for host in ("api.example", "api.example."):
            await caller.answer(outgoing(endpoint.url(host=host, scheme="https")))
            assert endpoint.seen[-1].value("host") == f"api.example:{endpoint.port}"
        assert asked == ["api.example", "api.example"]


async def b61_bad_certificates_are_refused_and_named(make: TransportFactory) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    faults = {
        "expired": authority.issue_cert("api.example", not_before=_PAST, not_after=_PAST.replace(year=2002)),
        "certificate": stranger.issue_cert("api.example"),
        "mismatch": authority.issue_cert("other.example"),
    }
    for word, certificate in faults.items():
        async with (
            answering(always(OK), _server(certificate)) as endpoint,
            calling(make, names=Names(**_NAMES), context=_client(authority)) as caller,
        ):
            failure = await caller.failure(outgoing(endpoint.url(host="api.example", scheme="https")))
            assert (failure.outcome, failure.sent) == (Outcome.TLS_ERROR, False), failure
            assert word in failure.error, failure
            await endpoint.until_open(0)
            assert not endpoint.seen


async def b61_a_stalled_handshake_ends_at_the_deadline(make: TransportFactory) -> None:
    async def connected(line: Line) -> None:
        await line.hang()

    async with listening(connected) as endpoint, calling(make) as caller:
        failure = await caller.failure(outgoing(endpoint.url(scheme="https"), deadline=DEADLINE))
        assert (failure.outcome, failure.sent) == (Outcome.TIMEOUT, False)
        await endpoint.until_open(0)


async def b61_plain_http_on_the_tls_port_is_a_tls_error(make: TransportFactory) -> None:
    async def connected(line: Line) -> None:
        await line.reader.read(100)
        await line.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(connected) as endpoint, calling(make) as caller:
        failure = await caller.failure(outgoing(endpoint.url(scheme="https")))
        assert (failure.outcome, failure.sent) == (Outcome.TLS_ERROR, False), failure


async def b61_tls_1_0_is_refused(make: TransportFactory) -> None:
    authority = trustme.CA()
    server = _server(authority.issue_cert("api.example"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        server.minimum_version = server.maximum_version = ssl.TLSVersion.TLSv1
    server.set_ciphers("ALL:@SECLEVEL=0")
    async with (
        answering(always(OK), server) as endpoint,
        calling(make, names=Names(**_NAMES), context=_client(authority)) as caller,
    ):
        failure = await caller.failure(outgoing(endpoint.url(host="api.example", scheme="https")))
        assert (failure.outcome, failure.sent) == (Outcome.TLS_ERROR, False), failure


async def b61_an_end_without_farewell_spoils_no_whole_answer(make: TransportFactory) -> None:
    authority = trustme.CA()

    async def answer(line: Line, _request: object) -> bool:
        await line.write(OK)
        line.writer.transport.abort()  # no close_notify
        return False

    async with (
        answering(answer, _server(authority.issue_cert("api.example"))) as endpoint,
        calling(make, names=Names(**_NAMES), context=_client(authority)) as caller,
    ):
        for _ in range(2):
            await caller.answer(outgoing(endpoint.url(host="api.example", scheme="https")))
        assert endpoint.accepted == 2


async def b61_many_failures_leave_no_socket(make: TransportFactory) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    async with (
        answering(always(OK), _server(stranger.issue_cert("api.example"))) as endpoint,
        calling(make, names=Names(**_NAMES), context=_client(authority)) as caller,
    ):
        before = await sockets()
        url = endpoint.url(host="api.example", scheme="https")
        for _ in range(40):
            failures = await asyncio.gather(*(caller.failure(outgoing(url)) for _ in range(25)))
            assert all(failure.outcome is Outcome.TLS_ERROR for failure in failures)
        await endpoint.until_open(0)
        assert await sockets() == before


async def an_early_answer_to_a_large_body_over_tls_leaves_no_connection(make: TransportFactory) -> None:
    """What waits below TLS is unsent too: the next request would be queued behind it, its gate checked long before."""

    async def connected(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.write(OK)
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await closed.wait()

    authority = trustme.CA()
    server = _server(authority.issue_cert("api.example"))
    closed = asyncio.Event()
    async with (
        listening(connected, server) as endpoint,
        calling(make, names=Names(**_NAMES), context=_client(authority)) as caller,
    ):
        before = await sockets()
        url = endpoint.url(host="api.example", scheme="https")
        assert (await caller.answer(outgoing(url, body=b"x" * 20_000_000))).status == 200
        assert await sockets() == before + 1  # the endpoint's own
        closed.set()
