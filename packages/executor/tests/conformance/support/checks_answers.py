"""Checks of ordinary exchanges: what goes out, what comes back, and which connection carries it."""

import asyncio
import os

from endpoints import (
    OK,
    Line,
    Names,
    Seen,
    TransportFactory,
    always,
    answering,
    calling,
    listening,
    outgoing,
    read_request,
    sockets,
    then_close,
)
from tocsin.common.store.rows import Outcome
from tocsin.executor.transport.port import MAX_BODY_BYTES


async def b54_the_request_line_is_the_stored_url(make: TransportFactory) -> None:
    lines = {
        "/a/../b//c?": "/a/../b//c?",
        "/%7euser/%2F?q=%20+&q=a;b": "/%7euser/%2F?q=%20+&q=a;b",
        "": "/",
        "?x=1": "/?x=1",
        "/ü?[]={}": "/%C3%BC?%5B%5D=%7B%7D",
    }
    async with answering(always(OK)) as endpoint, calling(make) as caller:
        for path, target in lines.items():
            await caller.answer(outgoing(endpoint.url(path)))
            assert endpoint.seen[-1].line == f"POST {target} HTTP/1.1"
            assert endpoint.seen[-1].value("host") == f"127.0.0.1:{endpoint.port}"


async def b54_odd_host_names_are_asked_and_named_as_stored(make: TransportFactory) -> None:
    hosts = {
        "bücher.example": ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        "faß.de": ("xn--fa-hia.de", "xn--fa-hia.de"),
        "a_b.example": ("a_b.example", "a_b.example"),
        "Dot.Example.": ("dot.example.", "dot.example"),
    }
    names = Names()
    names.names = {asked: [("127.0.0.1",)] for asked, _ in hosts.values()}
    async with answering(always(OK)) as endpoint, calling(make, names=names) as caller:
        for given, (asked, named) in hosts.items():
            await caller.answer(outgoing(endpoint.url(host=given)))
            assert names.asked[-1] == asked
            assert endpoint.seen[-1].value("host") == f"{named}:{endpoint.port}"


async def nothing_is_added_to_the_request(make: TransportFactory) -> None:
    headers = (("X-One", "1"), ("x-one-more", "caf\xe9"), ("Cookie", "a=b"))
    async with answering(always(OK)) as endpoint, calling(make) as caller:
        await caller.answer(outgoing(endpoint.url("/p"), body=b"hi", headers=headers))
        await caller.answer(outgoing(endpoint.url("/p"), method="GET"))
        await caller.answer(outgoing(endpoint.url("/p"), body=b""))
        host = ("Host", f"127.0.0.1:{endpoint.port}")
        assert endpoint.seen[0].headers == [host, *headers, ("Content-Length", "2")]
        assert endpoint.seen[0].body == b"hi"
        assert endpoint.seen[1].headers == [host]
        assert endpoint.seen[2].headers == [host, ("Content-Length", "0")]


async def no_cookie_comes_back(make: TransportFactory) -> None:
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
    names = Names(cookies_example=[("127.0.0.1",)])
    async with answering(always(answer)) as endpoint, calling(make, names=names) as caller:
        for _ in range(2):
            await caller.answer(outgoing(endpoint.url(host="cookies.example")))
        assert endpoint.seen[1].value("cookie") is None


async def no_proxy_of_the_environment_is_used(make: TransportFactory) -> None:
    names = Names(direct_example=[("127.0.0.1",)])
    async with (
        answering(always(OK)) as proxy,
        answering(always(OK)) as endpoint,
        calling(make, names=names) as caller,
    ):
        before = dict(os.environ)
        os.environ["http_proxy"] = proxy.url()
        try:
            await caller.answer(outgoing(endpoint.url(host="direct.example")))
        finally:
            os.environ.clear()
            os.environ.update(before)
        assert (len(proxy.seen), len(endpoint.seen)) == (0, 1)


async def headers_keep_their_number_and_order(make: TransportFactory) -> None:
    answer = b"HTTP/1.1 503 No\r\nRetry-After: 1\r\nX: y\r\nretry-after: 2\r\nContent-Length: 0\r\n\r\n"
    async with answering(always(answer)) as endpoint, calling(make) as caller:
        response = await caller.answer(outgoing(endpoint.url()))
        assert response.status == 503
        assert response.values("Retry-After") == ["1", "2"]


async def bodies_are_kept_up_to_the_cap(make: TransportFactory) -> None:
    async def answer(line: Line, request: Seen) -> None:
        size = int(request.body)
        await line.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)

    async with answering(answer) as endpoint, calling(make) as caller:
        for size in (0, 1, MAX_BODY_BYTES - 1, MAX_BODY_BYTES, MAX_BODY_BYTES + 1, 200_000):
            response = await caller.answer(outgoing(endpoint.url(), body=b"%d" % size))
            assert len(response.body) == min(size, MAX_BODY_BYTES)
            assert response.truncated == (size > MAX_BODY_BYTES)


async def answers_without_a_body_end_at_their_head(make: TransportFactory) -> None:
    cases = {
        "HEAD": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
        "PUT": b"HTTP/1.1 204 No Content\r\n\r\n",
        "GET": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
        "POST": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    }
    for method, data in cases.items():
        async with answering(always(data)) as endpoint, calling(make) as caller:
            for _ in range(2):
                response = await caller.answer(outgoing(endpoint.url(), method=method, body=b""))
                assert response.body == b""
            assert endpoint.accepted == 1


async def bodies_that_end_with_the_connection_are_whole(make: TransportFactory) -> None:
    async with answering(then_close(b"HTTP/1.0 200 OK\r\n\r\nhello")) as endpoint, calling(make) as caller:
        assert (await caller.answer(outgoing(endpoint.url()))).body == b"hello"


async def what_is_no_http_is_a_protocol_error(make: TransportFactory) -> None:
    garbage = (
        b"220 mail.example ESMTP\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    )
    for data in garbage:
        async with answering(always(data)) as endpoint, calling(make) as caller:
            failure = await caller.failure(outgoing(endpoint.url()))
            assert failure.outcome is Outcome.PROTOCOL_ERROR, (data[:40], failure)
            assert failure.sent
            await endpoint.until_open(0)


async def connections_are_reused_one_host_at_a_time(make: TransportFactory) -> None:
    names = Names(one_example=[("127.0.0.1",)], two_example=[("127.0.0.1",)])
    async with answering(always(OK)) as endpoint, calling(make, names=names) as caller:
        for _ in range(3):
            await caller.answer(outgoing(endpoint.url(host="one.example")))
        assert endpoint.accepted == 1
        await caller.answer(outgoing(endpoint.url(host="two.example")))
        assert endpoint.accepted == 2


async def each_of_many_calls_gets_its_own_answer(make: TransportFactory) -> None:
    async def echo(line: Line, request: Seen) -> None:
        await line.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request.body) + request.body)

    async with answering(echo) as endpoint, calling(make) as caller:
        for _ in range(3):
            bodies = [b"run-%d" % number for number in range(50)]
            answers = await asyncio.gather(*(caller.answer(outgoing(endpoint.url(), body=body)) for body in bodies))
            assert [answer.body for answer in answers] == bodies


async def a_large_body_arrives_whole(make: TransportFactory) -> None:
    body = os.urandom(3_000_000)
    async with answering(always(OK)) as endpoint, calling(make) as caller:
        await caller.answer(outgoing(endpoint.url(), body=body))
        assert endpoint.seen[0].body == body


async def an_early_answer_to_a_large_body_leaves_no_socket(make: TransportFactory) -> None:
    async def connected(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.write(OK)
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await closed.wait()

    closed = asyncio.Event()
    async with listening(connected) as endpoint, calling(make) as caller:
        before = await sockets()
        response = await caller.answer(outgoing(endpoint.url(), body=b"x" * 20_000_000))
        assert response.status == 200
        assert await sockets() == before + 1  # the endpoint's own
        closed.set()


async def the_next_address_is_tried_when_one_refuses(make: TransportFactory) -> None:
    names = Names(two_example=[("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
    async with answering(always(OK)) as endpoint, calling(make, names=names) as caller:
        for _ in range(4):
            await caller.answer(outgoing(endpoint.url(host="two.example")))


async def a_refused_connection_is_a_connect_error(make: TransportFactory) -> None:
    async def connected(line: Line) -> None:
        await read_request(line.reader)

    async with listening(connected) as endpoint:
        url = endpoint.url()
    async with calling(make) as caller:
        failure = await caller.failure(outgoing(url))
        assert (failure.outcome, failure.sent) == (Outcome.CONNECT_ERROR, False)
        assert "127.0.0.1" in failure.error
