"""Driving one load through the running product, and judging it."""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from uuid import UUID

from bench.endpoint import Endpoint
from bench.environment import environment
from bench.frame import Options, Screen
from bench.ledger import Judgement, judge
from bench.load import is_over, make_load, recorded, seed, seed_tenants
from bench.network import Reach
from bench.report import Environment, Figure
from bench.runtimes import chosen
from bench.system import (
    Connection,
    Processor,
    complaints,
    connected,
    executor_pids,
    opened,
    prepare,
    running,
    server,
    work_folder,
)
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids

LEAD_SECONDS = 3
"""From the seeding of tasks to their first slot: longer than a sweep's turn of two seconds."""

BEHIND_SECONDS = 0.2

_SHOWN = 10
"""Lines of the executors' warnings that are shown."""

DRAIN_SECONDS = 120.0
"""How long runs may take to end after the last was due; what has not ended then is lost."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one load. `arrived` calls came between its first slot and its end, `behind` slots were first
    called later than `BEHIND_SECONDS` after the end: a backlog that grew. `processor` gives processor seconds by
    part, `wal_bytes` and `commits` what the database wrote, over `elapsed` seconds."""

    rate: int
    seconds: int
    judgement: Judgement
    arrived: int
    behind: int
    processor: dict[str, float]
    wal_bytes: int
    commits: int
    elapsed: float


@dataclass(slots=True)
class Rig:
    """The running product with an endpoint beside it, ready for loads."""

    dsn: str
    connection: Connection
    endpoint: Endpoint
    tenants: Sequence[UUID]
    ids: Ids
    screen: Screen
    processor: Processor
    environment: Environment
    loads: int = 0

    async def drive(self, rate: int, seconds: int) -> Outcome:
        """`rate` runs a second for `seconds` seconds, and the judgement on them once all have ended."""
        self.loads += 1
        now: datetime = await self.connection.fetchval("select clock_timestamp()")
        first = now.replace(microsecond=0) + timedelta(seconds=LEAD_SECONDS + 1)
        load = make_load(f"load {self.loads}", self.ids, self.tenants, rate, first, seconds, self.endpoint.url)
        await seed(self.connection, self.ids, load)
        text = f"{rate:,} runs/s for {seconds} s"
        await self.screen.wait(f"{text}: seeded", await self.until(load.first))
        self.processor.since()
        before = await self._database_counts()
        await self.screen.wait(text, await self.until(load.end))
        after, processor = await self._database_counts(), self.processor.since()
        await self.screen.wait(f"{text}: the last to end", DRAIN_SECONDS, lambda: is_over(self.connection))
        arrivals = await self.endpoint.take()
        first_at, end_at = load.first.timestamp(), load.end.timestamp()
        return Outcome(
            rate=rate,
            seconds=seconds,
            judgement=judge(load.expected(), arrivals, await recorded(self.connection, load)),
            arrived=sum(1 for arrival in arrivals if first_at <= arrival.at < end_at),
            behind=load.runs - len({(a.task_id, a.slot) for a in arrivals if a.at < end_at + BEHIND_SECONDS}),
            processor=processor,
            wal_bytes=after[0] - before[0],
            commits=after[1] - before[1],
            elapsed=after[2] - before[2],
        )

    async def until(self, instant: datetime) -> float:
        now: datetime = await self.connection.fetchval("select clock_timestamp()")
        return max(0.0, (instant - now).total_seconds())

    async def _database_counts(self) -> tuple[int, int, float]:
        row = await self.connection.fetchrow(
            "select (pg_current_wal_lsn() - '0/0'::pg_lsn)::int8, xact_commit,"
            " extract(epoch from clock_timestamp())::float8 from pg_stat_database where datname = current_database()"
        )
        assert row is not None
        return row[0], row[1], row[2]


@asynccontextmanager
async def rig(
    options: Options,
    screen: Screen,
    tenants: int,
    *,
    reach: Reach | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Rig]:
    """Starts everything, with `tenants` tenants, and ends it afterwards.

    Executors reach the database by `reach`, or as `options.network` says. `settings` are environment variables of
    theirs.
    """
    ids = Ids(SystemClock(), random.Random(options.seed))
    async with work_folder(options.work_dir) as folder, server(folder) as postgres, Endpoint(folder) as endpoint:
        dsn = postgres.dsn
        executors = chosen(options, folder, settings)
        what = f"{options.executors} executor{'s' if options.executors != 1 else ''}, {executors.runtime}"
        async with opened(dsn) as store, connected(dsn) as connection:
            await prepare(dsn, store)
            made = await seed_tenants(store, ids, tenants)
            where = {**await environment(connection, folder, runtime=what), "settings": dict(settings)}
            screen.say(f"starting {what}")
            async with running(executors, dsn, options.executors, connection):
                assert postgres.pid is not None
                groups = {
                    "executors": await executor_pids(connection),
                    "database": [postgres.pid],
                    "endpoint": [endpoint.pid],
                    "ray": executors.overhead(),
                }
                yield Rig(dsn, connection, endpoint, made, ids, screen, Processor(groups), where)
                said = complaints(executors)
                for line in said[:_SHOWN]:
                    screen.say(line)
                if said[_SHOWN:]:
                    screen.say(f"... and {len(said) - _SHOWN:,} more lines of warnings")


def judgement_figures(judgement: Judgement) -> dict[str, Figure]:
    """The counts that must be 0, and what they were counted over."""
    return {
        "runs": judgement.expected,
        "skipped": judgement.skipped,
        "failed": judgement.failed,
        "strangers": judgement.strangers,
        "early": judgement.early,
        "unseen": judgement.unseen,
        **({"examples": "; ".join(judgement.examples)} if judgement.examples else {}),
    }
