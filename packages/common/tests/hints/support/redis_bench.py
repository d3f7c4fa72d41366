"""A real Redis for each test: started, broken and started again."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from redis.asyncio import Redis

from tocsin.cli.redis_server import RedisServer
from tocsin.common.hints.redis_index import RedisHints

PATIENT = 20.0
"""Seconds for tests that are of no fault: a busy machine is none."""


class RedisBench:
    """`index` makes one over this server; all are closed by `close`."""

    def __init__(self, folder: Path) -> None:
        self.server = RedisServer(folder)
        self.socket = Path(self.server.url.removeprefix("unix://"))
        self._made: list[RedisHints] = []

    async def start(self) -> None:
        await self.server.start()

    def index(
        self, now: Callable[[], datetime], *, name: str = "test", timeout: float = PATIENT, url: str | None = None
    ) -> RedisHints:
        self._made.append(RedisHints(url or self.server.url, name, now, timeout=timeout))
        return self._made[-1]

    async def ask(self, *command: Any) -> Any:
        """What the server answers to one command."""
        async with Redis.from_url(self.server.url) as redis:
            return await redis.execute_command(*command)  # type: ignore[no-untyped-call]

    async def state(self) -> dict[bytes, bytes]:
        """Everything that it holds, for `roll_back`."""
        async with Redis.from_url(self.server.url) as redis:
            return {key: await redis.dump(key) or b"" async for key in redis.scan_iter()}

    async def roll_back(self, state: dict[bytes, bytes]) -> None:
        """Makes it what it was, as a fail-over to a replica that lags does."""
        async with Redis.from_url(self.server.url) as redis:
            await redis.flushall()
            for key, value in state.items():
                await redis.restore(key, 0, value)

    async def kill(self) -> None:
        os.kill(self.server.pid, signal.SIGKILL)
        await self.server.ended()

    async def start_again(self) -> None:
        """An empty one in the place of one that has ended."""
        await self.server.stop()
        await self.server.start()

    def freeze(self) -> None:
        os.kill(self.server.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.server.pid, signal.SIGCONT)

    async def close(self) -> None:
        for index in self._made:
            await index.close()
        with contextlib.suppress(ProcessLookupError):
            self.thaw()
        await self.server.stop()


class Gate:
    """Between an index and its Redis, on a socket of its own: requests pass, answers wait while it is shut."""

    def __init__(self, folder: Path, to: Path) -> None:
        self._path, self._to = folder / "gate.sock", to
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.asked = asyncio.Event()
        """A request has passed since it was shut."""

    @property
    def url(self) -> str:
        return f"unix://{self._path}"

    def shut(self) -> None:
        self._open.clear()
        self.asked.clear()

    def open(self) -> None:
        self._open.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._to)
        for pump in (self._pass(reader, to_server, None), self._pass(from_server, writer, self._open)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None
    ) -> None:
        try:
            while data := await reader.read(65_536):
                if gate is None:
                    self.asked.set()
                else:
                    await gate.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()
