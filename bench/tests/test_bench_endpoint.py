"""The endpoint remembers what came over the wire, whatever pieces it came in."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from bench.endpoint import Endpoint, parse_arrivals

RUN, TASK = UUID(int=1), UUID(int=2)
REQUEST = (
    b"POST /1 HTTP/1.1\r\nHost: 127.0.0.1\r\nIdempotency-Key: %b\r\nTocsin-Scheduled-For: 2026-03-01T09:00:00Z\r\n"
    b"Tocsin-Task: %b\r\nContent-Length: 5\r\n\r\nhello" % (str(RUN).encode(), str(TASK).encode())
)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def exchange(port: int, pieces: list[bytes], answers: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    answer = await reader.readexactly(answers * len(ANSWER))
    writer.close()
    await writer.wait_closed()
    return answer


async def test_calls_are_answered_and_taken_once(tmp_path: Path) -> None:
    async with Endpoint(tmp_path) as endpoint:
        assert await exchange(endpoint.port, [REQUEST], 1) == ANSWER
        assert await endpoint.count() == 1
        (arrival,) = await endpoint.take()
        assert (arrival.run_id, arrival.task_id) == (RUN, TASK)
        assert arrival.slot == datetime(2026, 3, 1, 9, tzinfo=UTC)
        assert (await endpoint.count(), await endpoint.take()) == (0, [])


async def test_requests_in_pieces_and_together(tmp_path: Path) -> None:
    async with Endpoint(tmp_path) as endpoint:
        await exchange(endpoint.port, [REQUEST[:30], REQUEST[30:-3], REQUEST[-3:] + REQUEST], 2)
        await exchange(endpoint.port, [REQUEST * 3], 3)
        assert len(await endpoint.take()) == 5


def test_a_call_without_a_key_is_refused() -> None:
    assert len(parse_arrivals(f"1.5 {RUN} {TASK} 2026-03-01T09:00:00Z\n")) == 1
    with pytest.raises(ValueError):
        parse_arrivals(f"1.5  {TASK} 2026-03-01T09:00:00Z\n")
