"""The demo's endpoint: what it answers, and what it reports of each call."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tocsin.cli.demo import endpoint
from tocsin.cli.demo.endpoint import Endpoint
from tocsin.common.clock import ManualClock

NOW = datetime(2026, 3, 1, 9, 0, 0, 3_000, tzinfo=UTC)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(endpoint, "tell_parent", lambda event, **values: told.append({"event": event, **values}))
    return told


@pytest.fixture
async def port(reports: list[dict[str, Any]]) -> AsyncIterator[int]:
    server = await asyncio.start_server(Endpoint(ManualClock(NOW)).serve, endpoint.HOST, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def answers(port: int, *requests: bytes) -> bytes:
    """What comes for these requests over one connection, until the other side closes or all are answered."""
    reader, writer = await asyncio.open_connection(endpoint.HOST, port)
    writer.write(b"".join(requests))
    writer.write_eof()
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


def request(path: str, attempt: int = 1, body: bytes = b"") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: run-1\r\nTocsin-Task: task-1\r\n"
        f"Tocsin-Attempt: {attempt}\r\nTocsin-Scheduled-For: 2026-03-01T09:00:00Z\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


@pytest.mark.parametrize(
    ("path", "first", "second"),
    [
        ("/ok", 200, 200),
        ("/slow?seconds=0", 200, 200),
        ("/flaky", 503, 200),
        ("/busy", 429, 200),
        ("/broken", 500, 500),
        ("/gone", 410, 410),
    ],
)
async def test_paths_decide_the_answer(port: int, path: str, first: int, second: int) -> None:
    assert (await answers(port, request(path, 1))).startswith(b"HTTP/1.1 %d " % first)
    assert (await answers(port, request(path, 2))).startswith(b"HTTP/1.1 %d " % second)


async def test_busy_says_when_to_come_again(port: int) -> None:
    assert b"\r\nRetry-After: 2\r\n" in await answers(port, request("/busy"))


async def test_hanging_up_answers_nothing(port: int, reports: list[dict[str, Any]]) -> None:
    assert await answers(port, request("/hangup")) == b""
    assert len(reports) == 1


async def test_calls_over_one_connection_are_told_apart(port: int, reports: list[dict[str, Any]]) -> None:
    answer = await answers(port, request("/ok", body=b'{"a": 1}'), request("/gone"))
    assert answer.count(b"HTTP/1.1 ") == 2
    assert [report["status"] for report in reports] == [200, 410]


async def test_a_call_is_reported_with_the_instant_of_its_first_byte(port: int, reports: list[dict[str, Any]]) -> None:
    await answers(port, request("/ok"))
    assert reports == [
        {
            "event": "call",
            "run": "run-1",
            "task": "task-1",
            "attempt": 1,
            "slot": "2026-03-01T09:00:00Z",
            "arrived": "2026-03-01T09:00:00.003000+00:00",
            "status": 200,
        }
    ]


async def test_what_is_not_http_ends_its_connection_only(port: int) -> None:
    assert await answers(port, b"\x16\x03\x01 no http\r\n\r\n") == b""
    assert (await answers(port, request("/ok"))).startswith(b"HTTP/1.1 200 ")
