"""One Redis for all worlds of a process: broken at will, and started again."""

import asyncio
import atexit
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from redis import Redis

from tocsin.cli.redis_server import RedisServer

T = TypeVar("T")


class RedisOfWorlds:
    """Started when it is first asked for; ended with this process. `now` and then it is down, or frozen."""

    _here: ClassVar["RedisOfWorlds | None"] = None

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tocsin-redis-"))
        self._server = RedisServer(self._folder)
        self._loop = asyncio.new_event_loop()  # in a thread: it reads what the server says
        self._thread = threading.Thread(target=self._loop.run_forever, name="worlds' redis", daemon=True)
        self._thread.start()
        self._run(self._server.start())
        self._is_up = True
        self._is_frozen = False
        atexit.register(self._close)

    @classmethod
    def here(cls) -> "RedisOfWorlds":
        """Raises:
        RedisError: there is none to be had.
        """
        if cls._here is None:
            cls._here = cls()
        cls._here.restore()
        return cls._here

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def answers(self) -> bool:
        return self._is_up and not self._is_frozen

    def ask(self, *command: Any) -> Any:
        """What the server answers; only while it does."""
        with Redis.from_url(self.url) as client:
            return client.execute_command(*command)

    def state(self) -> dict[bytes, bytes]:
        return {key: self.ask("DUMP", key) for key in sorted(self.ask("KEYS", "*"))}

    def roll_back(self, state: dict[bytes, bytes]) -> None:
        """It is what it was, as after a fail-over to a replica that lags."""
        self.ask("FLUSHALL")
        for key, value in state.items():
            self.ask("RESTORE", key, 0, value)

    def kill(self) -> None:
        os.kill(self._server.pid, signal.SIGKILL)
        self._run(self._server.stop())
        self._is_up = False

    def freeze(self) -> None:
        os.kill(self._server.pid, signal.SIGSTOP)
        self._is_frozen = True

    def restore(self) -> None:
        """It answers again; what it had in memory is lost where it was killed."""
        if not self._is_up:
            self._run(self._server.start())
        if self._is_frozen:
            os.kill(self._server.pid, signal.SIGCONT)
        self._is_up, self._is_frozen = True, False

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _close(self) -> None:
        self.restore()
        self._run(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)
