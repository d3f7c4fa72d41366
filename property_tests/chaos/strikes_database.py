"""Faults of the database and of the way to it, which are those of all processes."""

import asyncio
import os
import random
import signal
from datetime import datetime

from bench.system import connected
from property_tests.chaos.scene import NotStruckError, Scene
from property_tests.chaos.up_behind_proxy import at_port
from property_tests.network.proxy import Cut, Trap
from tocsin.cli.postgres.processes import postmaster_file

DELAY_SECONDS = 0.05
ANSWERS = 20
"""Commits whose answers are dropped in one fault."""

CUTS = 3
_CONNECTED_SECONDS = 5.0
_BACK_SECONDS = 60.0


async def restart_postgres(scene: Scene, seconds: float, rng: random.Random) -> str:
    number = rng.choice([signal.SIGINT, signal.SIGKILL])
    before = await _started(scene)
    _end_server(scene, number)
    await _back(scene, before)
    return f"PostgreSQL ended by {number.name}"


async def stop_postgres(scene: Scene, seconds: float, rng: random.Random) -> str:
    scene.hold.touch()
    try:
        before = await _started(scene)
        _end_server(scene, signal.SIGINT)
        await asyncio.sleep(seconds)
        released = scene.now()
    finally:
        scene.hold.unlink()
    again = await _back(scene, before)
    if again.timestamp() < released:
        raise NotStruckError(f"PostgreSQL was started again {released - again.timestamp():.1f} s too soon")
    return f"PostgreSQL down for {seconds:g} s"


def _end_server(scene: Scene, number: signal.Signals) -> None:
    os.kill(int(postmaster_file(scene.cluster)[0]), number)


async def _started(scene: Scene) -> datetime:
    """When the server that answers was started."""
    async with connected(scene.dsn()) as connection:
        started: datetime = await connection.fetchval("select pg_postmaster_start_time()", timeout=5)
        return started


async def _back(scene: Scene, before: datetime) -> datetime:
    """Returns once another server than that of `before` answers, with the instant of its start.

    Raises:
        NotStruckError: none does, or the old one still.
    """
    found = before

    async def another() -> bool:
        nonlocal found
        try:
            found = await _started(scene)
        except Exception:  # whatever a server says that is on its way down or up
            return False
        return found != before

    await scene.seen("another PostgreSQL answers", another, _BACK_SECONDS)
    return found


async def cut_database(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Connections are reset, and refused."""
    scene.proxy.refusing = True
    try:
        count = scene.proxy.cut()
        await scene.silent(seconds)
    finally:
        scene.proxy.refusing = False
    if count == 0:
        raise NotStruckError("there was no connection to be cut")
    return f"{count} connections cut, none taken for {seconds:g} s"


async def cut_connections(scene: Scene, seconds: float, rng: random.Random) -> str:
    counts: list[int] = []

    async def cut() -> bool:
        count = scene.proxy.cut()
        counts.extend([count] if count else [])
        return count > 0

    for _ in range(CUTS):
        await scene.seen("there is a connection to be cut", cut, _CONNECTED_SECONDS)
        await asyncio.sleep(rng.uniform(0.2, 1.5))
    return f"connections cut {CUTS} times: {', '.join(map(str, counts))}"


async def delay_database(scene: Scene, seconds: float, rng: random.Random) -> str:
    scene.proxy.delay = DELAY_SECONDS
    try:
        await asyncio.sleep(seconds)
        took = await _round_trip(scene)
    finally:
        scene.proxy.delay = 0.0
    if took < 2 * DELAY_SECONDS:
        raise NotStruckError(f"a statement took {1000 * took:.0f} ms all the same")
    return f"{1000 * DELAY_SECONDS:g} ms each way for {seconds:g} s"


async def _round_trip(scene: Scene) -> float:
    """Seconds of one statement through the proxy."""
    async with connected(at_port(scene.dsn(), scene.proxy.port)) as connection:
        began = scene.clock.monotonic()
        await connection.execute("select 1", timeout=5)
        return scene.clock.monotonic() - began


async def black_hole(scene: Scene, seconds: float, rng: random.Random) -> str:
    scene.proxy.hold(lambda name: True)
    try:
        await scene.silent(seconds)
    finally:
        scene.proxy.release()
    return f"nothing arrives for {seconds:g} s"


async def drop_answers(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Commits take effect and are not answered; between two of them something gets through."""
    sprung: list[Trap] = []
    limit = scene.clock.monotonic() + seconds
    while len(sprung) < ANSWERS and scene.clock.monotonic() < limit:
        trap = scene.proxy.trap = Trap(None, Cut.AFTER)
        await asyncio.sleep(rng.uniform(0.05, 0.5))
        scene.proxy.trap = None
        sprung += [trap] if trap.sprung else []
    dropped = sum(trap.struck is not None for trap in sprung)
    if dropped == 0:
        raise NotStruckError("there was no commit whose answer could be dropped")
    return f"{dropped} commits without an answer"


async def read_only(scene: Scene, seconds: float, rng: random.Random) -> str:
    """As on a server that was demoted: also in sessions that exist, since none sets it for itself. At the end these
    are ended, as by a failover."""
    async with connected(scene.dsn(), default_transaction_read_only="off") as connection:
        await connection.execute("alter system set default_transaction_read_only = on")
        await connection.execute("select pg_reload_conf()")
        try:
            await scene.silent(seconds)
        finally:
            await connection.execute("alter system reset default_transaction_read_only")
            await connection.execute("select pg_reload_conf()")
            ended = await connection.fetchval(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'tocsin%'"
            )
    if not ended:
        raise NotStruckError("there was no session to be ended")
    return f"read-only for {seconds:g} s, then {ended} sessions ended"
