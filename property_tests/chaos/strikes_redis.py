"""Faults of the Redis that `up` runs for hints: nothing may become of them, not even lateness."""

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from redis.asyncio import Redis
from redis.exceptions import RedisError

from property_tests.chaos.scene import BACK_SECONDS, NotStruckError, Scene
from tocsin.cli.redis_server import url_of

KEEPER = "tocsin.cli.up.redis_process"


async def _server(scene: Scene) -> psutil.Process:
    """Raises:
    LookupError: `up` runs no Redis.
    """
    keeper = await asyncio.to_thread(scene.family.named, KEEPER)
    for child in keeper.children():
        return child
    raise NotStruckError("there was no redis-server")


@asynccontextmanager
async def _asked(scene: Scene) -> AsyncIterator[Redis]:
    keeper = await asyncio.to_thread(scene.family.named, KEEPER)
    async with Redis.from_url(url_of(Path(keeper.cmdline()[-1]))) as redis:
        yield redis


async def kill_redis(scene: Scene, seconds: float, rng: random.Random) -> str:
    """Over when another answers."""
    server = await _server(scene)
    server.kill()

    async def answers() -> bool:
        with contextlib.suppress(LookupError, NotStruckError, psutil.Error, RedisError, OSError):
            if (await _server(scene)).pid != server.pid:
                async with _asked(scene) as redis:
                    return bool(await redis.ping())
        return False

    took = await scene.seen("another Redis answers", answers, BACK_SECONDS)
    return f"killed redis-server, pid {server.pid}; another answered after {took:.1f} s"


async def freeze_redis(scene: Scene, seconds: float, rng: random.Random) -> str:
    """It takes what it is sent, and answers nothing."""
    server = await _server(scene)
    server.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
        if server.status() != psutil.STATUS_STOPPED:
            raise NotStruckError("redis-server went on")
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            server.send_signal(signal.SIGCONT)
    return f"redis-server frozen for {seconds:g} s"


async def flush_redis(scene: Scene, seconds: float, rng: random.Random) -> str:
    async with _asked(scene) as redis:
        keys = int(await redis.dbsize())
        await redis.flushall()
    if not keys:
        raise NotStruckError("there was nothing in Redis")
    return f"flushed the hints of {keys} tenants"


async def roll_back_redis(scene: Scene, seconds: float, rng: random.Random) -> str:
    """It is again what it was some seconds before, as after a fail-over to a replica that lags."""
    async with _asked(scene) as redis:
        before: dict[bytes, Any] = {key: await redis.dump(key) async for key in redis.scan_iter()}
        await asyncio.sleep(seconds)
        await redis.flushall()
        for key, state in before.items():
            if state is not None:  # gone between its name and its state
                await redis.restore(key, 0, state)
    if not before:
        raise NotStruckError("there was nothing in Redis")
    return f"rolled the hints of {len(before)} tenants back by {seconds:g} s"
