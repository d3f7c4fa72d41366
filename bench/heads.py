"""Heads: reading what is due costs the same beside anybody's backlog."""

import gc
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from bench.begin import median_ratio
from bench.environment import environment
from bench.frame import Measurement, Options, Screen
from bench.idle import new_database
from bench.report import Report, at_most, exactly
from bench.system import connected, opened, prepare, server, work_folder
from tocsin.common.clock import SystemClock
from tocsin.common.ids import LANES, Ids
from tocsin.common.models import Priority
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import QueuePage
from tocsin.engine.read import EVERYTHING, ReadConfig
from tocsin.engine.tenant import PAGE

TENANTS = 1000
SMALL, LARGE = 1_000, 1_000_000
DUE_EACH = 2
PAIRS, SHORT_PAIRS = 60, 20
WARM_UP = 3
RATIO = 1.3

_DUE = """
insert into pending (run_id, tenant_id, task_id, due_at, plan_version, priority, lane, kind)
select uuidv7(), t, gen_random_uuid(), now() - random() * interval '1 hour', 1, 2, n % 1024, 'backfill'
  from unnest($1::uuid[]) t, generate_series(1, $2::int) n
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """A database where every tenant has a few runs due, and the first of them `size` more."""

    store: PostgresStore
    tenants: Sequence[UUID]

    async def read(self) -> tuple[float, int]:
        """Reads every tenant's heads, in the portions of an owner that takes them over; seconds and rows."""
        config = ReadConfig()
        portion = config.batch // config.glance
        pages = [page(tenant_id, config.glance) for tenant_id in self.tenants]
        rows = 0
        began = time.perf_counter()
        for start in range(0, len(pages), portion):
            rows += len(await self.store.runs.heads(pages[start : start + portion], config.lead))
        return time.perf_counter() - began, rows

    async def read_deep(self) -> float:
        """Reads one full page of the tenant with the backlog; seconds."""
        began = time.perf_counter()
        await self.store.runs.heads([page(self.tenants[0], PAGE)], ReadConfig().lead)
        return time.perf_counter() - began


def page(tenant_id: UUID, limit: int) -> QueuePage:
    """The first rows of a tenant's queue of normal priority, from its start."""
    return QueuePage(tenant_id, Priority.NORMAL, 0, LANES, limit, EVERYTHING)


@asynccontextmanager
async def backlog(server_dsn: str, tenants: Sequence[UUID], size: int) -> AsyncIterator[Backlog]:
    async with (
        new_database(server_dsn, f"due_{size}") as dsn,
        opened(dsn) as store,
        connected(dsn) as connection,
    ):
        await prepare(dsn, store)
        await connection.execute(_DUE, tenants, DUE_EACH)
        await connection.execute(_DUE, tenants[:1], size)
        await connection.execute("vacuum analyze pending")
        yield Backlog(store, tenants)


async def run(options: Options, screen: Screen) -> Report:
    ids = Ids(SystemClock(), random.Random(options.seed))
    count = SHORT_PAIRS if options.short else PAIRS
    tenants = [ids.new() for _ in range(options.amount(TENANTS))]
    small, large = options.amount(SMALL), options.amount(LARGE)
    gc.collect()
    gc.freeze()
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(work_folder(options.work_dir))
        postgres = await stack.enter_async_context(server(folder))
        connection = await stack.enter_async_context(connected(postgres.dsn))
        where = await environment(connection, folder, runtime="the store's methods from one process")
        screen.say(f"seeding {small:,} and {large:,} due runs of one tenant")
        few = await stack.enter_async_context(backlog(postgres.dsn, tenants, small))
        many = await stack.enter_async_context(backlog(postgres.dsn, tenants, large))
        screen.say(f"{count} pairs of reads of {len(tenants):,} tenants' heads")
        for _ in range(WARM_UP):
            await few.read()
            await many.read()
        taken = [(await few.read(), await many.read()) for _ in range(count)]
        deep = [(await few.read_deep(), await many.read_deep()) for _ in range(count)]
    seconds = [(a[0], b[0]) for a, b in taken]
    ratio = median_ratio(*zip(*seconds, strict=True))
    rows = {read[1] for pair in taken for read in pair}
    wanted = (len(tenants) - 1) * DUE_EACH + min(ReadConfig().glance, small + DUE_EACH)
    return Report(
        test="heads",
        environment=where,
        targets=[
            at_most(f"time beside {large:,} due runs, times that beside {small:,}", RATIO, ratio),
            exactly("reads with a wrong number of rows", 0, len(rows - {wanted})),
        ],
        figures={
            "tenants": len(tenants),
            "rows_read": wanted,
            "pairs": count,
            "beside_few_ms": round(statistics.median(a for a, _ in seconds) * 1000, 2),
            "beside_many_ms": round(statistics.median(b for _, b in seconds) * 1000, 2),
            "one_page_beside_few_ms": round(statistics.median(a for a, _ in deep) * 1000, 3),
            "one_page_beside_many_ms": round(statistics.median(b for _, b in deep) * 1000, 3),
            "one_page_rows": PAGE,
        },
        not_meaning="a database that does not fit into memory, or one with many dead rows.",
    )


MEASUREMENT = Measurement("heads", "1,000 tenants' heads cost the same beside 1,000 and 1,000,000 due runs of one", run)
