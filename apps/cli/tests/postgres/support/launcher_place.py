"""Where the launcher's tests run their servers, and what they ask of them."""

import asyncio
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from tocsin.cli.postgres import (
    EmbeddedPostgres,
    PostgresError,
    processes,
    throwaway_settings,
)
from tocsin.common.clock import SystemClock

CLOCK = SystemClock()
AS_ROOT = os.geteuid() == 0
PLAIN_UID = pwd.getpwnam("daemon").pw_uid if AS_ROOT else os.geteuid()

OWNER = """
import os, sys
from pathlib import Path
from tocsin.cli.postgres import EmbeddedPostgres, PostgresError, throwaway_settings

home, bin_dir, uid = sys.argv[1:]
if int(uid) != os.geteuid():
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
try:
    with EmbeddedPostgres(Path(home), bin_dir=Path(bin_dir), settings=throwaway_settings()) as server:
        print(server.dsn, server.pid, flush=True)
        sys.stdin.read()
except PostgresError as error:
    print(error, flush=True)
"""
"""Another process that runs a server, under another account where we may choose one, until its input ends."""


@dataclass
class Place:
    """Where one test's servers live. The folder is open to every account; sockets go to one of their own."""

    folder: Path
    sockets: Path
    bin_dir: Path

    @property
    def home(self) -> Path:
        return self.folder / "with blanks, ü" / "data"

    @property
    def cluster(self) -> Path:
        return self.home / "cluster"

    def server(self, port: int = 0, **options: Any) -> EmbeddedPostgres:
        all_options: dict[str, Any] = {"bin_dir": self.bin_dir, "settings": throwaway_settings(), **options}
        return EmbeddedPostgres(self.home, port, **all_options)

    @contextmanager
    def owner(self, uid: int, home: Path | None = None) -> Iterator["Owner"]:
        """Another process with a server on this home, running as `uid`."""
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(home or self.home), str(self.bin_dir), str(uid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(self.sockets)},
        )
        with process:
            assert process.stdout is not None
            yield Owner(process, process.stdout.readline().strip())
            process.communicate()


@dataclass
class Owner:
    process: subprocess.Popen[str]
    said: str

    @property
    def dsn(self) -> str:
        return self.said.split()[0]

    @property
    def server(self) -> psutil.Process:
        return psutil.Process(int(self.said.split()[1]))


async def _ask(dsn: str, *statements: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return [await connection.fetchval(statement) for statement in statements][-1]
    finally:
        await connection.close()


def ask(dsn: str, *statements: str) -> Any:
    """Runs the statements and returns the last one's value."""
    return asyncio.run(_ask(dsn, *statements))


def refused(start: Callable[[], object], *words: str) -> None:
    """Checks that a start is refused in one sentence with all these words. Broken twins must fail it."""
    with pytest.raises(PostgresError) as caught:
        start()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert [word for word in words if word not in sentence] == []


def kill(process: psutil.Process) -> None:
    process.send_signal(signal.SIGKILL)
    assert processes.ended(process, CLOCK, 10.0)
