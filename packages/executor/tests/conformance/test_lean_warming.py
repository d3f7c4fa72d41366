"""Connections opened ahead: calls use them, nothing is sent on them, and none goes where no call may."""

import asyncio
import random
from datetime import UTC, datetime

import pytest

from endpoints import OK, Line, Names, OpenGate, always, answering, listening, outgoing, sockets
from tocsin.common.clock import ManualClock, SystemClock
from tocsin.common.target import parse_target
from tocsin.executor.egress import EgressGuard, EgressPolicy
from tocsin.executor.transport import lean_warming
from tocsin.executor.transport.connecting import OPENED_AHEAD_SECONDS
from tocsin.executor.transport.lean import LeanTransport
from tocsin.executor.transport.lean_pool import Opening, PeerKey
from tocsin.executor.transport.port import Response


def transport(names: Names, allow: str = "127.0.0.0/8") -> LeanTransport:
    return LeanTransport(EgressGuard(EgressPolicy.parse(allow), names), SystemClock(), random.Random(7))


async def test_calls_find_the_connections_that_were_opened_ahead() -> None:
    async with answering(always(OK)) as endpoint:
        warm = transport(Names(api_example=[("127.0.0.1",)]))
        warm.warm(parse_target(endpoint.url(host="api.example")), 3)
        await endpoint.until_open(3)
        while len(warm._pool._idle) < 3:
            await asyncio.sleep(0)
        assert not endpoint.seen
        calls = (warm.call(outgoing(endpoint.url(f"/{number}", host="api.example")), OpenGate()) for number in range(3))
        results = await asyncio.gather(*calls)
        assert all(isinstance(result, Response) for result in results)
        assert endpoint.accepted == 3
        await warm.close()


async def test_each_name_gets_its_first_connection_before_any_gets_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean_warming, "AT_ONCE", 1)
    opened: list[str] = []

    async def warm(key: PeerKey, count: int) -> bool:
        opened.append(key.host)
        return opened.count(key.host) < count

    transport_ = transport(Names(a_example=[("127.0.0.1",)], b_example=[("127.0.0.1",)]))
    monkeypatch.setattr(transport_._pool, "warm", warm)
    for host, count in (("a.example", 3), ("b.example", 2)):
        transport_.warm(parse_target(f"http://{host}/"), count)
    while transport_._warming._tasks:
        await asyncio.sleep(0)
    assert opened == ["a.example", "b.example", "a.example", "b.example", "a.example"]
    await transport_.close()


async def test_what_was_asked_for_too_long_ago_is_not_opened() -> None:
    clock = ManualClock(datetime(2026, 3, 10, tzinfo=UTC))
    names = Names(a_example=[("127.0.0.1",)])
    guard = EgressGuard(EgressPolicy.parse("127.0.0.0/8"), names)
    late = LeanTransport(guard, clock, random.Random(7))
    late.warm(parse_target("http://a.example/"), 1)
    clock.advance(OPENED_AHEAD_SECONDS["http"] + 0.1)
    while late._warming._tasks:
        await asyncio.sleep(0)
    assert names.asked == []
    await late.close()


async def test_nothing_is_opened_where_no_call_may_go_or_no_name_is() -> None:
    async with answering(always(OK)) as endpoint:
        names = Names(api_example=[("127.0.0.1",)])
        cold = transport(names, allow="")
        for host in ("api.example", "gone.example", "127.0.0.1"):
            cold.warm(parse_target(endpoint.url(host=host)), 3)
        while cold._warming._tasks:
            await asyncio.sleep(0)
        assert (names.asked, endpoint.accepted, cold._pool._places) == (["api.example", "gone.example"], 0, {})
        await cold.close()


async def test_what_fails_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(always(OK)) as endpoint:
        url = endpoint.url()
    refused = transport(Names())
    begun: list[Opening] = []
    begin = refused._pool._lanes["http"]._begin

    def counting(opening: Opening) -> None:
        begun.append(opening)
        begin(opening)

    monkeypatch.setattr(refused._pool._lanes["http"], "_begin", counting)
    refused.warm(parse_target(url), 3)
    async with asyncio.timeout(2.0):
        await asyncio.gather(*refused._warming._tasks)
    assert len(begun) == 1
    await refused.close()


async def test_an_endpoint_that_closes_what_is_open_is_not_asked_for_ever() -> None:
    async def closes(_line: Line) -> None:
        pass

    async with listening(closes) as endpoint:
        warm = transport(Names())
        warm.warm(parse_target(endpoint.url()), 3)
        async with asyncio.timeout(2.0):
            await asyncio.gather(*warm._warming._tasks)
        await endpoint.until_open(0)
        assert endpoint.accepted <= 3
        await warm.close()


async def test_closing_leaves_nothing_of_it() -> None:
    names = Names(api_example=[("127.0.0.1",)])
    names.gate = asyncio.Event()
    async with answering(always(OK)) as endpoint:
        before = await sockets()
        warm = transport(names)
        warm.warm(parse_target(endpoint.url()), 2)
        for number in range(50):
            warm.warm(parse_target(endpoint.url(f"/{number}", host="api.example")), 2)
        await sockets()
        await warm.close()
        await endpoint.until_open(0)
        assert await sockets() == before


async def test_nothing_is_opened_once_it_is_closed() -> None:
    async with answering(always(OK)) as endpoint:
        warm = transport(Names())
        await warm.close()
        warm.warm(parse_target(endpoint.url()), 2)
        await sockets()
        assert (warm._warming._tasks, endpoint.accepted) == (set(), 0)
