"""`tocsin up` as a process of a test: started, read, signalled, and looked after."""

import asyncio
import contextlib
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from tocsin.cli.postgres.account import Account
from tocsin.common.clock import SystemClock

CLOCK = SystemClock()
START_SECONDS = 90.0
STOP_SECONDS = 10.0
_LOOK = threading.Event()
_WATCH_SECONDS = 0.3
_TAG = "TOCSIN_TEST_DATA_DIR"
"""An environment variable by which the children of one `up` are told from those of all others on the machine."""

GIVEN = "TOCSIN_DATABASE_URL"
KEEPER = "tocsin.cli.up.ray_keeper"

LEAVES_A_SERVER = """
import os, sys
from pathlib import Path
from tocsin.cli.postgres import EmbeddedPostgres, throwaway_settings
server = EmbeddedPostgres(Path(sys.argv[1]), settings=throwaway_settings())
server.start()
print(server.pid, flush=True)
os._exit(0)
"""
"""A program that starts a server in a data directory, says its pid, and ends without it, as a killed `up`."""

TOCSIN = Path(sys.executable).with_name("tocsin")


def eventually(found: Callable[[], Any], seconds: float, what: str) -> Any:
    """Looks until `found` returns something true, which it returns; fails after `seconds`."""
    limit = CLOCK.monotonic() + seconds
    while not (result := found()):
        assert CLOCK.monotonic() < limit, f"not within {seconds:g} s: {what}"
        _LOOK.wait(0.05)
    return result


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def plain_account() -> Account | None:
    """Another account than root's that can run this Python; None where we are not root, or it cannot."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("daemon")
    account = Account("daemon", entry.pw_uid, entry.pw_gid, ())
    try:
        return account if account.run([sys.executable, "-c", "import tocsin.cli"]).returncode == 0 else None
    except PermissionError:
        return None


class UpProcess:
    """One `tocsin up`. Output is gathered by threads; the screen is lines, for no terminal is there."""

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        port: int | None = None,
        dashboard_port: int | None = None,
        command: tuple[str, ...] = (),
        account: Account | None = None,
        **environment: str,
    ) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self.dashboard_port = dashboard_port or free_port()
        self.lines: list[str] = []
        arguments = ("--data-dir", data_dir, "--port", self.port, "--dashboard-port", self.dashboard_port, *options)
        own = {name: value for name, value in os.environ.items() if name != GIVEN}  # a developer's
        self._given = environment.get(GIVEN)
        self.process = subprocess.Popen(
            [*command, TOCSIN, "up", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**own, _TAG: str(data_dir), **environment},
            user=account.user if account else None,
            group=account.group if account else None,
            extra_groups=account.extra_groups if account else None,
            start_new_session=True,
        )
        self.seen: set[psutil.Process] = set()
        self.folders: set[Path] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                self.lines.append(line.rstrip("\n"))

    def _watch(self) -> None:
        while self.process.poll() is None:
            with contextlib.suppress(psutil.Error):
                for process in set(self.descendants()) - self.seen:
                    self.seen.add(process)
                    words = re.findall(r"/tmp/tocsin-[a-z0-9_]{8}\b", " ".join(process.cmdline()))
                    self.folders.update(Path(word) for word in words)
            _LOOK.wait(_WATCH_SECONDS)

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def said(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """Waits for a line that matches; fails when the process ends before."""

        def found() -> re.Match[str] | None:
            for line in list(self.lines):
                if match := re.search(pattern, line):
                    return match
            assert self.process.poll() is None or self._reader.is_alive(), f"it ended:\n{self.output}"
            return None

        result: re.Match[str] = eventually(found, seconds, f"a line {pattern!r} in:\n{self.output}")
        return result

    def serving(self) -> None:
        """Waits until everything runs."""
        self.said(r"^  Logs ")

    @property
    def dsn(self) -> str:
        if self._given is not None:
            return self._given
        password = (self.data_dir / "password").read_text().strip()
        port = (self.data_dir / "port").read_text().strip()
        return f"postgresql://tocsin:{password}@127.0.0.1:{port}/tocsin"

    def ask(self, statement: str, *args: object) -> Any:
        """A single value from the database; None while it does not answer."""
        return asyncio.run(_ask(self.dsn, statement, args))

    def descendants(self) -> list[psutil.Process]:
        """All living processes of this `up`, Ray's included."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, name: str) -> psutil.Process:
        """The one living descendant with this name, or with this module among its arguments."""
        found = [p for p in self.descendants() if is_called(p, name)]
        assert len(found) == 1, f"{name}: {found}"
        return found[0]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float) -> int:
        """Waits for its end; returns the exit code, and all that it said is in `lines`."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def give_up(self) -> None:
        """Stops it where a failed check has left it running."""
        if self.process.poll() is None:
            self.process.terminate()
            self.ended(STOP_SECONDS)


def is_called(process: psutil.Process, name: str) -> bool:
    try:
        return process.name() == name or name in process.cmdline()
    except psutil.Error:
        return False


async def _ask(dsn: str, statement: str, args: tuple[object, ...]) -> Any:
    try:
        connection = await asyncpg.connect(dsn, timeout=5)
    except (OSError, asyncpg.PostgresError):
        return None
    try:
        return await connection.fetchval(statement, *args)
    finally:
        await connection.close()


def lives(process: psutil.Process) -> bool:
    """A zombie that nobody reaps does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def strays(data_dir: Path, before: set[psutil.Process], seen: Iterable[psutil.Process]) -> list[psutil.Process]:
    """What lives of `seen`, and what was not there before and works on this data directory."""
    found = [process for process in seen if lives(process)]
    for process in set(psutil.process_iter()) - before:
        with contextlib.suppress(psutil.Error):
            told = [*process.cmdline(), process.cwd(), process.environ().get(_TAG, "")]
            if lives(process) and any(str(data_dir) in word for word in told):
                found.append(process)
    return found


@contextmanager
def nothing_left(data_dir: Path, seconds: float = 2.0) -> Iterator[list[UpProcess]]:
    """Checks that after the block no process and no temporary folder is there that was not before.

    The block adds to the list what it starts: of those, no descendant may live, whatever it has become.
    """
    before = set(psutil.process_iter())
    started: list[UpProcess] = []
    try:
        yield started
    finally:
        for up in started:
            up.give_up()
    seen = {process for up in started for process in up.seen}
    eventually(lambda: not strays(data_dir, before, seen), seconds, f"an end of {strays(data_dir, before, seen)}")
    assert [folder for up in started for folder in up.folders if folder.exists()] == []


def keeper_of(up: UpProcess) -> psutil.Process:
    """Ray's keeper, as soon as it is there: all others are then, too."""

    def found() -> list[psutil.Process]:
        assert up.process.poll() is None, up.output
        return [process for process in up.descendants() if is_called(process, KEEPER)]

    keeper: psutil.Process = eventually(found, 60.0, f"the keeper of Ray in:\n{up.output}")[0]
    return keeper


def uses_a_given_database(up: UpProcess) -> None:
    """Checks that it has started no server, and that what it has started works on the database of the setting."""
    servers = [process for process in up.descendants() if process.name().startswith("postgres")]
    assert servers == [], "it has started a server"
    assert not (up.data_dir / "cluster").exists()
    assert up.child("tocsin.cli.up.api_process").environ()[GIVEN] == up.dsn
    up.said(rf"using the PostgreSQL .* which {GIVEN} names; none is started here", 1.0)
