"""Hints: whether ids from Redis find due runs faster than looks at the queues do; three answers, side by side."""

import random
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rich.table import Table

from bench import hint_rival
from bench.alone import alone
from bench.frame import Measurement, Options, Screen
from bench.hint_auto import Chosen, drive
from bench.hint_charts import Row, hint_charts
from bench.hint_reads import Cell, Read, measure
from bench.idle import new_database
from bench.load import seed_tenants
from bench.reach import REDIS_REACHES
from bench.report import Figure, Report, exactly, median_milliseconds
from bench.system import connected, opened, prepare
from tocsin.cli.node import collect_garbage_rarely
from tocsin.cli.redis_server import RedisServer
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids

TENANTS, SHORT_TENANTS = (100, 1000, 4000), (100, 1000)
BACKLOGS, SHORT_BACKLOGS = (0, 10_000, 100_000), (0, 10_000)
EXECUTORS, SHORT_EXECUTORS = (1, 8), (4,)
READS, SHORT_READS = 10, 4

CLAIMERS, SHORT_CLAIMERS = (1, 2, 4, 8, 16, 32, 64), (1, 32)
RIVAL_ROWS, SHORT_RIVAL_ROWS = 100_000, 20_000
RIVAL_SECONDS, SHORT_RIVAL_SECONDS = 10.0, 2.0

AUTO_RATE, AUTO_TENANTS = 500, 500
AUTO_SECONDS, SHORT_AUTO_SECONDS = 120, 25
"""A verdict needs five reads of each way; one comes every two seconds, and the ways take turns until there is one."""


@asynccontextmanager
async def redis() -> AsyncIterator[RedisServer]:
    """A Redis as `tocsin up` runs it."""
    with tempfile.TemporaryDirectory(prefix="tocsin-redis-", dir="/tmp") as folder:  # its socket needs a short path
        instance = RedisServer(Path(folder))
        await instance.start()
        try:
            yield instance
        finally:
            await instance.stop()


def cells(options: Options) -> list[Cell]:
    short = options.short
    return [
        Cell(options.amount(tenants, 10), options.amount(backlog, 0), executors, pinned)
        for tenants in (SHORT_TENANTS if short else TENANTS)
        for backlog in (SHORT_BACKLOGS if short else BACKLOGS)
        for executors in (SHORT_EXECUTORS if short else EXECUTORS)
        for pinned in (False, True)
    ]


async def run(options: Options, screen: Screen) -> Report:
    ids = Ids(SystemClock(), random.Random(options.seed))
    collect_garbage_rarely()  # as an executor does
    figures: dict[str, Figure] = {}
    async with (
        alone(options, "one process for all readers and claimers") as base,
        redis() as index,
        REDIS_REACHES[options.network](index.url) as reached,
    ):
        where = {**base.environment, **reached.environment("redis_network")}
        reads, wrong = await _reads(options, screen, base.dsn, reached.dsn, ids, figures)
        rival = await _rival(options, screen, base.dsn, reached.dsn, figures)
        chosen = await _auto(options, screen, base.dsn, reached.dsn, ids, base.folder)
    figures |= auto_figures(chosen)
    return Report(
        test="hints",
        environment=where,
        targets=[
            exactly("ids from Redis that were not pending", 0, wrong),
            exactly("lost under auto", 0, chosen.judgement.lost),
            exactly("duplicates under auto", 0, chosen.judgement.duplicates),
        ],
        figures=figures,
        lost=chosen.judgement.lost,
        duplicates=chosen.judgement.duplicates,
        charts=hint_charts(reads, rival),
        not_meaning="executors on machines of their own: here readers and claimers share one Python process, and all "
        "of it one machine with both servers, so a round trip costs next to nothing"
        + (" but for the proxies' millisecond" if options.network == "az" else "")
        + ". The reads are timed alone: what "
        "keeping the index up to date costs is in no row of them. The other shape is nobody's product: one table, one "
        "index range, one statement a claim.",
    )


async def _reads(
    options: Options, screen: Screen, server_dsn: str, redis_url: str, ids: Ids, figures: dict[str, Figure]
) -> tuple[list[Row], int]:
    """The table of both ways; how many ids were named that were not found."""
    wanted = cells(options)
    tenants = [ids.new() for _ in range(max(cell.tenants for cell in wanted))]
    table = Table("tenants", "backlog", "executors", "pinned", "scan ms", "hints ms", "scan us/row", "hints us/row")
    rows: list[Row] = []
    wrong = 0
    async with new_database(server_dsn, "hint_reads") as dsn, connected(dsn) as connection:
        async with opened(dsn) as store:
            await prepare(dsn, store)
        for cell in wanted:
            screen.say(f"reads: {cell}")
            times = SHORT_READS if options.short else READS
            scans, hints = await measure(dsn, connection, redis_url, tenants, cell, times)
            wrong += sum(read.named - read.found for read in hints)
            both = {"scan": scans, "hints": hints}
            found = {
                way: (median_milliseconds(read.seconds for read in reads), _us_a_row(reads))
                for way, reads in both.items()
            }
            figures |= {f"{way} ms, {cell}": ms for way, (ms, _) in found.items()}
            figures |= {f"{way} us a row, {cell}": us for way, (_, us) in found.items()}
            row = (cell.tenants, cell.backlog, cell.executors, cell.pinned)
            numbers = (found["scan"][0], found["hints"][0], found["scan"][1], found["hints"][1])
            rows.append((*row, *numbers))
            table.add_row(*map(str, row), *map(str, numbers))
    screen.console.print(table)
    return rows, wrong


def _us_a_row(reads: Sequence[Read]) -> float:
    """Of medians; a read that finds nothing counts as one row."""
    rows = max(1.0, statistics.median(read.found for read in reads))
    return round(1e6 * statistics.median(read.seconds for read in reads) / rows, 1)


async def _rival(
    options: Options, screen: Screen, server_dsn: str, redis_url: str, figures: dict[str, Figure]
) -> list[Row]:
    seconds = SHORT_RIVAL_SECONDS if options.short else RIVAL_SECONDS
    table = Table("claimers", "pinned", "scan rows/s", "ids from Redis rows/s", title="the other shape")
    rows: list[Row] = []
    async with new_database(server_dsn, "hint_rival") as dsn, connected(dsn) as connection, opened(dsn) as store:
        await prepare(dsn, store)
        await hint_rival.fill(connection, options.amount(SHORT_RIVAL_ROWS if options.short else RIVAL_ROWS, 1000))
        for claimers in SHORT_CLAIMERS if options.short else CLAIMERS:
            for pinned in (False, True):
                screen.say(f"the other shape: {claimers} claimers{', an old transaction open' if pinned else ''}")
                rates = [
                    round(
                        await hint_rival.rate(
                            *(dsn, connection, redis_url, claimers), by_redis=by_redis, pinned=pinned, seconds=seconds
                        )
                    )
                    for by_redis in (False, True)
                ]
                where = f"{claimers} claimers{' pinned' if pinned else ''}"
                figures |= {f"rival scan rows/s, {where}": rates[0], f"rival redis rows/s, {where}": rates[1]}
                rows.append((claimers, pinned, *rates))
                table.add_row(str(claimers), str(pinned), *map(str, rates))
    screen.console.print(table)
    return rows


async def _auto(options: Options, screen: Screen, server_dsn: str, redis_url: str, ids: Ids, folder: Path) -> Chosen:
    async with new_database(server_dsn, "hint_auto") as dsn, connected(dsn) as connection, opened(dsn) as store:
        await prepare(dsn, store)
        tenants = await seed_tenants(store, ids, options.amount(AUTO_TENANTS, 5))
        seconds = options.amount(SHORT_AUTO_SECONDS if options.short else AUTO_SECONDS, 5)
        rate = options.amount(AUTO_RATE, 10)
        return await drive(dsn, redis_url, connection, folder, tenants, ids, rate, seconds, screen)


def auto_figures(chosen: Chosen) -> dict[str, Figure]:
    milliseconds = {f"auto ms a read, {path}": round(each, 3) for path, each in sorted(chosen.milliseconds.items())}
    reads = {f"auto reads, {path}": count for path, count in sorted(chosen.reads.items())}
    return {"auto chose": "the index" if chosen.verdict else "the scan", **milliseconds, **reads}


MEASUREMENT = Measurement("hints", "ids from Redis against looks at the queues, and what auto chooses", run)
