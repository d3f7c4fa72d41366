"""One child process of `up`: started, listened to, ended with all that it has started."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tocsin.cli.up import processes
from tocsin.common.errors import TocsinError

log = logging.getLogger("tocsin.up")

_LOOK_SECONDS = 0.1
_LOG_LIMIT = 10 * 1024**2

Message = Mapping[str, Any]


class ChildError(TocsinError):
    """A child has ended before it was ready; the text says why."""


class Child:
    """A Python module run as a process that ends when we do, in a session of its own, so deaf to our Ctrl-C.

    It says `{"event": "ready"}` on standard output when it serves, and `{"event": "error", "text": ...}` before it
    gives up; other messages go to `on_message`. Its standard error goes to `logs/<name>.log`.
    """

    def __init__(self, name: str, module: str, up_id: str, logs: Path, on_message: Callable[[Message], None]) -> None:
        self.name = name
        self.log_file = logs / f"{name}.log"
        self.starts = 0
        self._module = module
        self._marker = f"{up_id}.{name}"
        self._on_message = on_message
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = asyncio.Event()
        self._error = ""
        self._listening: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """While it lives."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def ready(self) -> bool:
        return self.pid is not None and self._ready.is_set()

    async def start(self, env: Mapping[str, str], *args: str) -> int:
        """Starts the process; returns its pid, which is that of its session.

        Secrets belong into `env`: everybody on the machine can read arguments.
        """
        self.starts += 1
        self._ready.clear()
        self._error = ""
        if self.log_file.exists() and self.log_file.stat().st_size > _LOG_LIMIT:
            self.log_file.rename(self.log_file.with_suffix(".log.1"))
        with os.fdopen(os.open(self.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603 - our own module; a fork takes milliseconds
                # -P: whatever lies in the current folder must not pass for our modules.
                [sys.executable, "-P", "-m", self._module, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**env, processes.MARKER: self._marker},
                start_new_session=True,
            )
        self._listening = asyncio.create_task(self._listen(self._process), name=f"listen to {self.name}")
        return self._process.pid

    async def wait_ready(self) -> None:
        """Returns once it is ready.

        Raises:
            ChildError: it has ended before.
        """
        while not self._ready.is_set():
            if self.pid is None:
                await self.ended()
                reason = self._error or f"{self.name} ended before it was ready; see {self.log_file}"
                raise ChildError(reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._ready.wait()

    async def ended(self) -> int:
        """Waits for its end; returns the exit code, minus the signal's number where a signal ended it."""
        assert self._process is not None
        while (code := self._process.poll()) is None:  # noqa: ASYNC110 - no signal tells of one child's end
            await asyncio.sleep(_LOOK_SECONDS)
        if self._listening is not None:  # what it said last; a grandchild may hold the pipe open
            await asyncio.wait([self._listening], timeout=_LOOK_SECONDS)
            self._listening.cancel()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return code

    async def end_strays(self) -> int:
        """Ends everything that the process has started and left behind; says how many there were."""
        sessions = [] if self._process is None else [self._process.pid]
        return await asyncio.to_thread(processes.end_all, self._marker, sessions)

    async def stop(self, grace: float) -> None:
        """SIGTERM, and after `grace` seconds SIGKILL; returns when it and all that it started are gone."""
        if self.pid is not None:
            self._send(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace):
                    await self.ended()
            except TimeoutError:
                log.warning("%s did not stop within %g s and was killed", self.name, grace)
                self._send(signal.SIGKILL)
        if self._process is not None:
            await self.ended()
        await self.end_strays()

    def tell(self, line: str) -> None:
        """Writes a line to its standard input; one that has ended, or reads none, misses it."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), f"{line}\n".encode())  # short, so written whole or not at all

    async def let_go(self) -> None:
        """Ends its standard input and waits for its end."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self.ended()

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    async def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:  # a line without end, some library's print; it is dropped
                    continue
                if not line:
                    return
                self._take(line)
        finally:
            transport.close()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            event = message["event"]
        except (ValueError, TypeError, KeyError):
            log.debug("%s says %r", self.name, line)  # a library's own print
            return
        if event == "ready":
            self._ready.set()
        elif event == "error":
            self._error = str(message["text"])
        self._on_message(message)
