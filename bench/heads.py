"""Heads: reading what is due costs the same beside anybody's backlog, also under an old transaction."""

import gc
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from bench.alone import alone
from bench.begin import median_ratio, old_transaction
from bench.frame import Measurement, Options, Screen
from bench.idle import new_database
from bench.report import Environment, Figure, Report, at_most, exactly, median_milliseconds
from bench.system import Connection, connected, opened, prepare
from tocsin.common.clock import SystemClock
from tocsin.common.ids import LANES, Ids
from tocsin.common.models import Priority
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import MARGIN_SECONDS, QueuePage
from tocsin.engine.read import EVERYTHING, ReadConfig
from tocsin.engine.tenant import PAGE

QUEUES = (100, 1000, 4000)
BACKLOGS = (0, 100_000, 1_000_000)
DUE_EACH = 2
PAIRS, SHORT_PAIRS = 60, 8
WARM_UP = 3
RATIO = 1.5

CHURNS, SHORT_CHURNS = 60, 10
"""How often the due rows of every queue are replaced while the old transaction is open: that many dead rows stand
before each that lives."""

CHURN_STEP = timedelta(minutes=1)

DUE = """
insert into pending (run_id, tenant_id, task_id, due_at, plan_version, priority, lane, kind)
select uuidv7(), t, gen_random_uuid(), now() - random() * interval '1 hour', 1, 2, n % 1024, 'backfill'
  from unnest($1::uuid[]) t, generate_series(1, $2::int) n
"""

_CHURN = """
with gone as (delete from pending where tenant_id = any($1) returning *)
insert into pending (run_id, tenant_id, task_id, due_at, plan_version, priority, lane, kind)
select uuidv7(), tenant_id, task_id, $2, plan_version, priority, lane, kind from gone
"""

Cell = tuple[int, int, str]
"""Queues, the backlog beside them, and how they were read."""

START, HELD_START, HELD_MARGIN = "from_start", "held_from_start", "held_from_margin"
"""From the queue's start, as at a take-over: without an old transaction, and with one. From the margin before what is
due, as at a sweep, with an old transaction: what was begun before stands before that."""

Seconds = Mapping[Cell, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Backlog:
    """A database where every tenant has one queue with a few runs due, and one more tenant the backlog."""

    dsn: str
    store: PostgresStore
    connection: Connection
    tenants: Sequence[UUID]
    crowded: UUID

    async def read(self, queues: int, since: datetime = EVERYTHING) -> tuple[float, int]:
        """Reads the heads of so many queues, the crowded one among them, in the portions of an owner that takes them
        over; seconds, and rows of the others."""
        config = ReadConfig()
        portion = config.batch // config.glance
        chosen = [self.crowded, *self.tenants[: queues - 1]]
        pages = [page(tenant_id, config.glance, since) for tenant_id in chosen]
        rows = 0
        began = time.perf_counter()
        for start in range(0, len(pages), portion):
            found = await self.store.runs.heads(pages[start : start + portion], config.lead)
            rows += sum(row.tenant_id != self.crowded for row in found)
        return time.perf_counter() - began, rows

    async def read_deep(self) -> float:
        """Reads one full page of the tenant with the backlog; seconds."""
        began = time.perf_counter()
        await self.store.runs.heads([page(self.crowded, PAGE)], ReadConfig().lead)
        return time.perf_counter() - began

    async def churn(self, times: int) -> datetime:
        """Replaces the due rows of all but the crowded queue again and again, each time by later ones, as begins and
        what they plant do; when the last are due."""
        now: datetime = await self.connection.fetchval("select now()")
        for number in range(times):
            await self.connection.execute(_CHURN, self.tenants, now - CHURN_STEP * (times - 1 - number))
        return now


def page(tenant_id: UUID, limit: int, since: datetime = EVERYTHING) -> QueuePage:
    """The first rows of a tenant's queue of normal priority, from its start or an instant on."""
    return QueuePage(tenant_id, Priority.NORMAL, 0, LANES, limit, since)


@asynccontextmanager
async def backlog(
    server_dsn: str, tenants: Sequence[UUID], crowded: UUID, size: int, each: int = DUE_EACH
) -> AsyncIterator[Backlog]:
    """A database where each of `tenants` has `each` runs due, and `crowded` has `size`."""
    async with (
        new_database(server_dsn, f"due_{size}") as dsn,
        opened(dsn) as store,
        connected(dsn) as connection,
    ):
        await prepare(dsn, store)
        await connection.execute(DUE, tenants, each)
        await connection.execute(DUE, [crowded], size)
        await connection.execute("vacuum analyze pending")
        yield Backlog(dsn, store, connection, tenants, crowded)


async def reads(
    backlogs: Mapping[int, Backlog], queues: Sequence[int], how: str, pairs: int, since: datetime = EVERYTHING
) -> tuple[dict[Cell, list[float]], set[bool]]:
    """Reads beside every backlog in turn; seconds, and whether each read found the rows that are there."""
    seconds: dict[Cell, list[float]] = {}
    right: set[bool] = set()
    for count in queues:
        for _ in range(WARM_UP + pairs):
            for size, each in backlogs.items():
                taken, rows = await each.read(count, since)
                seconds.setdefault((count, size, how), []).append(taken)
                right.add(rows == (count - 1) * DUE_EACH)
    return {cell: times[WARM_UP:] for cell, times in seconds.items()}, right


async def under_old_transactions(
    backlogs: Mapping[int, Backlog], queues: Sequence[int], churns: int, pairs: int
) -> tuple[dict[Cell, list[float]], set[bool]]:
    """The same with an old transaction in each database, and all due rows replaced `churns` times since."""
    async with AsyncExitStack() as stack:
        for each in backlogs.values():
            await stack.enter_async_context(old_transaction(each.dsn))
        due = max([await each.churn(churns) for each in backlogs.values()])
        start, right = await reads(backlogs, queues, HELD_START, pairs)
        margin = timedelta(seconds=MARGIN_SECONDS) + CHURN_STEP / 2
        on, also_right = await reads(backlogs, queues, HELD_MARGIN, pairs, due - margin)
    return start | on, right | also_right


async def run(options: Options, screen: Screen) -> Report:
    ids = Ids(SystemClock(), random.Random(options.seed))
    pairs = options.amount(SHORT_PAIRS if options.short else PAIRS, 3)
    queues = [options.amount(count, 2) for count in QUEUES]
    sizes = [options.amount(size, 0) for size in BACKLOGS]
    tenants = [ids.new() for _ in range(max(queues) - 1)]
    crowded = ids.new()
    gc.collect()
    gc.freeze()
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(alone(options))
        screen.say(f"seeding {', '.join(f'{size:,}' for size in sizes)} due runs of one tenant")
        backlogs = {size: await stack.enter_async_context(backlog(base.dsn, tenants, crowded, size)) for size in sizes}
        screen.say(f"{pairs} reads of the heads of {', '.join(f'{count:,}' for count in queues)} queues beside each")
        free, right = await reads(backlogs, queues, START, pairs)
        deep = [(await backlogs[sizes[1]].read_deep(), await backlogs[sizes[-1]].read_deep()) for _ in range(pairs)]
        screen.say("the same with an old transaction open and the due rows replaced again and again")
        churns = options.amount(SHORT_CHURNS if options.short else CHURNS, 3)
        held, also_right = await under_old_transactions(backlogs, queues, churns, pairs)
    return report(free | held, deep, right | also_right, base.environment)


def worst_ratio(seconds: Seconds) -> float:
    """The greatest, over all numbers of queues and ways of reading, of the times beside the largest backlog over those
    beside none."""
    sizes = [size for _, size, _ in seconds]
    least, most = min(sizes), max(sizes)
    return max(
        median_ratio(times, seconds[count, most, how]) for (count, size, how), times in seconds.items() if size == least
    )


def report(seconds: Seconds, deep: Sequence[tuple[float, float]], right: set[bool], where: Environment) -> Report:
    sizes = sorted({size for _, size, _ in seconds})
    return Report(
        test="heads",
        environment=where,
        targets=[
            at_most(f"time beside {sizes[-1]:,} due runs, times that beside {sizes[0]:,}", RATIO, worst_ratio(seconds)),
            exactly("reads with a wrong number of rows", 0, int(False in right)),
        ],
        figures={
            "rows_of_each_queue": DUE_EACH,
            "pairs": len(deep),
            **dict(_figures(seconds)),
            f"page_of_{PAGE}_ms_beside_{sizes[1]}": median_milliseconds(a for a, _ in deep),
            f"page_of_{PAGE}_ms_beside_{sizes[-1]}": median_milliseconds(b for _, b in deep),
        },
        not_meaning="a database that does not fit into memory. Under the old transaction what is dead stands before "
        "every queue's first row: a look from its start passes over that, a sweep does not meet it.",
    )


def _figures(seconds: Seconds) -> Iterator[tuple[str, Figure]]:
    for (count, size, how), times in seconds.items():
        yield f"ms_{count}_queues_beside_{size}_{how}", median_milliseconds(times)


MEASUREMENT = Measurement(
    "heads", "up to 4,000 queues' heads cost the same beside 1,000,000 due runs of one as beside none", run
)
