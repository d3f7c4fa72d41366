"""Our own Redis: what it is started with, and how it ends."""

import os
import signal
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from tocsin.cli import redis_server
from tocsin.cli.commands.doctor import examine
from tocsin.cli.redis_server import MEGABYTES, RedisError, RedisServer
from tocsin.common.settings import Settings


async def test_it_listens_on_its_socket_alone_keeps_nothing_and_is_bounded(redis: RedisServer) -> None:
    async with Redis.from_url(redis.url) as client:
        said = {
            name: (await client.config_get(name))[name] for name in ("port", "save", "appendonly", "maxmemory", "bind")
        }
    assert said["port"] == "0"
    assert (said["save"], said["appendonly"], said["maxmemory"]) == ("", "no", str(MEGABYTES * 1024**2))
    socket = Path(redis.url.removeprefix("unix://"))
    assert socket.stat().st_mode & 0o077 == 0


async def test_doctor_finds_it(redis: RedisServer) -> None:
    findings = await examine(Settings(hints="auto", redis_url=SecretStr(redis.url)))
    (hints,) = [finding for finding in findings if finding.part == "hints"]
    assert hints.sound
    assert hints.text.startswith("auto, by the Redis ")


async def test_it_is_started_again_over_what_a_killed_one_left(redis: RedisServer) -> None:
    os.kill(redis.pid, signal.SIGKILL)
    assert await redis.ended() == -signal.SIGKILL
    await redis.stop()
    await redis.start()
    async with Redis.from_url(redis.url) as client:
        assert await client.ping()


async def test_where_it_cannot_start_it_says_so(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "no such folder")
    with pytest.raises(RedisError, match="does not start"):
        await server.start()


async def test_where_there_is_none_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "program", lambda: None)
    with pytest.raises(RedisError, match="no redis-server on the PATH"):
        await RedisServer(tmp_path).start()
    await RedisServer(tmp_path).stop()
