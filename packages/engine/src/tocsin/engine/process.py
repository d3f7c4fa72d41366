"""What identifies one life of one process on one machine, so that another can prove that it is gone."""

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from tocsin.common.store.tenants import Process

_START_TOLERANCE = 0.5
"""Seconds by which two readings of one process's start may differ: the boot time they rest on is rounded."""


def this_process() -> Process:
    """The process that asks."""
    return Process(
        node=socket.gethostname(),
        boot=_boot_id(),
        pid_namespace=_pid_namespace(),
        pid=os.getpid(),
        started=psutil.Process().create_time(),
    )


def is_gone(pid: int, started: float) -> bool:
    """Whether the process that had this pid and start has ended. Ask only within one boot and pid namespace."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) > _START_TOLERANCE or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


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
