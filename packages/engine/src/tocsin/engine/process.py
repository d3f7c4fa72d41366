"""What identifies one life of one process on one machine, so that another can prove that it is gone."""

import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from tocsin.common.store.tenants import Process

_PROC = Path("/proc")

StartOf = Callable[[int], float | None]


def start_in_ticks(pid: int, proc: Path = _PROC) -> float | None:
    """Linux: a process's start in clock ticks since the machine's boot; None if it has ended, waited for or not.

    Unlike a start in Unix seconds, which is these ticks plus the boot time of /proc/stat, it does not move when
    the wall clock is set.

    Raises:
        PermissionError: the process lives and may not be looked at.
    """
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except ProcessLookupError:
        return None
    except FileNotFoundError:
        _require_gone(pid)
        return None
    # proc_pid_stat(5): "pid (command) state ppid ..."; the command may hold blanks and parentheses
    fields = stat[stat.rindex(b")") + 1 :].split()
    state, ticks = fields[0], fields[19]
    return None if state in (b"Z", b"X", b"x") else float(ticks)


def _require_gone(pid: int) -> None:
    """Under the mount option `hidepid` the processes of other users have no file, though they live."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return
    raise PermissionError(f"process {pid} is hidden")


def start_in_seconds(pid: int) -> float | None:
    """macOS: a process's start in Unix seconds; None if it has ended, waited for or not.

    Raises:
        PermissionError: the process lives and may not be looked at.
    """
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied as error:
        raise PermissionError(str(error)) from error


_start_of: StartOf = start_in_ticks if psutil.LINUX else start_in_seconds

_TOLERANCE = 0.0 if psutil.LINUX else 0.5
"""By how much two readings of one process's start may differ: ticks are exact, seconds are rounded."""


def this_process() -> Process:
    """The process that asks."""
    pid = os.getpid()
    started = _start_of(pid)
    assert started is not None  # it lives: it asks
    return Process(
        node=socket.gethostname(),
        boot=_boot_id(),
        pid_namespace=_pid_namespace(),
        pid=pid,
        started=started,
    )


def is_gone(pid: int, started: float, start_of: StartOf = _start_of) -> bool:
    """Whether the process that had this pid and start has ended. Ask only within one boot and pid namespace.

    What may not be looked at is not gone: only its silence counts.
    """
    try:
        found = start_of(pid)
    except PermissionError:
        return False
    return found is None or abs(found - started) > _TOLERANCE


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    if path.exists():
        return path.read_text().strip()
    if sys.platform == "darwin":
        found = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            return found.stdout.strip()
    return f"{platform.node()}-{psutil.boot_time():.0f}"


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return platform.node()
