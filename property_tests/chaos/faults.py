"""The faults: what is done, to which process or connection, and for how long."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.frame import Screen
from bench.system import connected
from property_tests.chaos.executors import SkewedExecutors
from property_tests.chaos.family import Family
from property_tests.chaos.ledger import Life, Struck
from property_tests.chaos.schedule import Plan, Planned
from property_tests.chaos.watch import Watch
from property_tests.network.proxy import Cut, Proxy, Trap
from tocsin.cli.postgres.processes import postmaster_file
from tocsin.cli.up.machine import CELL
from tocsin.common.clock import Clock

DELAY_SECONDS = 0.05
ANSWERS = 20
"""Commits whose answers are dropped in one fault."""

CUTS = 3
RAY_SECONDS = 150.0
"""Within which `up` must have brought Ray back; where nothing else runs it takes 15 to 25 s."""


@dataclass(slots=True)
class Scene:
    """Where faults strike. `dsn` gives PostgreSQL's own address; the file `hold` keeps it from being started. `missed`:
    what did not come back after a fault, in words."""

    family: Family
    proxy: Proxy
    watch: Watch
    skewed: SkewedExecutors
    dsn: Callable[[], str]
    cluster: Path
    hold: Path
    ttl: float
    clock: Clock
    screen: Screen
    missed: list[str] = field(default_factory=list)

    def now(self) -> float:
        return self.clock.now().timestamp()

    def actors(self) -> list[Life]:
        """Leases of executors that Ray placed, by pid."""
        own = self.skewed.pids()
        return sorted((life for life in self.watch.live() if life.pid not in own), key=lambda life: life.pid)

    def choose(self, rng: random.Random, *, dedicated: bool) -> Life:
        """A live executor of the shared cell, or of a tenant's own.

        Raises:
            IndexError: there is none.
        """
        found = [life for life in self.watch.live() if (life.cell != CELL) is dedicated]
        return rng.choice(sorted(found, key=lambda life: life.pid))

    async def kill_named(self, text: str) -> str:
        process = await asyncio.to_thread(self.family.named, text)
        process.kill()
        return f"killed {text}, pid {process.pid}"


Strike = Callable[[Scene, float, random.Random], Awaitable[str]]
"""Does it, returns when it is over, and says in a few words what was done. The number is how long it lasts, seconds."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`seconds`: how long it lasts, between which it is drawn; None for so many ttls. `database`: of the database
    alone, so no executor may be taken for dead, and nothing called twice. `outage`: nothing can be begun meanwhile.
    `recovery`: the bound, seconds after its beginning, for what is due to be on time again. `worst`: for the worst
    start delay."""

    name: str
    strike: Strike
    seconds: tuple[float, float] = (0.0, 0.0)
    recover: float = 15.0
    ttls: float = 0.0
    database: bool = False
    outage: bool = False
    recovery: float | None = None
    worst: float | None = None

    def plan(self, ttl: float) -> Plan:
        shortest, longest = (self.ttls * ttl,) * 2 if self.ttls else self.seconds
        return Plan(self.name, shortest, longest, self.recover)


async def strike(fault: Fault, planned: Planned, scene: Scene) -> Struck:
    """One fault of the schedule, from its beginning to its end."""
    began = scene.now()
    detail = await fault.strike(scene, planned.seconds, random.Random(planned.number))
    ended = scene.now()
    return Struck(fault.name, began, ended, detail, fault.database, ended - began if fault.outage else 0.0)


async def kill_executor(scene: Scene, seconds: float, rng: random.Random) -> str:
    life = rng.choice(scene.actors())
    at = scene.now()
    os.kill(life.pid, signal.SIGKILL)
    scene.watch.failed(life.lease_id, at, scene.now())
    return f"killed an executor of {life.cell}, pid {life.pid}"


async def kill_skewed(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Nothing restarts it; ours is started anew, with another wrong clock."""
    pid = rng.choice(sorted(scene.skewed.pids()))
    at = scene.now()
    os.kill(pid, signal.SIGKILL)
    for life in scene.watch.live():
        if life.pid == pid:
            scene.watch.failed(life.lease_id, at, scene.now())
    await asyncio.sleep(2.0)
    return f"killed a plain executor, pid {pid}; started one with {await scene.skewed.start(rng)}"


def freeze_executor(*, dedicated: bool) -> Strike:
    """SIGSTOP, and SIGCONT long after its lease has ended: a zombie that comes back. The shared cell has others that
    take over; a tenant whose own cell has one executor waits until the Supervisor has ended and replaced it."""

    async def work(scene: Scene, seconds: float, rng: random.Random) -> str:
        life = scene.choose(rng, dedicated=dedicated)
        process = psutil.Process(life.pid)
        at = scene.now()
        process.send_signal(signal.SIGSTOP)
        try:
            scene.watch.failed(life.lease_id, at, scene.now())
            await asyncio.sleep(seconds)
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):  # replaced meanwhile
                process.send_signal(signal.SIGCONT)
        return f"froze an executor of {life.cell}, pid {life.pid}"

    return work


async def partition_executor(scene: Scene, seconds: float, rng: random.Random) -> str:
    """One process without its database, while all others have it: what it began it may still call."""
    life = scene.choose(rng, dedicated=False)
    at = scene.now()
    scene.proxy.hold(lambda name: name == f"tocsin {life.lease_id}")
    try:
        scene.watch.failed(life.lease_id, at, at + scene.ttl)
        await asyncio.sleep(seconds)
    finally:
        scene.proxy.release()
    return f"no database for an executor of {life.cell}, pid {life.pid}"


def kill_process(text: str) -> Strike:
    async def work(scene: Scene, seconds: float, rng: random.Random) -> str:
        return await scene.kill_named(text)

    return work


def kill_ray(text: str) -> Strike:
    """`up` has to bring Ray back; until then what it placed is gone, or orphaned. Over when as many executors of it as
    before have a lease again."""

    async def work(scene: Scene, seconds: float, rng: random.Random) -> str:
        before = {life.lease_id for life in scene.actors()}
        began = scene.clock.monotonic()
        said = await scene.kill_named(text)
        while len({life.lease_id for life in scene.actors()} - before) < len(before):
            if scene.clock.monotonic() - began > RAY_SECONDS:
                scene.missed.append(f"{said}; Ray was not back within {RAY_SECONDS:g} s")
                return scene.missed[-1]
            await asyncio.sleep(0.1)
        return f"{said}; Ray was back after {scene.clock.monotonic() - began:.1f} s"

    return work


async def restart_postgres(scene: Scene, seconds: float, rng: random.Random) -> str:
    number = rng.choice([signal.SIGINT, signal.SIGKILL])
    await _end_server(scene, number)
    await _serving(scene)
    return f"PostgreSQL ended by {number.name}"


async def stop_postgres(scene: Scene, seconds: float, rng: random.Random) -> str:
    scene.hold.touch()
    try:
        await _end_server(scene, signal.SIGINT)
        await asyncio.sleep(seconds)
    finally:
        scene.hold.unlink()
    await _serving(scene)
    return f"PostgreSQL down for {seconds:g} s"


async def _end_server(scene: Scene, number: signal.Signals) -> None:
    os.kill(int(postmaster_file(scene.cluster)[0]), number)


async def _serving(scene: Scene) -> None:
    """Returns once a statement is answered again."""
    limit = scene.clock.monotonic() + 60.0
    while True:
        try:
            async with connected(scene.dsn()) as connection:
                await connection.fetchval("select 1", timeout=5)
                return
        except Exception:  # whatever a server says that is on its way down or up
            if scene.clock.monotonic() > limit:
                raise
        await asyncio.sleep(0.1)


async def cut_database(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Connections are reset, and refused."""
    scene.proxy.refusing = True
    try:
        count = scene.proxy.cut()
        await asyncio.sleep(seconds)
    finally:
        scene.proxy.refusing = False
    return f"{count} connections cut, none taken for {seconds:g} s"


async def cut_connections(scene: Scene, seconds: float, rng: random.Random) -> str:
    counts = []
    for _ in range(CUTS):
        counts.append(scene.proxy.cut())
        await asyncio.sleep(rng.uniform(0.2, 1.5))
    return f"connections cut {CUTS} times: {', '.join(map(str, counts))}"


async def delay_database(scene: Scene, seconds: float, rng: random.Random) -> str:
    scene.proxy.delay = DELAY_SECONDS
    try:
        await asyncio.sleep(seconds)
    finally:
        scene.proxy.delay = 0.0
    return f"{1000 * DELAY_SECONDS:g} ms each way for {seconds:g} s"


async def black_hole(scene: Scene, seconds: float, rng: random.Random) -> str:
    scene.proxy.hold(lambda name: True)
    try:
        await asyncio.sleep(seconds)
    finally:
        scene.proxy.release()
    return f"nothing arrives for {seconds:g} s"


async def drop_answers(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Commits take effect and are not answered; between two of them something gets through."""
    dropped = 0
    limit = scene.clock.monotonic() + seconds
    while dropped < ANSWERS and scene.clock.monotonic() < limit:
        trap = scene.proxy.trap = Trap(None, Cut.AFTER)
        await asyncio.sleep(rng.uniform(0.05, 0.5))
        scene.proxy.trap = None
        dropped += trap.sprung
    return f"{dropped} commits without an answer"


async def read_only(scene: Scene, seconds: float, rng: random.Random) -> str:
    """As on a server that was demoted: also in sessions that exist, since none sets it for itself. At the end these
    are ended, as by a failover."""
    async with connected(scene.dsn(), default_transaction_read_only="off") as connection:
        await connection.execute("alter system set default_transaction_read_only = on")
        await connection.execute("select pg_reload_conf()")
        try:
            await asyncio.sleep(seconds)
        finally:
            await connection.execute("alter system reset default_transaction_read_only")
            await connection.execute("select pg_reload_conf()")
        ended = await connection.fetchval(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'tocsin%'"
        )
    return f"read-only for {seconds:g} s, then {ended} sessions ended"


def catalogue() -> dict[str, Fault]:
    """All faults, by name."""
    faults = (
        Fault("kill-executor", kill_executor, recovery=5.0),
        Fault("kill-skewed", kill_skewed, recovery=5.0),
        Fault("freeze-executor", freeze_executor(dedicated=False), ttls=3.0, recovery=15.0),
        Fault("freeze-dedicated", freeze_executor(dedicated=True), (70.0, 70.0), recovery=60.0, worst=65.0),
        Fault("partition-executor", partition_executor, ttls=2.0, recovery=15.0),
        Fault("kill-supervisor", kill_process("ray::Supervisor"), recover=10.0),
        Fault("kill-api", kill_process("tocsin.cli.up.api_process"), recover=10.0),
        Fault("kill-raylet", kill_ray("raylet"), (30.0, 30.0), 20.0, worst=45.0),
        Fault("kill-gcs", kill_ray("gcs_server"), (30.0, 30.0), 20.0, worst=45.0),
        Fault("restart-postgres", restart_postgres, database=True, outage=True),
        Fault("stop-postgres", stop_postgres, (30.0, 30.0), 20.0, database=True, outage=True, worst=32.0),
        Fault("cut-postgres", cut_database, (30.0, 30.0), 20.0, database=True, outage=True, worst=32.0),
        Fault("cut-connections", cut_connections, recover=10.0, database=True),
        Fault("delay-postgres", delay_database, (8.0, 12.0), 8.0, database=True),
        Fault("black-hole", black_hole, (4.0, 15.0), database=True, outage=True),
        Fault("drop-answers", drop_answers, (10.0, 10.0), 10.0, database=True),
        Fault("read-only", read_only, (4.0, 15.0), database=True, outage=True),
    )
    return {fault.name: fault for fault in faults}
