"""The faults of the drill: what is done, to which process, and what may come of it."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import psutil

from bench.frame import Screen
from bench.product import Product, Runtime
from bench.system import Connection, opened

TTL_SECONDS = 10.0
OUTAGE_SECONDS = 30.0


@dataclass(slots=True)
class Scene:
    """Where a fault strikes. `concerned`: tenants whose delays are not those of "the others"."""

    product: Product
    connection: Connection
    tenants: Sequence[UUID]
    screen: Screen
    concerned: set[UUID] = field(default_factory=set)

    def unix(self) -> float:
        return self.product.clock.now().timestamp()

    async def executor_pids(self) -> list[int]:
        """Processes that own shards, the one with the most first."""
        rows = await self.connection.fetch(
            "select l.pid from leases l join shards s on s.owner = l.id where l.expired_at is null"
            " group by l.id order by count(*) desc"
        )
        return [row["pid"] for row in rows]


@dataclass(frozen=True, slots=True)
class Fault:
    """`strike` returns the Unix second of the fault. `kills`: calls that were open may be made again. `seconds` of
    load follow the calm; `worst_delay` is the target for the worst start delay, in seconds."""

    name: str
    strike: Callable[[Scene], Awaitable[float]]
    kills: bool
    seconds: int
    worst_delay: float
    executors: int = 1
    runtime: Runtime = "up"
    short: bool = False


async def _kill(scene: Scene, pid: int) -> float:
    at = scene.unix()
    psutil.Process(pid).kill()
    return at


async def kill_executor(scene: Scene) -> float:
    return await _kill(scene, (await scene.executor_pids())[0])


async def freeze_executor(scene: Scene) -> float:
    """SIGSTOP for three ttls, then SIGCONT: a zombie that comes back."""
    process = psutil.Process((await scene.executor_pids())[0])
    at = scene.unix()
    process.send_signal(signal.SIGSTOP)
    try:
        await scene.screen.wait("frozen", 3 * TTL_SECONDS)
    finally:
        process.send_signal(signal.SIGCONT)
    return at


def kill_named(text: str) -> Callable[[Scene], Awaitable[float]]:
    async def strike(scene: Scene) -> float:
        return await _kill(scene, scene.product.named(text)[0].pid)

    return strike


async def promote_and_demote(scene: Scene) -> float:
    """One tenant into a cell of its own, and back."""
    tenant = scene.tenants[0]
    scene.concerned.add(tenant)
    at = scene.unix()
    async with opened(scene.product.dsn) as store:
        cell = await store.tenants.open_cell(tenant, 1)
        await _until(scene, "served by its own cell", f"(select cell from shards where shard = t.shard) = '{cell}'")
        await scene.screen.wait("in its own cell", 10)
        await store.tenants.close_cell(cell, tenant)
        await store.tasks.notify("tenants")
        await _until(scene, "back in the shared cell", "(select cell from shards where shard = t.shard) = 'shared'")
        await _until(scene, "its cell is gone", f"not exists (select from placements where cell = '{cell}')")
    return at


async def _until(scene: Scene, text: str, condition: str) -> None:
    sql = f"select {condition} from tenants t where t.id = $1"
    began = scene.product.clock.monotonic()
    while not await scene.connection.fetchval(sql, scene.tenants[0]):
        if scene.product.clock.monotonic() - began > 60:
            raise TimeoutError(f"not within a minute: {text}")
        await asyncio.sleep(0.05)
    scene.screen.say(f"{text} after {scene.product.clock.monotonic() - began:.1f} s")


async def stop_postgres(scene: Scene) -> float:
    postgres = scene.product.postgres
    assert postgres is not None
    at = scene.unix()
    await asyncio.to_thread(postgres.stop)
    await scene.screen.wait("PostgreSQL is stopped", OUTAGE_SECONDS)
    await asyncio.to_thread(postgres.start)
    return at


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("promote", promote_and_demote, kills=False, seconds=40, worst_delay=1.0),
        Fault("kill-executor", kill_executor, kills=True, seconds=25, worst_delay=15.0, short=True),
        Fault("kill-supervisor", kill_named("ray::Supervisor"), kills=False, seconds=15, worst_delay=1.0),
        Fault("kill-raylet", kill_named("raylet"), kills=True, seconds=50, worst_delay=45.0),
        Fault("kill-gcs", kill_named("gcs_server"), kills=True, seconds=50, worst_delay=45.0),
        Fault("freeze-executor", freeze_executor, kills=True, seconds=45, worst_delay=20.0, executors=2),
        Fault("stop-postgres", stop_postgres, kills=False, seconds=50, worst_delay=32.0, runtime="plain"),
    )
}
