"""Driving one load through the running product, and judging it."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias
from uuid import UUID

from bench.collector import SERIES, Collector, collecting, peaks, write_series
from bench.endpoint import Endpoint
from bench.environment import environment
from bench.frame import Options, Screen
from bench.ledger import Arrival, Judgement, Recorded, judge
from bench.load import Load, is_over, make_load, recorded, seed, seed_tenants
from bench.profile import SECONDS as PROFILED_SECONDS
from bench.profile import profiled
from bench.quotas import quotas
from bench.reach import REACHES, Reach
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

_SEEDED_A_SECOND = 4000
"""Tasks for each of which the lead is a second longer: they are to lie there when their first second comes."""

BEHIND_SECONDS = 0.2

_SHOWN = 10
"""Lines of the executors' warnings that are shown."""

DRAIN_SECONDS = 120.0
"""How long runs may take to end after the last was due; what has not ended then is lost."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one load. `behind` slots were first called later than `BEHIND_SECONDS` after its end: a backlog
    that grew. `processor` gives processor seconds by part, `wal_bytes` and `commits` what the database wrote, over the
    `elapsed` seconds that were counted, in which `arrived` calls came."""

    rate: int
    seconds: int
    judgement: Judgement
    arrived: int
    behind: int
    processor: dict[str, float]
    wal_bytes: int
    commits: int
    elapsed: float


@dataclass(frozen=True, slots=True)
class Played:
    """A load that has been run, with both ledgers. Counts go from Unix second `counted` to the load's end."""

    load: Load
    arrivals: Sequence[Arrival]
    history: Sequence[Recorded]
    counted: float
    processor: dict[str, float]
    wal_bytes: int
    commits: int
    elapsed: float

    def outcome(self) -> Outcome:
        end = self.load.end.timestamp()
        in_time = {(a.task_id, a.slot) for a in self.arrivals if a.at < end + BEHIND_SECONDS}
        return Outcome(
            rate=self.load.rate,
            seconds=self.load.seconds,
            judgement=judge(self.load.expected(), self.arrivals, self.history),
            arrived=sum(1 for arrival in self.arrivals if self.counted <= arrival.at < end),
            behind=self.load.runs - len(in_time),
            processor=self.processor,
            wal_bytes=self.wal_bytes,
            commits=self.commits,
            elapsed=self.elapsed,
        )


Meanwhile: TypeAlias = Callable[[Load], Awaitable[None]]
"""Runs beside a load, from its first slot on; the load is not over before it ends."""


async def _nothing(load: Load) -> None:
    """Nothing happens meanwhile."""


@dataclass(slots=True)
class Rig:
    """The running product with an endpoint beside it, ready for loads. `dsn` and `connection` lead to the database
    itself, whatever lies between it and the executors; `pids` are the processes by part."""

    options: Options
    dsn: str
    connection: Connection
    endpoint: Endpoint
    tenants: Sequence[UUID]
    ids: Ids
    screen: Screen
    processor: Processor
    collector: Collector
    pids: Mapping[str, Sequence[int]]
    environment: Environment
    loads: int = 0

    async def drive(self, rate: int, seconds: int, path: str = "", settle: int = 0) -> Outcome:
        """`rate` runs a second for `seconds` seconds, and the judgement on them once all have ended.

        `path` tells the endpoint how to behave. Costs are counted from `settle` seconds after the first slot on.
        """
        load = await self.seeded(rate, seconds, path)
        return await asyncio.to_thread((await self.play(load, settle)).outcome)

    async def seeded(self, rate: int, seconds: int, path: str = "", lead: int = LEAD_SECONDS) -> Load:
        """Puts the tasks in, whose first slot is `lead` to `lead` + 1 seconds from now, and later for many tasks."""
        self.loads += 1
        first = await self.instant(lead + rate // _SEEDED_A_SECOND)
        url = self.endpoint.url + path
        load = make_load(f"load {self.loads}", self.ids, self.tenants, rate, first, seconds, url)
        await seed(self.connection, self.ids, load)
        return load

    async def play(self, load: Load, settle: int = 0, meanwhile: Meanwhile = _nothing) -> Played:
        """Waits until all of it has ended, and reads both ledgers."""
        text = f"{load.rate:,} runs/s for {load.seconds} s"
        await self.screen.wait(f"{text}: seeded", await self.until(load.first + timedelta(seconds=settle)))
        self.processor.since()
        before = await self._database_counts()
        # Not at once with what asks the database: they share a connection.
        left = await self.until(load.end)
        await asyncio.gather(self.screen.wait(text, left), meanwhile(load))
        after, processor = await self._database_counts(), self.processor.since()
        await self.screen.wait(f"{text}: the last to end", DRAIN_SECONDS, lambda: is_over(self.connection))
        return Played(
            load=load,
            arrivals=await self.endpoint.take(),
            history=await recorded(self.connection, load),
            counted=before[2],
            processor=processor,
            wal_bytes=after[0] - before[0],
            commits=after[1] - before[1],
            elapsed=after[2] - before[2],
        )

    async def instant(self, lead: int) -> datetime:
        """The whole second that is `lead` to `lead` + 1 seconds from now, by the database's clock."""
        now: datetime = await self.connection.fetchval("select clock_timestamp()")
        return now.replace(microsecond=0) + timedelta(seconds=lead + 1)

    async def until(self, instant: datetime) -> float:
        """Seconds until then, by the database's clock."""
        now: datetime = await self.connection.fetchval("select clock_timestamp()")
        return max(0.0, (instant - now).total_seconds())

    async def profiled(self, rate: int, path: str = "") -> dict[str, str]:
        """Records the executors while they run at this rate, where that was asked for; figures for the report."""
        pids = {f"executor-{n}": pid for n, pid in enumerate(await executor_pids(self.connection))}

        async def busy(record: Callable[[], Awaitable[None]]) -> None:
            load = await self.seeded(rate, PROFILED_SECONDS + 4, path)
            await self.play(load, 2, lambda load: record())

        return await profiled(self.options, pids, busy)

    def usage(self) -> dict[str, Figure]:
        """The peaks of what was used so far."""
        return peaks(self.collector.rows)

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
    make_endpoint: Callable[[Path], Endpoint] = Endpoint,
    part: str = "",
) -> AsyncIterator[Rig]:
    """Starts everything, with `tenants` tenants, and ends it afterwards.

    Executors reach the database by `reach`, or as `options.network` says. `settings` are environment variables of
    theirs; those that the endpoint asks for are added. `part` names these rows in the series.
    """
    ids = Ids(SystemClock(), random.Random(options.seed))
    async with (
        work_folder(options.work_dir) as folder,
        quotas(options.quotas) as limits,
        server(folder) as postgres,
        make_endpoint(folder) as endpoint,
        (reach or REACHES[options.network])(postgres.dsn) as reached,
        opened(postgres.dsn) as store,
        connected(postgres.dsn) as connection,
    ):
        settings = {**settings, **endpoint.settings}
        executors = chosen(options, folder, settings)
        what = f"{options.executors} executor{'s' if options.executors != 1 else ''}, {executors.runtime}"
        await prepare(postgres.dsn, store)
        made = await seed_tenants(store, ids, tenants)
        where = {
            **await environment(connection, folder, runtime=what),
            **reached.environment(),
            "quotas": limits.text,
            "settings": dict(settings),
        }
        screen.say(f"starting {what}")
        async with running(executors, reached.dsn, options.executors, connection):
            assert postgres.pid is not None
            pids = await executor_pids(connection)
            groups = {
                "executors": pids,
                "database": [postgres.pid],
                "endpoint": endpoint.pids,
                "proxy": reached.pids,
                "ray": executors.overhead(),
            }
            limits.limit("executor", pids)
            limits.limit("database", [postgres.pid])
            async with collecting(postgres.dsn, groups, limits.throttled) as collector:
                yield Rig(
                    *(options, postgres.dsn, connection, endpoint, made, ids, screen),
                    *(Processor(groups), collector, groups, where),
                )
            if (series := options.beside(SERIES)) is not None:
                await asyncio.to_thread(write_series, series, part, collector.rows)
            _tell(screen, complaints(executors))


def _tell(screen: Screen, said: Sequence[str]) -> None:
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
