"""The endpoint remembers what came over the wire, whatever pieces it came in, and behaves as the path says."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from bench.endpoint import Endpoint, parse_arrivals
from bench.manners import Ending, manner_of

RUN, TASK = UUID(int=1), UUID(int=2)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


def request(path: str = "/1", run_id: UUID = RUN, attempt: int = 1) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nIdempotency-Key: {run_id}\r\nTocsin-Attempt: {attempt}\r\n"
        f"Tocsin-Scheduled-For: 2026-03-01T09:00:00Z\r\nTocsin-Task: {TASK}\r\nContent-Length: 5\r\n\r\nhello"
    ).encode()


REQUEST = request()


async def exchange(port: int, pieces: list[bytes], size: int) -> bytes:
    """What the endpoint answers, up to so many bytes or its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    answer = b""
    while len(answer) < size and (more := await reader.read(size - len(answer))):
        answer += more
    writer.close()
    return answer


async def test_calls_are_answered_and_taken_once(tmp_path: Path) -> None:
    async with Endpoint(tmp_path) as endpoint:
        assert await exchange(endpoint.port, [REQUEST], len(ANSWER)) == ANSWER
        assert await endpoint.count() == 1
        (arrival,) = await endpoint.take()
        assert (arrival.run_id, arrival.task_id, arrival.attempt) == (RUN, TASK, 1)
        assert arrival.slot == datetime(2026, 3, 1, 9, tzinfo=UTC)
        assert (await endpoint.count(), await endpoint.take()) == (0, [])


async def test_requests_in_pieces_and_together(tmp_path: Path) -> None:
    async with Endpoint(tmp_path) as endpoint:
        await exchange(endpoint.port, [REQUEST[:30], REQUEST[30:-3], REQUEST[-3:] + REQUEST], 2 * len(ANSWER))
        await exchange(endpoint.port, [REQUEST * 3], 3 * len(ANSWER))
        assert len(await endpoint.take()) == 5


async def test_each_call_is_ended_as_its_path_says(tmp_path: Path) -> None:
    flaky = {manner_of(b"flaky").answer(str(UUID(int=n)).encode(), b"2")[1]: UUID(int=n) for n in range(50)}
    async with Endpoint(tmp_path) as endpoint:
        for path in ("/20ms/7", "/1-20ms/7", "/tail/7"):
            assert await exchange(endpoint.port, [request(path)], len(ANSWER)) == ANSWER
        up, down = flaky[Ending.OK], flaky[Ending.UNAVAILABLE]
        assert await exchange(endpoint.port, [request("/flaky/7", up, attempt=2)], len(ANSWER)) == ANSWER
        assert await exchange(endpoint.port, [request("/flaky/7", down, attempt=2)], len(UNAVAILABLE)) == UNAVAILABLE
        assert await exchange(endpoint.port, [request("/reset/7")], len(ANSWER)) == b""
        assert [arrival.attempt for arrival in await endpoint.take()] == [1, 1, 1, 2, 2, 1]


async def test_a_call_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    async with Endpoint(tmp_path) as endpoint:
        hanging = asyncio.create_task(exchange(endpoint.port, [request("/hang/7")], len(ANSWER)))
        while await endpoint.count() < 1:
            await asyncio.sleep(0)
        assert await exchange(endpoint.port, [REQUEST], len(ANSWER)) == ANSWER
        assert not hanging.done()
    assert await hanging == b""


async def test_several_processes_share_a_port_and_their_calls_are_taken_together(tmp_path: Path) -> None:
    async with Endpoint(tmp_path, processes=2) as endpoint:
        assert len(set(endpoint.pids)) == 2
        await asyncio.gather(*(exchange(endpoint.port, [REQUEST], len(ANSWER)) for _ in range(20)))
        assert await endpoint.count() == 20
        assert len(await endpoint.take()) == 20


def test_a_call_without_a_key_is_refused() -> None:
    assert len(parse_arrivals(f"1.5 {RUN} {TASK} 2026-03-01T09:00:00Z 1\n")) == 1
    with pytest.raises(ValueError):
        parse_arrivals(f"1.5  {TASK} 2026-03-01T09:00:00Z 1\n")
