"""Names to addresses: c-ares against a small DNS server, and the cache."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from dnslib import AAAA, QTYPE, RCODE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSLogger, DNSServer

from tocsin.common.clock import ManualClock
from tocsin.executor.resolver import (
    MAX_TTL_SECONDS,
    AiodnsLookup,
    Answer,
    CachingResolver,
    ResolveError,
)

ZONE = {
    "both.example.": (["93.184.216.34", "93.184.216.35"], ["2606:2800::1"]),
    "four.example.": (["93.184.216.34"], []),
    "mixed.example.": (["93.184.216.34", "127.0.0.1"], []),
    "empty.example.": ([], []),
}


class Zone(BaseResolver):  # type: ignore[misc]
    def __init__(self) -> None:
        self.asked: list[str] = []

    def resolve(self, request: DNSRecord, _handler: object) -> DNSRecord:
        reply = request.reply()
        name = str(request.q.qname).lower()
        self.asked.append(name)
        if name == "broken.example.":
            reply.header.rcode = RCODE.SERVFAIL
        elif name not in ZONE:
            reply.header.rcode = RCODE.NXDOMAIN
        else:
            four, six = ZONE[name]
            if request.q.qtype == QTYPE.A:
                for address in four:
                    reply.add_answer(RR(name, QTYPE.A, ttl=30, rdata=A(address)))
            if request.q.qtype == QTYPE.AAAA:
                for address in six:
                    reply.add_answer(RR(name, QTYPE.AAAA, ttl=7, rdata=AAAA(address)))
        return reply


@contextmanager
def dns_server() -> Iterator[tuple[str, Zone]]:
    zone = Zone()
    server = DNSServer(zone, address="127.0.0.1", port=0, logger=DNSLogger("-request,-reply"))
    server.start_thread()
    try:
        yield f"127.0.0.1:{server.server.server_address[1]}", zone
    finally:
        server.stop()
        server.server.server_close()


@pytest.fixture
async def dns() -> AsyncIterator[tuple[AiodnsLookup, Zone]]:
    with dns_server() as (address, zone):
        lookup = AiodnsLookup((address,))
        yield lookup, zone
        await lookup.close()


async def test_all_addresses_come_with_ipv4_first_and_the_shortest_ttl(
    dns: tuple[AiodnsLookup, Zone],
) -> None:
    answer = await dns[0].lookup("both.example")
    assert set(answer.addresses[:2]) == {"93.184.216.34", "93.184.216.35"}
    assert answer.addresses[2:] == ("2606:2800::1",)
    assert answer.ttl == 7
    assert set((await dns[0].lookup("mixed.example")).addresses) == {"93.184.216.34", "127.0.0.1"}


async def test_names_are_asked_as_given_and_never_searched(dns: tuple[AiodnsLookup, Zone]) -> None:
    lookup, zone = dns
    assert (await lookup.lookup("four.example.")).addresses == ("93.184.216.34",)
    with pytest.raises(ResolveError):
        await lookup.lookup("four")
    assert set(zone.asked) == {"four.example.", "four."}


@pytest.mark.parametrize("host", ["gone.example", "empty.example", "broken.example", "a.localhost.example"])
async def test_no_address_is_an_error_with_the_name(dns: tuple[AiodnsLookup, Zone], host: str) -> None:
    with pytest.raises(ResolveError, match=host):
        await dns[0].lookup(host)


class Scripted:
    """Answers when told to."""

    def __init__(self, ttl: float = 30.0) -> None:
        self.ttl = ttl
        self.asked = 0
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = False

    async def lookup(self, host: str) -> Answer:
        self.asked += 1
        await self.gate.wait()
        if self.fails:
            raise ResolveError(f"{host}: no answer")
        return Answer((f"192.0.2.{self.asked}",), self.ttl)

    async def close(self) -> None:
        self.closed = True


def caching(script: Scripted, entries: int = 100) -> tuple[CachingResolver, ManualClock]:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    return CachingResolver(script, clock, entries), clock


@pytest.mark.parametrize(("ttl", "kept"), [(30.0, 30.0), (0.0, 1.0), (86_400.0, MAX_TTL_SECONDS)])
async def test_an_answer_is_kept_for_its_ttl_within_bounds(ttl: float, kept: float) -> None:
    script = Scripted(ttl)
    resolver, clock = caching(script)
    first = await resolver.resolve("a")
    clock.advance(kept - 0.01)
    assert await resolver.resolve("a") == first
    clock.advance(0.01)
    assert await resolver.resolve("a") != first
    assert script.asked == 2


class ServesTheExpired(CachingResolver):
    """Broken: falls back on what it once knew."""

    async def resolve(self, host: str) -> tuple[str, ...]:
        try:
            return await super().resolve(host)
        except ResolveError:
            return self._cache[host][1]


async def fails_closed(make: type[CachingResolver]) -> None:
    script = Scripted()
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    resolver = make(script, clock)
    await resolver.resolve("a")
    clock.advance(31)
    script.fails = True
    for _ in range(2):
        answer = (await asyncio.gather(resolver.resolve("a"), return_exceptions=True))[0]
        assert isinstance(answer, ResolveError), answer
    script.fails = False
    assert await resolver.resolve("a") == ("192.0.2.4",)


async def test_an_expired_answer_is_never_used_and_a_failure_never_kept() -> None:
    await fails_closed(CachingResolver)


async def test_serving_expired_answers_is_caught() -> None:
    with pytest.raises(AssertionError):
        await fails_closed(ServesTheExpired)


async def test_many_who_ask_at_once_ask_once() -> None:
    script = Scripted()
    script.gate.clear()
    resolver, _ = caching(script)
    asking = [asyncio.create_task(resolver.resolve("a")) for _ in range(50)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    script.gate.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert set(answers[1:]) == {("192.0.2.1",)}
    assert script.asked == 1


async def test_the_cache_is_bounded() -> None:
    script = Scripted()
    resolver, _ = caching(script, entries=2)
    for host in ("a", "b", "c", "a"):
        await resolver.resolve(host)
    assert script.asked == 4
    assert len(resolver._cache) == 2


async def test_closing_ends_what_is_being_asked() -> None:
    script = Scripted()
    script.gate.clear()
    resolver, _ = caching(script)
    asking = asyncio.create_task(resolver.resolve("a"))
    await asyncio.sleep(0)
    await resolver.close()
    assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], asyncio.CancelledError)
    assert script.closed
