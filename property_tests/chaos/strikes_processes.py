"""Faults of processes: killed, frozen, or without their database."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable

import aiohttp
import psutil

from property_tests.chaos.scene import BACK_SECONDS, NotStruckError, Scene, one_of

Strike = Callable[[Scene, float, random.Random], Awaitable[str]]
"""Does it, returns when it is over and was seen to have struck, and says in a few words what was done. The number is
how long it lasts, seconds.

Raises:
    NotStruckError: it was done, and had no effect, or something did not come back from it.
"""

RAY_SECONDS = 150.0
"""Within which `up` must have brought Ray back; where nothing else runs it takes 15 to 25 s."""

_GONE_SECONDS = 10.0
_NOTICED_SECONDS = 5.0
"""Until the watch has noticed that a lease has ended, after it must have."""


async def kill_executor(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Over when another serves its cell."""
    life, known = one_of(rng, scene.actors(), "executor of Ray's"), set[object](scene.watch.lives)
    at = scene.now()
    os.kill(life.pid, signal.SIGKILL)
    scene.watch.failed(life.lease_id, at, scene.now())
    await scene.lease_ended(life, scene.ttl + _NOTICED_SECONDS)
    took = await scene.served_again(life, known)
    return f"killed an executor of {life.cell}, pid {life.pid}; another served {took:.1f} s after its lease ended"


async def kill_skewed(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Nothing restarts it; ours is started anew, with another wrong clock. Over when that one serves."""
    pid = one_of(rng, sorted(scene.skewed.pids()), "plain executor")
    lives = [life for life in scene.watch.live() if life.pid == pid]
    if not lives:
        raise NotStruckError(f"the plain executor with pid {pid} had no lease")
    at = scene.now()
    os.kill(pid, signal.SIGKILL)
    for life in lives:
        scene.watch.failed(life.lease_id, at, scene.now())
    await asyncio.sleep(2.0)
    skew = await scene.skewed.start(rng)
    own = scene.skewed.pids() - {pid}

    async def serves() -> bool:
        return own <= {life.pid for life in scene.watch.live()}

    for life in lives:
        await scene.lease_ended(life, scene.ttl + _NOTICED_SECONDS)
    await scene.seen("the new plain executor has a lease", serves, BACK_SECONDS)
    return f"killed a plain executor, pid {pid}; started one with {skew}"


def freeze_executor(*, dedicated: bool) -> Strike:
    """SIGSTOP, and SIGCONT long after its lease has ended: a zombie that comes back. The shared cell has others that
    take over; a tenant whose own cell has one executor waits until the Supervisor has ended and replaced it."""

    async def work(scene: Scene, seconds: float, rng: random.Random) -> str:
        life, known = scene.choose(rng, dedicated=dedicated), set[object](scene.watch.lives)
        process = psutil.Process(life.pid)
        at = scene.now()
        process.send_signal(signal.SIGSTOP)
        try:
            scene.watch.failed(life.lease_id, at, scene.now())
            await asyncio.sleep(seconds)
            await scene.lease_ended(life, _NOTICED_SECONDS)
            if dedicated:
                await scene.served_again(life, known)
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
        await scene.lease_ended(life, _NOTICED_SECONDS)
    finally:
        scene.proxy.release()
    return f"no database for an executor of {life.cell}, pid {life.pid}"


async def _kill(scene: Scene, text: str) -> psutil.Process:
    """The process with this name; gone when this returns."""
    process = await asyncio.to_thread(scene.family.named, text)
    process.kill()

    async def gone() -> bool:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE

    with contextlib.suppress(psutil.NoSuchProcess):
        await scene.seen(f"{text} ended", gone, _GONE_SECONDS)
    return process


async def kill_supervisor(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Over when Ray has started another."""
    text = "ray::Supervisor"
    killed = await _kill(scene, text)

    async def another() -> bool:
        with contextlib.suppress(LookupError):
            return (await asyncio.to_thread(scene.family.named, text)).pid != killed.pid
        return False

    took = await scene.seen(f"another {text}", another, BACK_SECONDS)
    return f"killed {text}, pid {killed.pid}; another was there after {took:.1f} s"


async def kill_api(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Over when the API answers again."""
    text = "tocsin.cli.up.api_process"
    killed = await _kill(scene, text)
    timeout = aiohttp.ClientTimeout(total=2.0)
    async with aiohttp.ClientSession(scene.api, timeout=timeout, trust_env=False) as session:

        async def answers() -> bool:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async with session.get("/readyz") as response:
                    return response.status == 200
            return False

        took = await scene.seen("the API answers", answers, BACK_SECONDS)
    return f"killed {text}, pid {killed.pid}; it answered again after {took:.1f} s"


def kill_ray(text: str) -> Strike:
    """`up` has to bring Ray back; until then what it placed is gone, or orphaned. Over when as many executors of it as
    before have a lease again."""

    async def work(scene: Scene, seconds: float, rng: random.Random) -> str:
        before = {life.lease_id for life in scene.actors()}
        if not before:
            raise NotStruckError("Ray had no executor")
        killed = await _kill(scene, text)

        async def back() -> bool:
            return len({life.lease_id for life in scene.actors()} - before) >= len(before)

        took = await scene.seen(f"after {text} was killed, Ray is back", back, RAY_SECONDS)
        return f"killed {text}, pid {killed.pid}; Ray was back after {took:.1f} s"

    return work
