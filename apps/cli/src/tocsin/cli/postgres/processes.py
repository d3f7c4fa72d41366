"""Finding, waiting for and ending the processes of a server."""

import contextlib
import os
import signal
from pathlib import Path

import psutil

from tocsin.common.clock import Clock

_SLICE = 0.05
_LEFTOVER_GRACE = 5.0


def postmaster_file(cluster: Path) -> list[str]:
    """The lines of `postmaster.pid`, which the server keeps while it lives; none if it is not there.

    Pid, data directory, start time, port, socket folder, listen address, shared memory, status
    (PostgreSQL's `utils/pidfile.h`); fewer while it starts.
    """
    try:
        return (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def is_ready(cluster: Path, pid: int) -> bool:
    """Whether the server `pid` says that it takes connections: the status line, as `pg_ctl` reads it."""
    lines = postmaster_file(cluster)
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def of_cluster(cluster: Path) -> list[psutil.Process]:
    """The living processes of the server on this data directory: each works in it."""
    wanted = os.path.realpath(cluster)
    found = []
    for process in psutil.process_iter():
        # A process may end meanwhile; one of an account that we may not look into cannot use the data either.
        with contextlib.suppress(psutil.Error):
            if process.name().startswith("postgres") and process.cwd() == wanted:
                found.append(process)
    return found


def ended(process: psutil.Process, clock: Clock, seconds: float) -> bool:
    """Waits up to so many seconds for the end of a process. A zombie that nobody reaps has ended."""
    limit = clock.monotonic() + seconds
    while True:
        try:
            process.wait(timeout=min(_SLICE, seconds))
        except psutil.TimeoutExpired:
            if _is_zombie(process):
                return True
            if clock.monotonic() >= limit:
                return False
        else:
            return True


def shut_down(process: psutil.Process, clock: Clock, *, grace: float) -> None:
    """Ends a server: by fast shutdown (SIGINT), immediate (SIGQUIT), SIGKILL; each is given `grace` seconds.

    Whatever was committed is kept in each case.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
        if ended(process, clock, grace):
            return


def end_leftovers(cluster: Path, clock: Clock) -> None:
    """Ends what a crashed server left: its processes notice and end within moments, or are killed."""
    for process in of_cluster(cluster):
        if not ended(process, clock, _LEFTOVER_GRACE):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
            ended(process, clock, _LEFTOVER_GRACE)


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
