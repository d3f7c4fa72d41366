"""Checks of endpoints that misbehave: slow, endless, cut off, redirecting, compressing, resetting."""

import asyncio
import gzip
import itertools
import os
import socket
import time
from collections.abc import Awaitable, Callable

from endpoints import (
    DEADLINE,
    OK,
    Caller,
    Line,
    Names,
    OpenGate,
    Seen,
    TransportFactory,
    always,
    answering,
    calling,
    listening,
    outgoing,
    sockets,
    then_close,
)
from tocsin.common.store.rows import Outcome
from tocsin.executor.transport.port import MAX_BODY_BYTES, MAX_INTERIM_ANSWERS, Failure, Response


async def b52_redirects_are_not_followed(make: TransportFactory) -> None:
    async def answer(line: Line, request: Seen) -> None:
        status, location = request.body.decode().split(" ")
        where = f"Location: {location}\r\n" if location else ""
        await line.write(f"HTTP/1.1 {status} Moved\r\n{where}Content-Length: 0\r\n\r\n".encode())

    async with answering(always(OK)) as other, answering(answer) as endpoint, calling(make) as caller:
        for status in (301, 302, 303, 307, 308):
            for location in ("/y", other.url("/z"), endpoint.url(), "ftp://127.0.0.1/x", ""):
                before = len(endpoint.seen)
                response = await caller.answer(outgoing(endpoint.url(), body=f"{status} {location}".encode()))
                assert response.status == status
                assert len(endpoint.seen) == before + 1
                assert other.accepted == 0


async def b56_compressed_bodies_are_kept_as_they_come(make: TransportFactory) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000, 9)
    for encoding, body in (("gzip", bomb), ("gzip", b"no gzip"), ("deflate", b"\xff\xff"), ("br", b"no br")):
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
        async with answering(always(head.encode() + body)) as endpoint, calling(make) as caller:
            response = await caller.answer(outgoing(endpoint.url()))
            assert response.body == body[:MAX_BODY_BYTES]


async def _times_out(caller: Caller, url: str, body: bytes = b"{}", deadline: float = DEADLINE) -> Failure:
    began = time.monotonic()  # noqa: TID251 - the real time is what is checked
    failure = await caller.failure(outgoing(url, body=body, deadline=deadline))
    took = time.monotonic() - began  # noqa: TID251
    assert failure.outcome is Outcome.TIMEOUT, failure
    assert deadline - 0.05 <= took <= deadline + 1.0
    return failure


def _forever(head: bytes, piece: bytes, pause: float) -> Callable[[Line, Seen], Awaitable[None]]:
    async def drip(line: Line, _request: Seen) -> None:
        await line.write(head)
        while True:
            await asyncio.sleep(pause)
            await line.write(piece)

    return drip


async def b57_slow_answers_end_at_the_deadline(make: TransportFactory) -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    drips = {
        "body": (_forever(head + b"Content-Length: 9999\r\n\r\n", b"x", 0.02), 200),
        "chunks": (_forever(head + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.02), 200),
        "headers": (_forever(head, b"X: y\r\n", 0.02), None),
        "102": (_forever(b"", b"HTTP/1.1 102 Processing\r\n\r\n", 0.02), None),
        "silence": (lambda line, _request: line.hang(), None),
    }
    for script, status in drips.values():
        async with answering(script) as endpoint, calling(make) as caller:
            failure = await _times_out(caller, endpoint.url())
            assert (failure.sent, failure.status) == (True, status)
            await endpoint.until_open(0)


_CHUNK = b"1000\r\n" + b"x" * 4096 + b"\r\n"


async def b57_endless_answers_end_at_their_limit(make: TransportFactory) -> None:
    body = _forever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", _CHUNK, 0)
    async with answering(body) as endpoint, calling(make) as caller:
        response = await caller.answer(outgoing(endpoint.url(), deadline=2.0))
        assert (len(response.body), response.truncated) == (MAX_BODY_BYTES, True)
        await endpoint.until_open(0)
    heads = _forever(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100, 0)
    async with answering(heads) as endpoint, calling(make) as caller:
        failure = await caller.failure(outgoing(endpoint.url(), deadline=2.0))
        assert failure.outcome is Outcome.PROTOCOL_ERROR
        await endpoint.until_open(0)


async def b57_a_server_that_never_reads_costs_no_socket(make: TransportFactory) -> None:
    async def connected(line: Line) -> None:
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await over.wait()

    over = asyncio.Event()
    async with listening(connected) as endpoint, calling(make) as caller:
        before = await sockets()
        failure = await _times_out(caller, endpoint.url(), body=b"x" * 20_000_000)
        assert failure.sent
        assert await sockets() == before + 1  # the endpoint's own
        over.set()


def _then_reset(data: bytes) -> Callable[[Line, Seen], Awaitable[bool]]:
    async def answer(line: Line, _request: Seen) -> bool:
        await line.write(data)
        line.reset()
        return False

    return answer


async def b59_cut_answers_are_lost_connections(make: TransportFactory) -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    cut = (
        b"",
        head,
        head + b"Content-Length: 100\r\n\r\nabc",
        head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    )

    for data in cut:
        for script in (then_close(data), _then_reset(data)):
            async with answering(script) as endpoint, calling(make) as caller:
                for method in ("POST", "PUT"):
                    failure = await caller.failure(outgoing(endpoint.url(), method=method))
                    assert failure.outcome is Outcome.CONNECTION_LOST, failure
                    assert failure.sent
                assert len(endpoint.seen) == 2


async def a_reset_cuts_off_what_only_the_end_of_its_connection_ends(make: TransportFactory) -> None:
    heads = (b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n")
    for data in [*heads, *(head + b"hello" for head in heads)]:
        async with answering(then_close(data)) as endpoint, calling(make) as caller:
            assert (await caller.answer(outgoing(endpoint.url()))).body == data.partition(b"\r\n\r\n")[2]
        async with answering(_then_reset(data)) as endpoint, calling(make) as caller:
            failure = await caller.failure(outgoing(endpoint.url()))
            assert (failure.outcome, failure.status) == (Outcome.CONNECTION_LOST, 200), (data, failure)
            assert failure.sent


async def a_reset_after_an_answer_spoils_nothing(make: TransportFactory) -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
    whole = (head + b"Content-Length: 0\r\n\r\n", head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    for data in (*whole, b"HTTP/1.1 204 No Content\r\n\r\n"):
        async with answering(_then_reset(data)) as endpoint, calling(make) as caller:
            assert (await caller.answer(outgoing(endpoint.url()))).body == b""


async def interim_answers_are_bounded(make: TransportFactory) -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"
    async with answering(always(interim * MAX_INTERIM_ANSWERS + OK)) as endpoint, calling(make) as caller:
        for _ in range(2):
            assert (await caller.answer(outgoing(endpoint.url()))).body == b"ok"
        assert endpoint.accepted == 1
    for pause, piece in ((0.0, interim * 100), (0.001, interim)):
        async with answering(_forever(b"", piece, pause)) as endpoint, calling(make) as caller:
            failure = await caller.failure(outgoing(endpoint.url()))
            assert (failure.outcome, failure.sent) == (Outcome.PROTOCOL_ERROR, True), failure
            await endpoint.until_open(0)


async def b59_a_body_with_broken_framing_ends_the_call(make: TransportFactory) -> None:
    async def answer(line: Line, _request: Seen) -> bool:
        await line.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
        await reading.wait()
        await line.write(b"zz\r\nno length\r\n")
        return True

    reading = asyncio.Event()
    async with answering(answer) as endpoint, calling(make) as caller:
        call = asyncio.create_task(caller.failure(outgoing(endpoint.url(), deadline=2.0)))
        while not endpoint.seen:
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.1, reading.set)  # the head and the first chunk are read by then
        failure = await call
        assert failure.outcome in (Outcome.CONNECTION_LOST, Outcome.PROTOCOL_ERROR), failure
        assert failure.sent
        await endpoint.until_open(0)


async def closing_ends_a_call_in_its_answer(make: TransportFactory) -> None:
    await _closed_in_its_answer(make, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok")
    await _closed_in_its_answer(make, b"HTTP/1.1 200 OK\r\n\r\nok")


async def _closed_in_its_answer(make: TransportFactory, data: bytes) -> None:
    async def answer(line: Line, _request: Seen) -> bool:
        await line.write(data)
        answered.set()
        await line.hang()
        return False

    answered = asyncio.Event()
    async with answering(answer) as endpoint, calling(make) as caller:
        call = asyncio.create_task(caller.failure(outgoing(endpoint.url(), deadline=2.0)))
        await answered.wait()
        asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(caller.transport.close()))
        failure = await call
        assert (failure.outcome, failure.sent) == (Outcome.CONNECTION_LOST, True), failure


async def b59_nothing_is_sent_again_on_a_reused_connection(make: TransportFactory) -> None:
    for method in ("POST", "PUT", "GET", "DELETE", "PATCH", "HEAD"):
        count = 0

        async def answer(line: Line, _request: Seen) -> bool | None:
            nonlocal count
            count += 1
            if count == 2:
                return False  # the second request is read, and the connection closed
            await line.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            return None

        async with answering(answer) as endpoint, calling(make) as caller:
            await caller.answer(outgoing(endpoint.url(), method=method))
            failure = await caller.failure(outgoing(endpoint.url(), method=method))
            assert (failure.outcome, failure.sent) == (Outcome.CONNECTION_LOST, True)
            await caller.answer(outgoing(endpoint.url(), method=method))
            assert len(endpoint.seen) == 3
            assert endpoint.accepted == 2


async def a_reused_connection_that_ends_unheard_is_told(make: TransportFactory) -> None:
    ends = {b"": True, b"HTTP/1.1 2": False, b"HTTP/1.1 102 Processing\r\n\r\n": False}

    async def answer(line: Line, request: Seen) -> bool | None:
        if request.body == b"end":
            await line.write(piece)
            if resets:
                line.reset()
            return False
        await line.write(OK)
        return None

    for (piece, unheard), resets in itertools.product(ends.items(), (False, True)):
        async with answering(answer) as endpoint, calling(make) as caller:
            for reused in (False, True):
                if reused:
                    await caller.answer(outgoing(endpoint.url()))
                failure = await caller.failure(outgoing(endpoint.url(), body=b"end"))
                assert (failure.outcome, failure.sent) == (Outcome.CONNECTION_LOST, True), failure
                assert failure.reused == (reused and unheard), (piece, resets, reused, failure)


async def a_fresh_request_gets_a_connection_of_its_own(make: TransportFactory) -> None:
    async with answering(always(OK)) as endpoint, calling(make) as caller:
        for opened, fresh in ((1, False), (2, True), (3, True), (3, False)):
            await caller.answer(outgoing(endpoint.url())._replace(fresh=fresh))
            assert endpoint.accepted == opened


async def b59_a_connection_closed_while_idle_is_not_used(make: TransportFactory) -> None:
    lines: list[Line] = []

    async def answer(line: Line, _request: Seen) -> None:
        lines.append(line)
        await line.write(OK)

    async with answering(answer) as endpoint, calling(make) as caller:
        await caller.answer(outgoing(endpoint.url()))
        end = socket.socket(fileno=os.dup(lines[0].writer.get_extra_info("socket").fileno()))
        end.shutdown(socket.SHUT_RDWR)  # at once, and not yet seen by the caller's loop
        end.close()
        await caller.answer(outgoing(endpoint.url()))
        assert (len(endpoint.seen), endpoint.accepted) == (2, 2)


async def b59_an_answer_to_nobody_is_not_taken(make: TransportFactory) -> None:
    answered = asyncio.Event()

    async def answer(line: Line, request: Seen) -> None:
        await line.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request.body) + request.body)
        await answered.wait()
        await line.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")

    async with answering(answer) as endpoint, calling(make) as caller:
        for body in (b"first", b"second"):
            response = await caller.answer(outgoing(endpoint.url(), body=body))
            assert response.body == body
            answered.set()
            await sockets()  # long enough for the second answer to arrive


async def b60_timeouts_and_cancellations_free_their_slots(make: TransportFactory) -> None:
    healthy, idle = False, 0

    async def answer(line: Line, _request: Seen) -> None:
        await (line.write(OK) if healthy else line.hang())

    names = Names(api_example=[("127.0.0.1",)])
    async with answering(answer) as endpoint, calling(make, names=names) as caller:
        url = endpoint.url(host="api.example")

        def only_idle() -> bool:
            return len(endpoint.open) <= idle

        for _ in range(5):
            healthy = False
            hung = [asyncio.create_task(caller.call(outgoing(url, deadline=0.2))) for _ in range(30)]
            hung += [asyncio.create_task(caller.call(outgoing(url))) for _ in range(30)]
            lost = [caller.call(outgoing(endpoint.url(host="gone.example"))) for _ in range(10)]
            results = await asyncio.gather(*hung[:30], *lost)
            assert {r.outcome for r in results if isinstance(r, Failure)} == {
                Outcome.TIMEOUT,
                Outcome.DNS_ERROR,
            }
            for task in hung[30:]:
                task.cancel()
            await asyncio.gather(*hung, return_exceptions=True)
            await endpoint.until(only_idle, "no more than the idle connections")
            healthy = True
            good = await asyncio.gather(*(caller.call(outgoing(url, deadline=2.0)) for _ in range(20)))
            assert all(isinstance(result, Response) for result in good)
            idle = len(endpoint.open)
            assert idle <= 20


async def b60_a_cancelled_call_leaves_no_socket(make: TransportFactory) -> None:
    async def answer(line: Line, _request: Seen) -> None:
        await line.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        await line.hang()

    async with answering(answer) as endpoint, calling(make) as caller:
        before = await sockets()
        call = asyncio.create_task(caller.transport.call(outgoing(endpoint.url()), OpenGate()))
        await endpoint.until(lambda: bool(endpoint.seen), "the request is seen")
        call.cancel()
        result = (await asyncio.gather(call, return_exceptions=True))[0]
        assert isinstance(result, asyncio.CancelledError)
        await endpoint.until_open(0)
        assert await sockets() == before


async def the_deadline_covers_the_name(make: TransportFactory) -> None:
    names = Names(slow_example=[("127.0.0.1",)])
    names.gate = asyncio.Event()
    async with answering(always(OK)) as endpoint, calling(make, names=names) as caller:
        failure = await _times_out(caller, endpoint.url(host="slow.example"))
        assert not failure.sent
        assert endpoint.accepted == 0
