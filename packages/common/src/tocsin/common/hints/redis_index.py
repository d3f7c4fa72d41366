"""The hint index in Redis: a sorted set per tenant, of run ids scored by their due instant on the database's clock.

A key per tenant, so that nobody's backlog takes the place of another's; one script per question and per change, so that
a thousand tenants cost one or two round trips. What is forgotten (by a flush, a fail-over, an eviction) costs nothing
but the find. Memory is bounded: only what is due within `HORIZON` is kept, `MOST` ids a tenant, ids for `REMEMBERED`
past their instant, and a key that nobody adds to expires. Needs Redis 5 or later, as one node.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from struct import Struct
from typing import Any
from uuid import UUID

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tocsin.common.hints.port import HORIZON
from tocsin.common.store.rows import MARGIN_SECONDS, Pending

REMEMBERED = timedelta(seconds=MARGIN_SECONDS)
"""Past its instant, as far back as a look at a queue goes: what waits longer waits for a cap."""

MOST = 10_000
"""Ids of one tenant, the first due ones."""

_TENANTS = 500
"""Of one call: a script holds up everybody who asks this Redis, a millisecond or so with as many."""

_CONNECTIONS = 2
_ENTRY = Struct(">16sd")
_ID = 16

# KEYS: sorted sets. ARGV: from (ms), until (ms), most ids. Returns ids, 16 bytes each, in one string: every set's first
# ones, then of those that had more as many as there is room for.
_DUE = """
local most = tonumber(ARGV[3])
local share = math.max(1, math.floor(most / #KEYS))
local found, full = {}, {}
for _, key in ipairs(KEYS) do
    if #found >= most then break end
    local ids = redis.call('ZRANGEBYSCORE', key, ARGV[1], ARGV[2], 'LIMIT', 0, share)
    for _, id in ipairs(ids) do found[#found + 1] = id end
    if #ids == share then full[#full + 1] = key end
end
for _, key in ipairs(full) do
    local left = most - #found
    if left <= 0 then break end
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, ARGV[1], ARGV[2], 'LIMIT', share, left)) do
        found[#found + 1] = id
    end
end
return table.concat(found)
"""

# KEYS: sorted sets. ARGV: trim up to (ms), most ids a set, ttl (s), then one string a set: ids and instants to be kept.
_ADD = """
for number, key in ipairs(KEYS) do
    local entries, at = ARGV[3 + number], 1
    while at <= #entries do
        local id, due = struct.unpack('>c16d', entries, at)
        redis.call('ZADD', key, due, id)
        at = at + 24
    end
    redis.call('ZREMRANGEBYSCORE', key, '-inf', ARGV[1])
    redis.call('ZREMRANGEBYRANK', key, ARGV[2], -1)
    redis.call('EXPIRE', key, ARGV[3])
end
"""

# KEYS: sorted sets. ARGV: one string a set: the ids that go.
_REMOVE = """
for number, key in ipairs(KEYS) do
    for at = 1, #ARGV[number], 16 do
        redis.call('ZREM', key, string.sub(ARGV[number], at, at + 15))
    end
end
"""


class RedisHints:
    """A `HintIndex`. Nothing is tried twice: every method raises what the client raises, within about `timeout` seconds
    a round trip (connecting included); the caller goes on without hints.

    `url`: `redis://`, `rediss://` (TLS) or `unix://`, with a password where there is one: it is in no message. `name`
    keeps apart what shares a Redis. `now`: the database's clock.
    """

    def __init__(self, url: str, name: str, now: Callable[[], datetime], *, timeout: float = 0.1) -> None:
        self._prefix = f"tocsin:{{{name}}}:".encode()
        self._now = now
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=timeout,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis.from_pool(pool)  # closes the pool with itself
        self._due, self._add, self._remove = (self._redis.register_script(text) for text in (_DUE, _ADD, _REMOVE))

    async def add(self, rows: Sequence[Pending]) -> None:
        now = self._now()
        kept: defaultdict[UUID, list[bytes]] = defaultdict(list)
        gone: list[tuple[UUID, UUID]] = []
        for row in rows:
            if row.due_at > now + HORIZON:
                gone.append((row.tenant_id, row.run_id))  # it may have been due sooner
            else:
                kept[row.tenant_id].append(_ENTRY.pack(row.run_id.bytes, _milliseconds(row.due_at)))
        limits = (_milliseconds(now - REMEMBERED), MOST, int((HORIZON + REMEMBERED).total_seconds()))
        for tenants in _portions(kept):
            entries = [b"".join(kept[tenant_id]) for tenant_id in tenants]
            await self._add(keys=self._keys(tenants), args=[*limits, *entries])
        await self.remove(gone)

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        now = self._now()
        since, until = _milliseconds(now - REMEMBERED), _milliseconds(now + timedelta(seconds=lead))
        named: list[UUID] = []
        for tenants in _portions(set(tenant_ids)):
            share = min(limit - len(named), max(1, limit * len(tenants) // len(tenant_ids)))
            if share <= 0:
                break
            ids: Any = await self._due(keys=self._keys(tenants), args=[since, until, share])
            named += [UUID(bytes=ids[at : at + _ID]) for at in range(0, len(ids), _ID)]
        return named

    async def remove(self, runs: Sequence[tuple[UUID, UUID]]) -> None:
        gone: defaultdict[UUID, list[bytes]] = defaultdict(list)
        for tenant_id, run_id in runs:
            gone[tenant_id].append(run_id.bytes)
        for tenants in _portions(gone):
            await self._remove(keys=self._keys(tenants), args=[b"".join(gone[tenant_id]) for tenant_id in tenants])

    async def version(self) -> str:
        """The server's version; for a check of the settings."""
        info: Any = await self._redis.info("server")
        return str(info["redis_version"])

    async def close(self) -> None:
        await self._redis.aclose()

    def _keys(self, tenants: Iterable[UUID]) -> list[Any]:
        return [self._prefix + tenant_id.bytes for tenant_id in tenants]


def _milliseconds(instant: datetime) -> float:
    return instant.timestamp() * 1000


def _portions(tenant_ids: Iterable[UUID]) -> Iterator[list[UUID]]:
    tenants = list(tenant_ids)
    for start in range(0, len(tenants), _TENANTS):
        yield tenants[start : start + _TENANTS]
