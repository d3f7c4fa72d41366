"""What every part of the system used, every two seconds: a series beside the report, and its peaks within."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import psutil

from bench.report import Figure
from bench.system import Connection, Processor, connected, families

EVERY_SECONDS = 2.0

SERIES = ".series.json"
"""After the test's name: the file that takes the rows."""

RUN_TABLES = ("pending", "running")
"""Those whose rows go as runs do; history only grows."""

Row: TypeAlias = dict[str, float]

_DATABASE = """
select extract(epoch from clock_timestamp())::float8 as at,
       (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8 as wal,
       d.xact_commit::float8 as commits,
       (select count(*) from pg_stat_activity where wait_event_type = 'Lock')::float8 as lock_waits,
       (select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables where relname = any($1))::float8 as dead_tuples,
       (select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0) from pg_stat_activity
         where backend_xmin is not null and pid <> pg_backend_pid())::float8 as oldest_xmin_seconds
  from pg_stat_database d where d.datname = current_database()
"""


class Collector:
    """Reads `groups` (processes by role, with their children) and the database; keeps the rows."""

    def __init__(
        self,
        connection: Connection,
        groups: Mapping[str, Sequence[int]],
        throttled: Callable[[], Mapping[str, float]],
    ) -> None:
        self._connection = connection
        self._groups = groups
        self._throttled = throttled
        self._processor = Processor(groups)
        self._last: tuple[float, float, float] | None = None
        self.rows: list[Row] = []
        """Each: `at` in Unix seconds; since the row before, per second: `commits`, `wal_bytes`, `<role>_cores` (0 where
        a process ended and took its sum with it); at that moment: `lock_waits`, `dead_tuples` of the run tables,
        `oldest_xmin_seconds`, `<role>_rss_mib` (pages that processes share counted for each); since the start:
        `<role>_throttled_seconds`, where there are quotas."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.collect()
            await asyncio.sleep(EVERY_SECONDS)

    async def collect(self) -> None:
        """One row; nothing the first time, for there is no row before."""
        found = await self._connection.fetchrow(_DATABASE, RUN_TABLES)
        assert found is not None
        used = self._processor.since()
        last, self._last = self._last, (found["at"], found["wal"], found["commits"])
        if last is None:
            return
        elapsed = max(1e-3, found["at"] - last[0])
        self.rows.append(
            {
                "at": round(found["at"], 3),
                "commits": round((found["commits"] - last[2]) / elapsed, 1),
                "wal_bytes": round((found["wal"] - last[1]) / elapsed),
                "lock_waits": found["lock_waits"],
                "dead_tuples": found["dead_tuples"],
                "oldest_xmin_seconds": round(found["oldest_xmin_seconds"], 2),
                **{f"{role}_cores": round(max(0.0, seconds) / elapsed, 3) for role, seconds in used.items()},
                **{f"{role}_rss_mib": round(mib, 1) for role, mib in resident_mib(self._groups).items()},
                **{f"{role}_throttled_seconds": round(waited, 2) for role, waited in self._throttled().items()},
            }
        )


def resident_mib(groups: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Resident memory by group of processes and their children; each counts in the first group that has it."""
    return {role: sum(map(_resident, family)) / 1024**2 for role, family in families(groups).items()}


def _resident(process: psutil.Process) -> int:
    """Bytes; 0 where it has ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def peaks(rows: Sequence[Row]) -> dict[str, Figure]:
    """The largest of each column, for the report's figures."""
    return {f"{name}_peak": max(row[name] for row in rows if name in row) for name in _columns(rows) if name != "at"}


def write_series(path: Path, part: str, rows: Sequence[Row]) -> None:
    """Adds to `path`: a JSON object of columns, one array each, and `part`, which says what each row belongs to."""
    before: dict[str, list[float | str | None]] = json.loads(path.read_text()) if path.exists() else {}
    length = len(before.get("part", ()))
    columns = {name: before.get(name, [None] * length) for name in dict.fromkeys([*before, "part", *_columns(rows)])}
    for name, values in columns.items():
        values += [part if name == "part" else row.get(name) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(columns, allow_nan=False) + "\n")


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


@asynccontextmanager
async def collecting(
    dsn: str, groups: Mapping[str, Sequence[int]], throttled: Callable[[], Mapping[str, float]]
) -> AsyncIterator[Collector]:
    """Collects meanwhile, over a connection of its own."""
    async with connected(dsn) as connection:
        collector = Collector(connection, groups, throttled)
        task = asyncio.create_task(collector.run())
        try:
            yield collector
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
