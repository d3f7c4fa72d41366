"""The product for a drill: `tocsin up` as a person starts it, or its processes without Ray over our own database."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

import asyncpg
import psutil

from bench.frame import Screen
from bench.runtimes import free_ports
from bench.system import PlainExecutors, connected, environment_of, opened, prepare, running, server
from tocsin.cli.postgres import EmbeddedPostgres
from tocsin.cli.postgres.cluster import Layout, read_password
from tocsin.common.clock import SystemClock

Runtime = Literal["up", "plain"]

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


@dataclass(slots=True)
class Product:
    """What a fault may reach: the database's address, `up`'s process tree, or our own server."""

    dsn: str
    runtime: str
    up: asyncio.subprocess.Process | None = None
    postgres: EmbeddedPostgres | None = None
    plain: PlainExecutors | None = None
    clock: SystemClock = field(default_factory=SystemClock)

    async def now(self) -> datetime:
        return self.clock.now()

    def descendants(self) -> list[psutil.Process]:
        """Every process that `up` has started, whoever its parent is by now."""
        assert self.up is not None
        marked = psutil.Process(self.up.pid).children(recursive=True)
        return [process for process in marked if process.is_running()]

    def named(self, text: str) -> list[psutil.Process]:
        """`up`'s processes whose name or command line has `text`."""
        found = []
        for process in self.descendants():
            try:
                if text in process.name() or text in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found


@asynccontextmanager
async def started(runtime: Runtime, folder: Path, executors: int, screen: Screen) -> AsyncIterator[Product]:
    """Starts it, and ends it afterwards."""
    screen.say(f"starting {'tocsin up' if runtime == 'up' else 'plain processes'}, {executors} executors")
    if runtime == "up":
        async with _up(folder, executors) as product:
            yield product
        return
    async with server(folder) as postgres:
        plain = PlainExecutors(folder)
        async with opened(postgres.dsn) as store, connected(postgres.dsn) as connection:
            await prepare(postgres.dsn, store)
            async with running(plain, postgres.dsn, executors, connection):
                runtime_text = f"{executors} executors, plain processes"
                yield Product(postgres.dsn, runtime_text, postgres=postgres, plain=plain)


@asynccontextmanager
async def _up(folder: Path, executors: int) -> AsyncIterator[Product]:
    data = folder / "up"
    log = (folder / "up.log").open("wb")
    ports = free_ports(2)
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("tocsin")),
        "up",
        "--data-dir",
        str(data),
        "--executors",
        str(executors),
        "--port",
        str(ports[0]),
        "--dashboard-port",
        str(ports[1]),
        env=environment_of(None),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        dsn = await asyncio.wait_for(_dsn_of(data), _START_SECONDS)
        await asyncio.wait_for(_serving(dsn, executors), _START_SECONDS)
        yield Product(dsn, f"tocsin up, {executors} executors through Ray", up=process)
    except TimeoutError as error:
        raise TimeoutError(f"tocsin up did not serve in time: {(folder / 'up.log').read_text()[-2000:]}") from error
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        log.close()


async def _dsn_of(data: Path) -> str:
    layout = Layout(data)
    while not (layout.port.exists() and layout.password.exists()):
        await asyncio.sleep(0.2)
    return f"postgresql://tocsin:{read_password(layout)}@127.0.0.1:{layout.port.read_text().strip()}/tocsin"


async def _serving(dsn: str, executors: int) -> None:
    """Every shard has an owner, among `executors` of them."""
    while True:
        try:
            async with connected(dsn) as connection:
                owners = await connection.fetch(
                    "select owner from shards s where exists (select from leases l where l.id = s.owner and"
                    " l.expired_at is null) group by owner having count(*) > 0"
                )
                missing = await connection.fetchval("select count(*) from shards where owner is null")
                if len(owners) == executors and not missing:
                    return
        except (OSError, asyncpg.PostgresError):
            pass
        await asyncio.sleep(0.3)
