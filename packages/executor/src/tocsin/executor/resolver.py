"""Names to addresses: the port, c-ares behind it, and a small cache that keeps to what DNS allows."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Protocol

import aiodns
import pycares

from tocsin.common.clock import Clock
from tocsin.common.errors import TocsinError

MIN_TTL_SECONDS: Final = 1.0
MAX_TTL_SECONDS: Final = 60.0
"""An answer is kept for its TTL within these bounds; a failure is never kept."""

_CACHE_ENTRIES = 10_000
_QUERY_TIMEOUT_SECONDS = 2.0
_QUERY_TRIES = 2


class ResolveError(TocsinError):
    """A name could not be resolved; the text says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Addresses of a name (never empty), IPv4 first, and how long they may be kept, in seconds."""

    addresses: tuple[str, ...]
    ttl: float


class Resolver(Protocol):
    async def resolve(self, host: str) -> tuple[str, ...]:
        """All addresses of `host`, which is always taken as a full name; never empty.

        Raises:
            ResolveError: there is none, or no server answered.
        """
        ...

    async def close(self) -> None: ...


class Lookup(Protocol):
    """One question to DNS."""

    async def lookup(self, host: str) -> Answer:
        """As `Resolver.resolve`."""
        ...

    async def close(self) -> None: ...


class AiodnsLookup:
    """c-ares, with the system's servers or with given ones (`host:port`). Made inside a running loop."""

    def __init__(self, servers: tuple[str, ...] = ()) -> None:
        self._channel = aiodns.DNSResolver(
            nameservers=servers or None,
            timeout=_QUERY_TIMEOUT_SECONDS,
            tries=_QUERY_TRIES,
            flags=pycares.ARES_FLAG_NOSEARCH,
        )

    async def lookup(self, host: str) -> Answer:
        try:
            result = await self._channel.getaddrinfo(host)
        except aiodns.error.DNSError as error:
            raise ResolveError(f"{host}: {str(error.args[-1]).lower()}") from error
        found = {_text(node.addr[0]): float(node.ttl) for node in result.nodes}
        if not found:
            raise ResolveError(f"{host}: no address")
        return Answer(tuple(sorted(found, key=lambda address: ":" in address)), min(found.values()))

    async def close(self) -> None:
        await self._channel.close()


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value


class CachingResolver:
    """Keeps answers for a bounded time and asks one question at a time per name.

    An expired answer is never used, so a name server that is down closes what it cannot vouch for.
    """

    def __init__(self, lookup: Lookup, clock: Clock, entries: int = _CACHE_ENTRIES) -> None:
        self._lookup = lookup
        self._clock = clock
        self._entries = entries
        self._cache: OrderedDict[str, tuple[float, tuple[str, ...]]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[tuple[str, ...]]] = {}

    async def resolve(self, host: str) -> tuple[str, ...]:
        kept = self._cache.get(host)
        if kept is not None and self._clock.monotonic() < kept[0]:
            return kept[1]
        question = self._asking.get(host)
        if question is None:
            question = asyncio.create_task(self._ask(host), name=f"resolve {host}")
            self._asking[host] = question
            question.add_done_callback(lambda done: self._asked(host, done))
        return await asyncio.shield(question)  # whoever gives up must not take the answer from the others

    async def close(self) -> None:
        for question in list(self._asking.values()):
            question.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        await self._lookup.close()

    async def _ask(self, host: str) -> tuple[str, ...]:
        answer = await self._lookup.lookup(host)
        ttl = min(MAX_TTL_SECONDS, max(MIN_TTL_SECONDS, answer.ttl))
        self._cache[host] = (self._clock.monotonic() + ttl, answer.addresses)
        self._cache.move_to_end(host)
        if len(self._cache) > self._entries:
            self._cache.popitem(last=False)
        return answer.addresses

    def _asked(self, host: str, question: asyncio.Task[tuple[str, ...]]) -> None:
        self._asking.pop(host, None)
        if not question.cancelled():
            question.exception()  # seen here, for the case that everybody who asked has given up
