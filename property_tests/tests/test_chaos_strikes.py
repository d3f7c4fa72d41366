"""A fault that did nothing is not one: each strike sees its effect, or says that it was missed."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast
from uuid import UUID

import asyncpg
import psutil
import pytest
from rich.console import Console

from bench.frame import Screen
from property_tests.chaos import scene as scenes
from property_tests.chaos import strikes_database, strikes_processes
from property_tests.chaos.executors import SkewedExecutors
from property_tests.chaos.family import Family
from property_tests.chaos.faults import Fault, catalogue, strike
from property_tests.chaos.ledger import Life, Struck
from property_tests.chaos.scene import Scene
from property_tests.chaos.schedule import Planned
from property_tests.chaos.strikes_processes import Strike
from property_tests.chaos.watch import Watch
from property_tests.network.proxy import Proxy
from tocsin.cli.up.machine import CELL
from tocsin.common.clock import SystemClock

LEASE, OTHER = UUID(int=1), UUID(int=2)


class FakeFamily:
    """Names `process` until that has ended, then nothing."""

    def __init__(self) -> None:
        self.process: psutil.Process | None = None

    def named(self, text: str) -> psutil.Process:
        if self.process is None or not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE:
            raise LookupError(f"no process of ours is named {text}")
        return self.process


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    for module, name in (
        (scenes, "BACK_SECONDS"),
        (scenes, "SETTLE_SECONDS"),
        (strikes_processes, "BACK_SECONDS"),
        (strikes_processes, "RAY_SECONDS"),
        (strikes_processes, "_NOTICED_SECONDS"),
        (strikes_database, "_CONNECTED_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.0)
    clock = SystemClock()
    watch = Watch(lambda: "", clock, random.Random(1))
    return Scene(
        family=cast(Family, FakeFamily()),
        proxy=Proxy(lambda: ("127.0.0.1", 1), clock),
        watch=watch,
        skewed=SkewedExecutors(tmp_path, {}, watch, 1.0),
        dsn=lambda: "postgresql://nobody@127.0.0.1:1/none",
        cluster=tmp_path,
        hold=tmp_path / "hold",
        api="http://127.0.0.1:1",
        ttl=0.0,
        clock=clock,
        screen=Screen(Console(quiet=True)),
    )


@asynccontextmanager
async def a_process(scene: Scene, *, cell: str = CELL) -> AsyncIterator[Life]:
    """One that does nothing, with a lease, and known to the family."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    life = scene.watch.lives[LEASE] = Life(LEASE, process.pid, 0.0, cell, [scene.now()])
    cast(FakeFamily, scene.family).process = psutil.Process(process.pid)
    try:
        yield life
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def struck(scene: Scene, work: Strike, seconds: float = 0.0) -> Struck:
    return await strike(Fault("some", work), Planned("some", 0.0, seconds, 0.0, 1), scene)


@pytest.mark.parametrize("dedicated", [False, True])
async def test_a_freeze_whose_lease_does_not_end_is_missed_and_excuses_nothing(scene: Scene, dedicated: bool) -> None:
    async with a_process(scene, cell="tenant-x" if dedicated else CELL) as life:
        done = await struck(scene, strikes_processes.freeze_executor(dedicated=dedicated))
        assert done.missed is not None
        assert "lease" in done.missed
        assert life.failed is None
        assert psutil.Process(life.pid).status() != psutil.STATUS_STOPPED


async def expiring(scene: Scene, life: Life, work: Strike) -> Struck:
    """The fault, while its lease ends as soon as it has failed."""
    striking = asyncio.create_task(struck(scene, work))
    await _until(lambda: life.failed is not None)
    life.expired = scene.now()
    return await striking


@pytest.fixture
def patient(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a lease is waited for."""
    monkeypatch.setattr(strikes_processes, "_NOTICED_SECONDS", 30.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "work", [strikes_processes.freeze_executor(dedicated=False), strikes_processes.partition_executor]
)
async def test_a_freeze_or_a_partition_that_ends_the_lease_has_struck(scene: Scene, work: Strike) -> None:
    async with a_process(scene) as life:
        assert (await expiring(scene, life, work)).missed is None
        assert life.failed is not None


@pytest.mark.usefixtures("patient")
async def test_a_frozen_executor_of_a_tenants_own_cell_has_to_be_replaced(scene: Scene) -> None:
    async with a_process(scene, cell="tenant-x") as life:
        done = await expiring(scene, life, strikes_processes.freeze_executor(dedicated=True))
        assert "another executor" in str(done.missed)


async def test_a_partition_that_ends_no_lease_is_missed_and_excuses_nothing(scene: Scene) -> None:
    async with a_process(scene) as life:
        done = await struck(scene, strikes_processes.partition_executor)
        assert done.missed is not None
        assert life.failed is None


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_killed_executor_has_to_be_replaced(scene: Scene, replaced: bool) -> None:
    async with a_process(scene) as life:
        killing = asyncio.create_task(struck(scene, strikes_processes.kill_executor))
        await _until(lambda: life.failed is not None)
        if replaced:
            scene.watch.lives[OTHER] = Life(OTHER, 1, 0.0, CELL)
        life.expired = scene.now()
        assert ((await killing).missed is None) is replaced


@pytest.mark.parametrize("work", [strikes_processes.kill_supervisor, strikes_processes.kill_api])
async def test_what_was_killed_and_does_not_come_back_is_missed(scene: Scene, work: Strike) -> None:
    async with a_process(scene):
        done = await struck(scene, work)
    assert done.missed is not None
    assert "not within" in done.missed


async def test_an_api_that_answers_again_has_come_back(scene: Scene) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    scene.api = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, a_process(scene):
        assert (await struck(scene, strikes_processes.kill_api)).missed is None


async def test_ray_that_had_no_executor_cannot_have_brought_it_back(scene: Scene) -> None:
    assert (await struck(scene, strikes_processes.kill_ray("raylet"))).missed == "Ray had no executor"


@pytest.mark.parametrize(
    "work", [strikes_database.cut_database, strikes_database.cut_connections, strikes_database.drop_answers]
)
async def test_connections_that_were_not_there_are_not_cut(scene: Scene, work: Strike) -> None:
    done = await struck(scene, work, 0.1)
    assert done.missed is not None
    assert not scene.proxy.refusing


def beats(scene: Scene) -> list[float]:
    """All through the next ten seconds, so that some arrive while it strikes, whenever that is."""
    return [scene.now() + n / 100 for n in range(1, 1000)]


@pytest.mark.parametrize("work", [strikes_database.black_hole, strikes_database.cut_database])
async def test_an_outage_in_which_heartbeats_arrive_is_none(scene: Scene, work: Strike) -> None:
    scene.watch.lives[LEASE] = Life(LEASE, 1, 0.0, CELL, beats(scene))
    assert (await struck(scene, work, 0.2)).missed == "heartbeats arrived all the same"


async def test_an_outage_without_heartbeats_has_struck(scene: Scene) -> None:
    scene.watch.lives[LEASE] = Life(LEASE, 1, 0.0, CELL, [scene.now()])
    assert (await struck(scene, strikes_database.black_hole, 0.1)).missed is None


async def test_a_delay_that_delays_nothing_is_missed(
    scene: Scene, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.dsn = lambda: database_url
    monkeypatch.setattr(strikes_database, "at_port", lambda dsn, port: dsn)  # past the proxy
    assert "all the same" in str((await struck(scene, strikes_database.delay_database)).missed)


async def test_a_read_only_server_without_sessions_to_end_has_not_struck(scene: Scene, database_url: str) -> None:
    scene.dsn = lambda: database_url
    assert (await struck(scene, strikes_database.read_only)).missed == "there was no session to be ended"


async def test_a_server_that_is_not_another_has_not_been_restarted(
    scene: Scene, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.dsn = lambda: database_url
    monkeypatch.setattr(strikes_database, "_end_server", lambda scene, number: None)
    monkeypatch.setattr(strikes_database, "_BACK_SECONDS", 0.0)
    assert "another PostgreSQL" in str((await struck(scene, strikes_database.restart_postgres)).missed)
    assert "another PostgreSQL" in str((await struck(scene, strikes_database.stop_postgres)).missed)
    assert not scene.hold.exists()


@pytest.mark.parametrize(
    "error",
    [asyncpg.InterfaceError("closed"), asyncpg.InternalClientError("ended"), ValueError("no pid"), OSError("gone")],
    ids=lambda error: type(error).__name__,
)
async def test_a_strike_that_raises_is_missed_and_the_run_goes_on(scene: Scene, error: Exception) -> None:
    async def raises(scene: Scene, seconds: float, rng: random.Random) -> str:
        raise error

    done = await struck(scene, raises)
    assert done.missed == f"{type(error).__name__}: {error}"
    assert done.ended >= done.began


@pytest.mark.parametrize("name", sorted(catalogue()))
async def test_no_fault_strikes_where_there_is_nothing(scene: Scene, name: str) -> None:
    fault = catalogue()[name]
    seconds = 0.0
    if name == "black-hole":  # nothing is told of heartbeats here, and none arriving is its effect
        scene.watch.lives[LEASE] = Life(LEASE, 1, 0.0, CELL, beats(scene))
        seconds = 0.2
    planned = Planned(name, 0.0, seconds, 0.0, 1)
    assert (await strike(fault, planned, scene)).missed is not None


async def _until(seen: Callable[[], bool]) -> None:
    while not seen():
        await asyncio.sleep(0.01)
