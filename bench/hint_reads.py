"""Reading what is due in two ways: looks at the queues, and ids from Redis that are looked up."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from bench.begin import old_transaction
from bench.system import Connection, opened
from tocsin.common.clock import SystemClock
from tocsin.common.hints.redis_index import RedisHints
from tocsin.common.ids import LANES
from tocsin.common.models import Priority
from tocsin.common.store.postgres.runs import pending_of
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import QueuePage
from tocsin.engine.read_config import ReadConfig

DUE_EACH = 2
CHURNS = 20
"""How often the due rows are replaced under an old transaction: each leaves its dead behind."""

_PATIENT = 20.0
_CONFIG = ReadConfig()

_DUE = """
insert into pending (run_id, tenant_id, task_id, due_at, plan_version, priority, lane, kind)
select uuidv7(), t, gen_random_uuid(), now() + random() * interval '4 s', 1, 2, n % 1024, 'backfill'
  from unnest($1::uuid[]) t, generate_series(1, $2::int) n
"""
"""All within what a look from the margin finds, for as long as a cell is measured."""

_CHURN = """
with gone as (delete from pending returning *)
insert into pending (run_id, tenant_id, task_id, due_at, plan_version, priority, lane, kind)
select uuidv7(), tenant_id, task_id, due_at, plan_version, priority, lane, kind from gone
"""

_ALL = """
select run_id, fence, tenant_id, task_id, priority, due_at, slot, last_slot, lane, kind, plan_version, losses
  from pending
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """`tenants` with a few runs due each, of which the first has `backlog` more; `executors` read at once, each its
    part of the tenants; `pinned`: beside an old transaction, after the due rows were replaced again and again."""

    tenants: int
    backlog: int
    executors: int
    pinned: bool

    def __str__(self) -> str:
        return f"t={self.tenants} b={self.backlog} x={self.executors}{' pinned' if self.pinned else ''}"


@dataclass(frozen=True, slots=True)
class Read:
    """`named` ids came from Redis (of a scan: as many as were found)."""

    seconds: float
    found: int
    named: int


@dataclass(frozen=True, slots=True)
class Reader:
    """What one executor has of both ways."""

    store: PostgresStore
    index: RedisHints
    tenants: Sequence[UUID]

    async def scan(self) -> tuple[int, int]:
        """A look at each queue from the margin, in the portions of an owner's sweep; rows found."""
        pages = [
            QueuePage(tenant_id, priority, 0, LANES, _CONFIG.glance, None)
            for tenant_id in self.tenants
            for priority in Priority
        ]
        portion = _CONFIG.batch // _CONFIG.glance
        found = 0
        for start in range(0, len(pages), portion):
            found += len(await self.store.runs.heads(pages[start : start + portion], _CONFIG.lead))
        return found, found

    async def hints(self) -> tuple[int, int]:
        """Ids of these tenants, looked up; rows found, ids named."""
        named = await self.index.due(self.tenants, _CONFIG.lead, _CONFIG.batch)
        rows = await self.store.runs.hinted(named, _CONFIG.lead) if named else []
        return len(rows), len(named)


@asynccontextmanager
async def readers(dsn: str, redis_url: str, tenants: Sequence[UUID], count: int) -> AsyncIterator[list[Reader]]:
    """So many executors' parts."""
    async with AsyncExitStack() as stack:
        made = []
        for number in range(count):
            store = await stack.enter_async_context(opened(dsn))
            index = RedisHints(redis_url, "bench", SystemClock().now, timeout=_PATIENT)
            stack.push_async_callback(index.close)
            made.append(Reader(store, index, tenants[number::count]))
        yield made


async def measure(
    dsn: str, connection: Connection, redis_url: str, tenants: Sequence[UUID], cell: Cell, times: int
) -> tuple[list[Read], list[Read]]:
    """Reads both ways in turn; scans, and reads by hints."""
    chosen = tenants[: cell.tenants]
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(readers(dsn, redis_url, chosen, cell.executors))
        await connection.execute("truncate pending")
        if cell.pinned:
            await stack.enter_async_context(old_transaction(dsn))
        await connection.execute(_DUE, chosen, DUE_EACH)
        await connection.execute(_DUE, chosen[:1], cell.backlog)
        for _ in range(CHURNS if cell.pinned else 0):
            await connection.execute(_CHURN)
        await connection.execute("analyze pending" if cell.pinned else "vacuum analyze pending")
        rows = [pending_of(row) for row in await connection.fetch(_ALL)]
        await made[0].index.add(rows)
        scans, hints = [], []
        for _ in range(times + 1):
            scans.append(await _timed(reader.scan() for reader in made))
            hints.append(await _timed(reader.hints() for reader in made))
        await made[0].index.remove([(row.tenant_id, row.run_id) for row in rows])
    return scans[1:], hints[1:]


async def _timed(reads: Iterable[Coroutine[None, None, tuple[int, int]]]) -> Read:
    """All at once."""
    began = time.perf_counter()
    results = await asyncio.gather(*reads)
    seconds = time.perf_counter() - began
    return Read(seconds, sum(found for found, _ in results), sum(named for _, named in results))
