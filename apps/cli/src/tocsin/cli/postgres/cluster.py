"""The files of one embedded database, and the making of them."""

import fcntl
import os
import re
import secrets
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tocsin.cli.postgres.account import Account
from tocsin.cli.postgres.errors import PostgresError
from tocsin.common.clock import Clock

USER = "tocsin"
DATABASE = "tocsin"
LOCK_SECONDS = 2.0
"""How long a start waits for the lock: the guardian of a killed `up` holds it while it looks for what that one left."""

_LOCK_SLICE = 0.05

_COMPLAINT = re.compile(r"(?:ERROR|FATAL|PANIC):  |^initdb: error: ")


@dataclass(frozen=True, slots=True)
class Layout:
    """What lies in the data directory. Only `cluster` and `programs` are for the server's account to read."""

    home: Path

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own data directory; the server's account owns it, nobody else can enter."""
        return self.home / "cluster"

    @property
    def programs(self) -> Path:
        """A copy of the server's programs, by version, where its account cannot reach the installed ones."""
        return self.home / "programs"

    @property
    def password(self) -> Path:
        """The database user's password; mode 0600, made once."""
        return self.home / "password"

    @property
    def port(self) -> Path:
        """The port that was chosen, kept for the next start."""
        return self.home / "port"

    @property
    def lock(self) -> Path:
        """Locked by the process that runs the server, for as long as it lives; holds its pid."""
        return self.home / "lock"

    @property
    def log(self) -> Path:
        """What the server says; mode 0600, for it quotes statements."""
        return self.home / "server.log"

    @property
    def older_log(self) -> Path:
        """The log that was set aside when it had grown."""
        return self.home / "server.log.1"


def make_home(home: Path, account: Account) -> None:
    """Makes the data directory where it is missing, and checks that the server's account can enter it.

    Raises:
        PostgresError: it cannot be made, written, or entered.
    """
    missing = [folder for folder in [home, *home.parents] if not _is_there(folder)]
    account.require_way_to(missing[-1].parent if missing else home)
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise PostgresError(f"the data directory {home} cannot be made: {error.strerror}: {folder}") from error
        if account.user is not None:
            folder.chmod(0o711)  # whatever our umask: the account must pass, and sees no names
    if not os.access(home, os.W_OK | os.X_OK):
        raise PostgresError(f"the data directory {home} cannot be written by uid {os.geteuid()}; choose another")


def require_major(cluster: Path, version: str) -> None:
    """Checks that the data, where there are any, are of the server's major version.

    Raises:
        PostgresError: they are of another, or another account's.
    """
    try:
        found = (cluster / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise PostgresError(f"the data in {cluster} belong to another account: uid {cluster.stat().st_uid}") from error
    if not re.match(rf"{found}(?!\d)", version):
        raise PostgresError(
            f"the data in {cluster} are of PostgreSQL {found}, but the server is PostgreSQL {version}: "
            f"dump them with a server {found} and load them into a new data directory"
        )


def take_lock(layout: Layout, clock: Clock, wait: float = LOCK_SECONDS) -> int:
    """Locks the data directory for this process, for as long as the returned descriptor is open. Blocks.

    Raises:
        PostgresError: another process holds it, and did not let it go within `wait` seconds.
    """
    descriptor = open_private(layout.lock, os.O_RDWR)
    limit = clock.monotonic() + wait
    while not _locked(descriptor):
        if clock.monotonic() >= limit:
            holder = os.read(descriptor, 32).decode().strip()
            os.close(descriptor)
            raise PostgresError(
                f"the data directory {layout.home} is in use by another tocsin (pid {holder}): "
                f"stop that one or choose another data directory"
            )
        threading.Event().wait(_LOCK_SLICE)
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_password(layout: Layout) -> str:
    """The password, made now if there are no data yet.

    Raises:
        PostgresError: there are data, and their password is gone.
    """
    try:
        return layout.password.read_text().strip()
    except FileNotFoundError:
        if layout.cluster.exists():
            raise PostgresError(
                f"the password file {layout.password} is missing: put it back, or move {layout.cluster} away "
                f"to begin with an empty database"
            ) from None
    password = secrets.token_urlsafe(24)
    unfinished = layout.home / "password.new"
    write_private(unfinished, password)
    unfinished.rename(layout.password)
    return password


def initialise(
    layout: Layout, bin_dir: Path, account: Account, password: str, env: Mapping[str, str], *, sync: bool
) -> None:
    """Makes the cluster and its database, whole or not at all: it gets its name when it is ready.

    UTF8 in the C locale, so that no sorting order depends on the machine; scram passwords on every way in.
    `sync` False leaves the flushing to disk to the system.

    Raises:
        PostgresError: a program of the server failed; quotes it.
    """
    unfinished = layout.home / "cluster.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    account.make_private_folder(unfinished)
    password_file = layout.home / "password.initdb"  # for the server's account, which cannot read our own
    write_private(password_file, password)
    account.own(password_file)
    try:
        _run(
            account,
            [
                *(bin_dir / "initdb", "-D", unfinished, f"--username={USER}", f"--pwfile={password_file}"),
                *("--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"),
                *(() if sync else ("--no-sync",)),
            ],
            env,
        )
    finally:
        password_file.unlink()
    fsync = "on" if sync else "off"
    single: list[str | Path] = [
        bin_dir / "postgres",
        "--single",
        "-D",
        unfinished,
        "-c",
        f"fsync={fsync}",
        "postgres",
    ]
    _run(account, single, env, stdin=f"create database {DATABASE}\n")
    unfinished.rename(layout.cluster)


def _run(account: Account, command: list[str | Path], env: Mapping[str, str], stdin: str = "") -> None:
    done = account.run(command, stdin=stdin, env=env)
    lines = done.stderr.strip().splitlines()
    complaints = [line for line in lines if _COMPLAINT.search(line)]  # single-user mode exits with 0 after an error
    if done.returncode != 0 or complaints:
        reason = (complaints or lines or [f"exit code {done.returncode}"])[-1]
        raise PostgresError(f"the database could not be made: {reason.strip()}")


def _is_there(folder: Path) -> bool:
    """Whether a folder exists. One behind a closed parent counts as missing: that parent is found closed."""
    try:
        return folder.exists()
    except PermissionError:
        return False


def open_private(path: Path, flags: int) -> int:
    """Opens a file in the data directory, mode 0600 if it is new; never through a link.

    What root makes in another account's data directory is that account's, which may go on with it.
    """
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def write_private(path: Path, text: str) -> None:
    """Writes a line to a new file of mode 0600; whatever had the name, a link too, gives way."""
    path.unlink(missing_ok=True)
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
