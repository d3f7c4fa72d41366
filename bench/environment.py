"""What a figure was measured on."""

import os
import platform
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import psutil

from bench.report import Environment, Figure

_SETTINGS = (
    "autovacuum_naptime",
    "checkpoint_timeout",
    "fsync",
    "full_page_writes",
    "jit",
    "max_connections",
    "max_wal_size",
    "shared_buffers",
    "synchronous_commit",
    "wal_compression",
)
_SYNCS = 100
_LOOPS = 50
_PAGE = 8192


async def environment(connection: "asyncpg.Connection[asyncpg.Record]", folder: Path, *, runtime: str) -> Environment:
    """The machine, the versions, the server's settings that matter, and what a flush to `folder` costs.

    `runtime`: how the executors were started.
    """
    rows = await connection.fetch(
        "select name, current_setting(name) as value from pg_settings where name = any($1) order by name", _SETTINGS
    )
    version = connection.get_server_version()
    return {
        **machine(),
        "postgresql": f"{version.major}.{version.minor}",
        "fdatasync_ms": round(flush_seconds(folder) * 1000, 3),
        "runtime": runtime,
        "postgresql_settings": {row["name"]: row["value"] for row in rows},
    }


def machine() -> dict[str, Figure | Mapping[str, str]]:
    """What a measurement without a database was measured on."""
    loops = loop_milliseconds()
    return {
        "cores": usable_cores(),
        "cpu": cpu_model(),
        "ram_gib": round(psutil.virtual_memory().total / 1024**3, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "loop_best_ms": round(min(loops), 1),
        "loop_median_ms": round(statistics.median(loops), 1),
        "load_before": round(os.getloadavg()[0], 2),
    }


def usable_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def cpu_model() -> str:
    """The processor's name as the kernel gives it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def flush_seconds(folder: Path) -> float:
    """The median time of writing one page and flushing it to the disk under `folder`."""
    flush = getattr(os, "fdatasync", os.fsync)
    path = folder / "flush-probe"
    times = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            os.pwrite(descriptor, bytes(_PAGE), 0)
            flush(descriptor)
            times.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(times)


def loop_milliseconds() -> list[float]:
    """What one and the same sum takes, time after time: a shared machine has spells in which all takes longer, and
    figures of two spells are not to be compared."""
    times = []
    for _ in range(_LOOPS):
        began = time.perf_counter()
        sum(number * number for number in range(200_000))
        times.append((time.perf_counter() - began) * 1000)
    return times
