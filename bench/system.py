"""The product, started as it is: PostgreSQL with production settings, migrated, and executor processes."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeAlias

import asyncpg
import psutil

from tocsin.cli.postgres import EmbeddedPostgres
from tocsin.cli.up.ray_keeper import without_ray
from tocsin.common.store.postgres.migrate import migrate
from tocsin.common.store.postgres.store import PostgresStore

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

START_SECONDS = 60.0
STOP_SECONDS = 30.0


@asynccontextmanager
async def work_folder(parent: Path | None) -> AsyncIterator[Path]:
    """A new folder that every account can enter (as root, the server runs as another); removed afterwards."""
    folder = await asyncio.to_thread(_make_folder, parent)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _make_folder(parent: Path | None) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tocsin-bench-", dir=parent))
    folder.chmod(0o755)
    return folder


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A PostgreSQL with the settings of `tocsin up`: every commit is flushed."""
    postgres = EmbeddedPostgres(folder / "postgres")
    await asyncio.to_thread(postgres.start)
    try:
        yield postgres
    finally:
        await asyncio.to_thread(postgres.stop)


@asynccontextmanager
async def connected(dsn: str, **settings: str) -> AsyncIterator[Connection]:
    """A connection of the measuring side."""
    connection = await asyncpg.connect(dsn, server_settings={"application_name": "bench", **settings})
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[PostgresStore]:
    """The product's store, for seeding and for what is measured through it."""
    store = PostgresStore(dsn, name="bench")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def prepare(dsn: str, store: PostgresStore) -> None:
    """The schema, and history's partitions: what `tocsin up` does before it starts executors."""
    await migrate(dsn)
    await store.history.keep(None, 7)


def environment_of(dsn: str | None, settings: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """A child's environment: the settings of this measurement, `settings` among them, and none of the caller's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    database = {} if dsn is None else {"TOCSIN_DATABASE_URL": dsn}
    return {**without_ray(kept), **database, "TOCSIN_EGRESS_ALLOW": "127.0.0.1/32", **settings}


class PlainExecutors:
    """`tocsin engine`, as often as asked for; `folder` takes the logs, `settings` are environment variables."""

    runtime = "plain processes"

    def __init__(self, folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self._folder = folder
        self._settings = settings
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self, dsn: str, count: int) -> None:
        for number in range(count):
            with (self._folder / f"executor-{number}.log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    Path(sys.executable).with_name("tocsin"),
                    "engine",
                    env=environment_of(dsn, self._settings),
                    stderr=log,
                    stdout=log,
                    start_new_session=True,  # the terminal's Ctrl-C is for the measuring side
                )
            self._processes.append(process)

    async def stop(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()

    def overhead(self) -> list[int]:
        return []

    def logs(self) -> list[Path]:
        return sorted(self._folder.glob("executor-*.log"))


class Executors(Protocol):
    """The executor processes of a measurement."""

    runtime: str
    """For a person."""

    async def start(self, dsn: str, count: int) -> None: ...

    async def stop(self) -> None:
        """Drains and ends them, and all that was started for them."""
        ...

    def overhead(self) -> list[int]:
        """Processes that run for the executors' sake; the executors may be among their children."""
        ...

    def logs(self) -> list[Path]:
        """What the executors have logged."""
        ...


def complaints(executors: Executors) -> list[str]:
    """The lines that executors have logged as warnings or worse."""
    lines = (line for path in executors.logs() for line in path.read_text(errors="replace").splitlines())
    return [line for line in lines if any(f" {level} " in line for level in ("WARNING", "ERROR", "CRITICAL"))]


@asynccontextmanager
async def running(executors: Executors, dsn: str, count: int, connection: Connection) -> AsyncIterator[None]:
    """Executors that own every shard; drained afterwards.

    Raises:
        TimeoutError: they did not take the shards within a minute.
    """
    try:
        await executors.start(dsn, count)
        await asyncio.wait_for(_all_owned(connection, count), START_SECONDS)
        yield
    finally:
        await executors.stop()


async def _all_owned(connection: Connection, count: int) -> None:
    """Every shard has an owner, and every executor owns some: none more than its fair part."""
    while True:
        owners = await connection.fetch("select owner, count(*) as shards from shards group by owner")
        if len(owners) == count and all(row["owner"] is not None for row in owners):
            return
        await asyncio.sleep(0.1)


async def executor_pids(connection: Connection) -> list[int]:
    """The processes that hold a lease: they are the executors, however they were started."""
    return [row["pid"] for row in await connection.fetch("select pid from leases where expired_at is null")]


class Processor:
    """Processor seconds of groups of processes and of their children, from one reading to the next.

    A process counts in the first group only that names it, itself or as a child.
    """

    def __init__(self, groups: Mapping[str, Sequence[int]]) -> None:
        self._groups = groups
        self._last = self._read()

    def since(self) -> dict[str, float]:
        """Seconds by group since the last call; of children that ended in between, too."""
        now, last = self._read(), self._last
        self._last = now
        return {name: now[name] - last[name] for name in now}

    def _read(self) -> dict[str, float]:
        return {name: sum(map(_seconds, family)) for name, family in families(self._groups).items()}


def families(groups: Mapping[str, Sequence[int]]) -> dict[str, list[psutil.Process]]:
    """The processes of each group and their living descendants, each in the first group that has it; in one pass over
    the machine's processes, for it is made while others are measured."""
    known: dict[int, psutil.Process] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            known[process.pid] = process
            children[process.ppid()].append(process.pid)
    found: dict[str, list[psutil.Process]] = {}
    for name, pids in groups.items():
        left, family = list(pids), found.setdefault(name, [])
        while left:
            pid = left.pop()
            if (one := known.pop(pid, None)) is not None:
                family.append(one)
                left += children[pid]
    return found


def _seconds(process: psutil.Process) -> float:
    """Of a process, and of its children that have ended; 0 where it has ended itself."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
