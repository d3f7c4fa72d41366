"""The whole product with everything that can be broken in reach: `up` behind a proxy, executors with wrong clocks."""

import asyncio
import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from bench.frame import Screen
from bench.system import connected, environment_of, opened
from property_tests.chaos.endpoint import ROOT, Endpoint
from property_tests.chaos.executors import SkewedExecutors
from property_tests.chaos.family import MARKER, Family
from property_tests.chaos.load import Tenants, make_tenants
from property_tests.chaos.scene import Scene
from property_tests.chaos.up_behind_proxy import HOLD, PORT, at_port
from property_tests.chaos.watch import Watch
from property_tests.network.proxy import Proxy
from tocsin.cli.postgres.cluster import Layout, read_password
from tocsin.cli.redis_server import program
from tocsin.common.clock import Clock, SystemClock

START_SECONDS = 180.0
STOP_SECONDS = 45.0

ACTORS = "actors"
"""The folder of what Ray's workers have logged."""

_END_SECONDS = 10.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Options:
    """How to run it. `seconds` of load at `rate` runs a second; `faults` by name, all where empty. `executors` through
    Ray and `skewed` ones as plain processes serve the shared cell."""

    seconds: int
    rate: int
    seed: int
    faults: tuple[str, ...] = ()
    executors: int = 2
    skewed: int = 1
    ttl: float = 10.0
    work_dir: Path | None = None


@dataclass(slots=True)
class Stage:
    """`dsn` is PostgreSQL's own address, not the proxy's. `left`, known once all has ended, are the processes that had
    to be ended, and the folder of `up` in which Ray works if it was not removed."""

    folder: Path
    dsn: str
    scene: Scene
    endpoint: Endpoint
    tenants: Tenants
    left: list[str] = field(default_factory=list)

    @property
    def watch(self) -> Watch:
        return self.scene.watch


@asynccontextmanager
async def staged(folder: Path, options: Options, screen: Screen, rng: random.Random) -> AsyncIterator[Stage]:
    """Starts it, and ends all of it afterwards; what it has logged stays in `folder`."""
    clock = SystemClock()
    layout, hold = Layout(folder / "up"), folder / "hold"
    family = Family(secrets.token_hex(8), layout.cluster)
    environment = {
        **environment_of(None),
        MARKER: family.token,
        "TOCSIN_LEASE_TTL_SECONDS": f"{options.ttl:g}",
        "TOCSIN_HINTS": "on" if program() else "off",  # of the executors of `up`; the skewed ones have no Redis
    }
    left: list[str] = []
    temporary: Path | None = None
    try:
        proxy = Proxy(lambda: ("127.0.0.1", int(layout.port.read_text())), clock)
        async with proxy, Endpoint(folder, environment) as endpoint:
            proxied = {**environment, PORT: str(proxy.port), HOLD: str(hold)}
            screen.say(f"starting tocsin up behind a proxy, and {options.skewed} executors with wrong clocks")
            async with _up(folder, proxied, options, hold) as port:
                dsn = await asyncio.wait_for(_dsn_of(layout), START_SECONDS)
                watch = Watch(lambda: _dsn_now(layout), clock, random.Random(options.seed))
                plain = {**environment, "TOCSIN_DATABASE_URL": at_port(dsn, proxy.port)}
                skewed = SkewedExecutors(folder, plain, watch, options.ttl)
                scene = Scene(
                    *(family, proxy, watch, skewed, lambda: _dsn_now(layout), layout.cluster, hold),
                    *(f"http://127.0.0.1:{port}", options.ttl, clock, screen),
                )
                try:
                    tenants = await _open(dsn, options, skewed, clock, rng, screen)
                    # the last argument of `up`'s guardian, which would remove it
                    temporary = Path(family.named("tocsin.cli.up.guardian").cmdline()[-1])
                    yield Stage(folder, dsn, scene, endpoint, tenants, left)
                finally:
                    proxy.release()
                    await skewed.stop()
                    if temporary is not None:  # `up` removes it
                        await asyncio.to_thread(_copy, _actors_logs(temporary), folder / ACTORS)
    finally:
        left += await asyncio.to_thread(family.end_rest, _END_SECONDS)
        if temporary is not None and temporary.exists():
            left.append(str(temporary))


async def _open(
    dsn: str, options: Options, skewed: SkewedExecutors, clock: Clock, rng: random.Random, screen: Screen
) -> Tenants:
    """Waits until all serve, and makes the tenants, one with a cell of its own."""
    await _serving(dsn, options.executors)
    for _ in range(options.skewed):
        screen.say(f"an executor with {await skewed.start(rng)}")
    async with opened(dsn) as store:
        tenants = await make_tenants(store, clock, options.rate)
        await store.tenants.open_cell(tenants.promoted, 1)
    await _serving(dsn, options.executors + options.skewed + 1, str(tenants.promoted))
    return tenants


@asynccontextmanager
async def _up(folder: Path, environment: dict[str, str], options: Options, hold: Path) -> AsyncIterator[int]:
    """Gives the API's port."""
    port, dashboard = _free_port(), _free_port()
    with (folder / "up.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "property_tests.chaos.up_behind_proxy"),
            *("--data-dir", str(folder / "up"), "--executors", str(options.executors)),
            *("--port", str(port), "--dashboard-port", str(dashboard)),
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield port
        except TimeoutError as error:
            raise TimeoutError(f"it did not serve in time: {_end_of(folder / 'up.log')}") from error
        finally:
            await asyncio.to_thread(hold.unlink, missing_ok=True)
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                try:
                    await asyncio.wait_for(process.wait(), STOP_SECONDS)
                except TimeoutError:
                    os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()


def _end_of(log: Path) -> str:
    return log.read_text()[-2000:]


def _dsn_now(layout: Layout) -> str:
    return f"postgresql://tocsin:{read_password(layout)}@127.0.0.1:{layout.port.read_text().strip()}/tocsin"


async def _dsn_of(layout: Layout) -> str:
    while not (layout.port.exists() and layout.password.exists()):
        await asyncio.sleep(_LOOK_SECONDS)
    return _dsn_now(layout)


async def _serving(dsn: str, executors: int, alone: str | None = None) -> None:
    """Every shard has an owner, among so many; the tenant `alone` is served by a cell of its own.

    Raises:
        TimeoutError
    """
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                async with connected(dsn) as connection:
                    owners = await connection.fetchval(
                        "select count(distinct l.id) from leases l join shards s on s.owner = l.id"
                        " where l.expired_at is null and not exists (select from shards where owner is null)"
                    )
                    served = alone is None or await connection.fetchval(
                        "select exists (select from tenants t join shards s using (shard)"
                        " where t.id = $1::text::uuid and s.tenant_id = t.id)",
                        alone,
                    )
                    if owners == executors and served:
                        return
            except (OSError, asyncpg.PostgresError):
                pass
            await asyncio.sleep(_LOOK_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def keep_logs(folder: Path, kept: Path) -> None:
    """Copies what explains a miss from `staged`'s folder into `kept`: the logs, and the endpoint's ledger."""
    _copy((path for each in ("*.log", "up/*.log", "up/logs/*.log", f"{ACTORS}/*") for path in folder.glob(each)), kept)


def _actors_logs(temporary: Path) -> list[Path]:
    return list(temporary.glob("r*/session_latest/logs/worker-*.err"))


def _copy(paths: Iterable[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        with contextlib.suppress(OSError):  # its process may be removing it
            shutil.copy(path, folder / path.name)
