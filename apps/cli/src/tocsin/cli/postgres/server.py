"""Starting and stopping one embedded PostgreSQL."""

import contextlib
import errno
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import psutil

from tocsin.cli.postgres import cluster, earlier, processes, programs
from tocsin.cli.postgres.account import Account
from tocsin.cli.postgres.cluster import DATABASE, USER, Layout
from tocsin.cli.postgres.errors import PostgresError
from tocsin.cli.postgres.settings import command_line, production_settings
from tocsin.common.clock import Clock, SystemClock

HOST = "127.0.0.1"
START_LIMIT = 60.0
"""Seconds that a server gets to take connections, recovery after a crash included."""

STOP_GRACE = 20.0
"""Seconds that a fast shutdown gets: it writes a checkpoint."""

_SOCKET_PATH_LIMIT = 103  # bytes: 107 on Linux, 103 on macOS
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "TMPDIR")
"""All that the server gets of our environment, which holds secrets of ours and `PG...` settings."""
_PORT_TRIES = 5
_READY_SLICE = 0.02
_LOG_LIMIT = 10 * 1024**2


class EmbeddedPostgres:
    """One PostgreSQL server on one data directory, for as long as this object is started.

    The data survive restarts. The server listens on 127.0.0.1 and on a unix socket in a private
    folder, takes scram passwords only, and is deaf to the terminal's Ctrl-C. It has one owner: the
    process that started it holds a lock. A server that outlived its owner (`kill -9`) goes on; the
    next start on this data directory knows it by its command line, shuts it down and starts a new
    one, so that settings, version and port are those asked for.

    As root the server runs as `nobody` (see `account`), and its programs are copied to
    `<data_dir>/programs/<version>` if that account cannot reach them. One thread at a time.

    Args:
        data_dir: made if missing; its parents are left as they are.
        port: the TCP port; 0 keeps the port of the last start, or chooses a free one.
        bin_dir: the folder with `postgres` and `initdb`; by default PostgreSQL 18 as installed with Tocsin.
        settings: server settings by name; by default `production_settings()`.
        start_limit: seconds to wait until the server takes connections.
        stop_grace: seconds of the fast shutdown before the immediate one, and of that before SIGKILL.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        bin_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        start_limit: float = START_LIMIT,
        stop_grace: float = STOP_GRACE,
    ) -> None:
        self._layout = Layout(Path(os.path.abspath(data_dir)))
        self._wanted_port = port
        self._bin_dir = bin_dir
        self._settings = production_settings() if settings is None else dict(settings)
        self._clock = clock or SystemClock()
        self._start_limit = start_limit
        self._stop_grace = stop_grace
        self._account = Account.of_server(self._layout.cluster)
        kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._env = {**kept, "LC_ALL": "C"}
        self._child: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._socket_folder: Path | None = None
        self._dsn = ""

    @property
    def dsn(self) -> str:
        """`postgresql://user:password@127.0.0.1:port/database`.

        Raises:
            PostgresError: not started.
        """
        if self._child is None:
            raise PostgresError("the embedded PostgreSQL is not started")
        return self._dsn

    @property
    def pid(self) -> int | None:
        """The server's process id while this object runs one."""
        return None if self._child is None else self._child.pid

    @property
    def running(self) -> bool:
        """Whether the server was started and its process still lives."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> str:
        """Starts the server and returns the DSN once it takes connections.

        Blocks: 0.1 s, with new data 1 s, after a crash as long as recovery takes; at most `start_limit`.
        Starting what runs changes nothing.

        Raises:
            PostgresError: the port is taken, the data directory is in use, unreachable or of another
                major version, or the server refuses; one sentence that says which.
        """
        if self.running:
            return self._dsn
        self.stop()
        try:
            cluster.make_home(self._layout.home, self._account)
            self._lock = cluster.take_lock(self._layout, self._clock)
            self._dsn = self._start_locked()
        except OSError as error:
            self.stop()
            raise PostgresError(f"PostgreSQL cannot be started in {self._layout.home}: {error}") from error
        except BaseException:
            self.stop()
            raise
        return self._dsn

    def stop(self) -> None:
        """Shuts the server down and returns when it is gone; doing it again changes nothing."""
        if self._child is not None:
            if self._child.poll() is None:
                processes.shut_down(psutil.Process(self._child.pid), self._clock, grace=self._stop_grace)
                self._child.wait()
            processes.end_leftovers(self._layout.cluster, self._clock)
            self._child = None
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _start_locked(self) -> str:
        installed = self._bin_dir or programs.binaries()
        version = programs.version_of(installed)
        cluster.require_major(self._layout.cluster, version)
        earlier.end_earlier_server(self._layout.cluster, self._clock, grace=self._stop_grace)
        bin_dir = programs.reachable(installed, version, self._account, self._layout.programs)
        password = cluster.read_password(self._layout)
        if not self._layout.cluster.exists():
            sync = self._settings.get("fsync", "on") == "on"
            cluster.initialise(self._layout, bin_dir, self._account, password, self._env, sync=sync)
        self._socket_folder = self._make_socket_folder()
        port = self._launch_on_a_port(bin_dir)
        return f"postgresql://{USER}:{password}@{HOST}:{port}/{DATABASE}"

    def _make_socket_folder(self) -> Path:
        for parent in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - a private folder in it
            longest = parent / f"{earlier.SOCKET_FOLDER_PREFIX}12345678" / ".s.PGSQL.65535"
            if len(os.fsencode(longest)) <= _SOCKET_PATH_LIMIT and self._account.can_enter(parent):
                folder = Path(tempfile.mkdtemp(prefix=earlier.SOCKET_FOLDER_PREFIX, dir=parent))
                self._account.own(folder)
                return folder
        raise PostgresError(f"no short temporary folder that {self._account.name} can enter: set TMPDIR to one")

    def _launch_on_a_port(self, bin_dir: Path) -> int:
        if self._wanted_port:
            if not _is_free(self._wanted_port):
                raise _PortTakenError(self._wanted_port)
            self._launch(bin_dir, self._wanted_port)
            return self._wanted_port
        kept = _read_number(self._layout.port)
        port = kept if kept and _is_free(kept) else _free_port()
        for _ in range(_PORT_TRIES):
            try:
                self._launch(bin_dir, port)
            except _PortTakenError:  # somebody was quicker
                port = _free_port()
            else:
                cluster.write_private(self._layout.port, str(port))
                return port
        raise PostgresError(f"no free port was found on {HOST} in {_PORT_TRIES} tries")

    def _launch(self, bin_dir: Path, port: int) -> None:
        """Starts the server and waits until it takes connections.

        Raises:
            PostgresError: it ended, or takes too long.
        """
        own = {
            "listen_addresses": HOST,
            "port": str(port),
            "unix_socket_directories": str(self._socket_folder),
        }
        with self._open_log() as log:
            begin = log.tell()
            self._child = subprocess.Popen(  # noqa: S603 - the server's own program
                [bin_dir / "postgres", "-D", self._layout.cluster, *command_line({**self._settings, **own})],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self._env,
                start_new_session=True,
                user=self._account.user,
                group=self._account.group,
                extra_groups=self._account.extra_groups,
            )
        limit = self._clock.monotonic() + self._start_limit
        while not processes.is_ready(self._layout.cluster, self._child.pid):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_READY_SLICE)
                raise self._refusal(begin, port)
            if self._clock.monotonic() >= limit:
                raise PostgresError(
                    f"PostgreSQL took no connections within {self._start_limit:g} s and was stopped; "
                    f"see {self._layout.log}"
                )

    def _open_log(self) -> BinaryIO:
        log = self._layout.log
        if log.exists() and log.stat().st_size > _LOG_LIMIT:
            log.rename(self._layout.older_log)
        return os.fdopen(cluster.open_private(log, os.O_WRONLY | os.O_APPEND), "ab")

    def _refusal(self, begin: int, port: int) -> PostgresError:
        """What the server said last, from this place in its log."""
        with self._layout.log.open("rb") as log:
            log.seek(begin)
            said = log.read().decode(errors="replace")
        bind = re.search(r"could not bind .+", said)
        if bind and "already in use" in bind.group():
            return _PortTakenError(port)
        reasons = [bind.group()] if bind else re.findall(r"(?:FATAL|PANIC):  (.+)", said) or said.splitlines()
        reason = reasons[-1] if reasons else "it said nothing"
        return PostgresError(f"PostgreSQL refuses to start: {reason} (see {self._layout.log})")


class _PortTakenError(PostgresError):
    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} on {HOST} is taken by another program: stop that or choose another port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # any other reason is for the server to say
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _read_number(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int(path.read_text())
    return None
