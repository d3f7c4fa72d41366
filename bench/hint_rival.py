"""The other shape, for comparison: many claimers on one range of one index, by SKIP LOCKED or by ids popped from Redis.

A table of its own, with a status column, as a queue without owners has it: nothing of it is the product's.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

from redis.asyncio import Redis

from bench.begin import old_transaction
from bench.system import Connection, connected

BATCH = 100
PEAKS = 3
"""How often the rows are claimed whole under an old transaction before what is measured."""

_KEY = "rival"

_TABLE = """
drop schema if exists rival cascade;
create schema rival;
create table rival.runs (id uuid primary key, due_at timestamptz not null, status smallint not null);
create index runs_due on rival.runs (due_at) where status = 0;
"""

_FILL = """
insert into rival.runs
select gen_random_uuid(), now() - random() * interval '1 minute', 0 from generate_series(1, $1::int)
"""

_SCAN = """
update rival.runs set status = 1
 where id in (select id from rival.runs where status = 0 and due_at <= now()
               order by due_at limit 100 for update skip locked)
returning id
"""

_BY_ID = """
update rival.runs set status = 1
 where id in (select id from rival.runs where id = any($1::uuid[]) and status = 0 for update skip locked)
returning id
"""

Claim = Callable[[Connection], Awaitable[int | None]]
"""Claims a batch and says how many rows it got; None: there is nothing left."""


async def fill(connection: Connection, rows: int) -> None:
    await connection.execute(_TABLE)
    await connection.execute(_FILL, rows)
    await connection.execute("vacuum analyze rival.runs")


async def scan(connection: Connection) -> int | None:
    return len(await connection.fetch(_SCAN)) or None


def popped(redis: Redis) -> Claim:
    async def claim(connection: Connection) -> int | None:
        entries: Any = await redis.zpopmin(_KEY, BATCH)
        if not entries:
            return None
        return len(await connection.fetch(_BY_ID, [UUID(bytes=entry[0]) for entry in entries]))

    return claim


async def rate(
    dsn: str, connection: Connection, redis_url: str, claimers: int, *, by_redis: bool, pinned: bool, seconds: float
) -> float:
    """Rows claimed a second by so many claimers, until nothing is left or `seconds` have gone by."""
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(Redis.from_url(redis_url))
        connections = [await stack.enter_async_context(connected(dsn)) for _ in range(claimers)]
        await connection.execute("update rival.runs set status = 0 where status = 1")
        await connection.execute("vacuum analyze rival.runs")
        if pinned:
            await stack.enter_async_context(old_transaction(dsn))
            for _ in range(PEAKS):
                await connection.execute("update rival.runs set status = 1 where status = 0")
                await connection.execute("update rival.runs set status = 0 where status = 1")
        claim = popped(redis) if by_redis else scan
        if by_redis:
            await redis.delete(_KEY)
            rows = await connection.fetch("select id, due_at from rival.runs where status = 0")
            scores = {row["id"].bytes: row["due_at"].timestamp() for row in rows}
            await redis.zadd(_KEY, scores)
        began = time.perf_counter()
        counts = await asyncio.gather(*(_claim_all(one, claim, began + seconds) for one in connections))
        return sum(counts) / (time.perf_counter() - began)


async def _claim_all(connection: Connection, claim: Claim, until: float) -> int:
    claimed = 0
    while time.perf_counter() < until and (count := await claim(connection)) is not None:
        claimed += count
    return claimed
