"""Retention: dropping a day's partition, as the product does, against a DELETE of the same rows."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from bench.alone import alone
from bench.completion import RunningDatabase, running_database
from bench.frame import Measurement, Options, Screen
from bench.report import Environment, Figure, Report, at_most, exactly, milliseconds
from bench.system import Connection, connected
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids

ROWS, SHORT_ROWS = 1_000_000, 500_000
REPEATS, SHORT_REPEATS = 5, 1
BATCH = 10
"""Runs of each completion beside it."""

QUIET_SECONDS = 2.0
"""For which completions are timed with nothing beside them."""

AGE_DAYS = 30
COST_RATIO = 0.1
LONGEST_WAIT = 0.5
"""Seconds. Retention waits for its lock for 0.2 s at most, and completions queue behind it."""

_FILL = """
insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, started_at, fence, losses, http_status, sent,
                     kind, state, outcome, lease_id)
select uuidv7(), gen_random_uuid(), gen_random_uuid(), at, at, date_trunc('second', at), at, 1, 0, 200, true,
       'slot', 'succeeded', 'success', $3::uuid
  from (select $1::timestamptz + n * interval '1 day' / $2::int as at from generate_series(0, $2::int - 1) n) rows
"""

_DELETE = "delete from history where ended_at >= $1 and ended_at < $2"

_LEFT = "select count(*) from history where ended_at >= $1 and ended_at < $2"

_TRIES = 50

_DEAD = """
select coalesce(sum(n_dead_tup), 0)::int8 from pg_stat_user_tables where relname ~ '^history_'
"""


@dataclass(frozen=True, slots=True)
class Removal:
    """What it took to remove a day of history: seconds, bytes of WAL, the dead rows that it left to vacuum, and the
    seconds and WAL of that vacuum."""

    seconds: float
    wal_bytes: int
    dead_rows: int
    vacuum_seconds: float
    vacuum_wal_bytes: int


@dataclass(frozen=True, slots=True)
class Removals:
    """Of each way: removals with nothing beside them; and, in seconds, the longest completion beside each further one.

    `waits_alone`: the longest completion in spells with nothing beside it. `left`: rows that a removal left there.
    """

    dropped: Sequence[Removal]
    deleted: Sequence[Removal]
    waits_alone: Sequence[float]
    waits_dropped: Sequence[float]
    waits_deleted: Sequence[float]
    left: int


@dataclass(frozen=True, slots=True)
class Aging:
    """A database where runs are completed, and a second connection to it, which removes history."""

    running: RunningDatabase
    connection: Connection
    day: date

    async def fill(self, rows: int) -> None:
        """A partition of the day, with as many rows."""
        await self.running.store.history.keep(self.day + timedelta(days=1), -1)  # that day's yesterday alone
        await self.connection.execute(_FILL, self.first, rows, self.running.lease_id)
        await self.connection.execute("vacuum analyze history")
        await self.connection.execute("checkpoint")

    async def drop(self) -> None:
        """The product's way; where it does not have its lock soon, it leaves that for the next time."""
        for _ in range(_TRIES):
            if await self.running.store.history.expire(AGE_DAYS):
                return

    async def delete(self) -> None:
        """The way that was not taken."""
        await self.connection.execute(_DELETE, self.first, self.end)

    async def left(self) -> int:
        """Rows of the day; what is left of its partition is removed."""
        rows: int = await self.connection.fetchval(_LEFT, self.first, self.end)
        await self.running.store.history.expire(AGE_DAYS)
        return rows

    async def wal(self) -> int:
        """Bytes written so far."""
        position: int = await self.connection.fetchval("select (pg_current_wal_lsn() - '0/0'::pg_lsn)::int8")
        return position

    @property
    def first(self) -> datetime:
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        return self.first + timedelta(days=1)


Remove = Callable[[Aging], Awaitable[None]]


async def removal(aging: Aging, remove: Remove) -> Removal:
    """Removes the day with nothing beside it, and vacuums what is left."""
    began, wal = time.perf_counter(), await aging.wal()
    await remove(aging)
    seconds, wal_bytes = time.perf_counter() - began, await aging.wal() - wal
    await aging.connection.execute("select pg_stat_force_next_flush()")
    dead: int = await aging.connection.fetchval(_DEAD)
    began, wal = time.perf_counter(), await aging.wal()
    await aging.connection.execute("vacuum history")
    return Removal(seconds, wal_bytes, dead, time.perf_counter() - began, await aging.wal() - wal)


async def longest_wait(running: RunningDatabase, meanwhile: Awaitable[None]) -> float:
    """The longest completion, in seconds, of those that go on from before `meanwhile` until after its end."""
    longest = await running.complete("terminal", BATCH)
    task = asyncio.ensure_future(meanwhile)
    while not task.done():
        longest = max(longest, await running.complete("terminal", BATCH))
    await task
    return max(longest, await running.complete("terminal", BATCH))


async def removals(aging: Aging, rows: int, repeats: int, quiet: float) -> Removals:
    """Both ways in turn, `repeats` times, each alone and beside completions; completions alone for `quiet` seconds."""
    ways: Sequence[Remove] = (Aging.drop, Aging.delete)
    found: dict[Remove, list[Removal]] = {way: [] for way in ways}
    waits: dict[Remove, list[float]] = {way: [] for way in ways}
    alone: list[float] = []
    left = 0
    for _ in range(repeats):
        for way in ways:
            await aging.fill(rows)
            found[way].append(await removal(aging, way))
            left += await aging.left()
            await aging.fill(rows)
            waits[way].append(await longest_wait(aging.running, way(aging)))
            left += await aging.left()
        alone.append(await longest_wait(aging.running, asyncio.sleep(quiet)))
    return Removals(found[Aging.drop], found[Aging.delete], alone, waits[Aging.drop], waits[Aging.delete], left)


async def aging_of(running: RunningDatabase, connection: Connection) -> Aging:
    now: datetime = await connection.fetchval("select now()")
    return Aging(running, connection, now.astimezone(UTC).date() - timedelta(days=AGE_DAYS + 10))


async def run(options: Options, screen: Screen) -> Report:
    ids = Ids(SystemClock(), random.Random(options.seed))
    rows = options.amount(SHORT_ROWS if options.short else ROWS)
    repeats = options.amount(SHORT_REPEATS if options.short else REPEATS)
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(alone(options))
        running = await stack.enter_async_context(running_database(base.dsn, "aging", ids))
        connection = await stack.enter_async_context(connected(running.dsn))
        screen.say(f"{repeats} times {rows:,} rows of history dropped, and deleted, alone and beside completions")
        found = await removals(await aging_of(running, connection), rows, repeats, QUIET_SECONDS * options.scale)
    return report(found, rows, running.asked - running.applied, base.environment)


def cost_ratio(found: Removals, cost: Callable[[Removal], float]) -> float:
    """The median cost of a drop over that of a DELETE; what a DELETE leaves to vacuum counts as its own."""
    return statistics.median(map(cost, found.dropped)) / statistics.median(map(cost, found.deleted))


def whole_seconds(removal: Removal) -> float:
    return removal.seconds + removal.vacuum_seconds


def whole_wal(removal: Removal) -> float:
    return removal.wal_bytes + removal.vacuum_wal_bytes


def report(found: Removals, rows: int, lost: int, where: Environment) -> Report:
    longest = statistics.median(found.waits_dropped)
    figures: dict[str, Figure] = {
        "rows": rows,
        "repeats": len(found.dropped),
        "longest_completion_alone_ms": milliseconds(statistics.median(found.waits_alone)),
        "longest_completion_beside_drop_ms": milliseconds(longest),
        "longest_completion_beside_delete_ms": milliseconds(statistics.median(found.waits_deleted)),
    }
    for name, each in (("drop", found.dropped), ("delete", found.deleted)):
        figures |= {
            f"{name}_ms": milliseconds(statistics.median(one.seconds for one in each)),
            f"{name}_wal_bytes": round(statistics.median(one.wal_bytes for one in each)),
            f"{name}_dead_rows": round(statistics.median(one.dead_rows for one in each)),
            f"{name}_vacuum_ms": milliseconds(statistics.median(one.vacuum_seconds for one in each)),
            f"{name}_vacuum_wal_bytes": round(statistics.median(one.vacuum_wal_bytes for one in each)),
        }
    return Report(
        test="retention",
        environment=where,
        targets=[
            at_most("WAL of a drop, times that of a DELETE and its vacuum", COST_RATIO, cost_ratio(found, whole_wal)),
            at_most(
                "time of a drop, times that of a DELETE and its vacuum", COST_RATIO, cost_ratio(found, whole_seconds)
            ),
            exactly("dead rows that drops left", 0, sum(one.dead_rows for one in found.dropped)),
            at_most("longest completion beside a drop", LONGEST_WAIT, longest, "s"),
            exactly("rows that a removal left", 0, found.left),
        ],
        figures=figures,
        lost=lost,
        not_meaning="a history that readers hold open: a drop waits 0.2 s for its lock and is else left for the next "
        "time. A DELETE in small parts would hold up nobody either, and cost as much WAL and vacuum.",
    )


MEASUREMENT = Measurement("retention", "a day of history: its partition dropped, against a DELETE of its rows", run)
