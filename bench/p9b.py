"""P9b: the database's disk is capped far below any that is rented, under a steady load.

The cap is a control group's, and counts only where a process that writes has been seen to be held by it. On a machine
that cannot cap a disk nothing is judged, and the report says why.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from bench.cgroup import Group, UnavailableError
from bench.drive import judgement_figures, rig
from bench.frame import Measurement, Options, Screen
from bench.ledger import delay_figures, percentile
from bench.report import Report, at_most, exactly, not_run

BYTES_A_SECOND = 8 * 1024 * 1024
WRITES_A_SECOND = 500
RATE = 1000
SECONDS = 60
SHORT_SECONDS = 10
TENANTS = 100
PATH = "150ms/"
P99_SECONDS = 1.0

_TOLERANCE = 1.3
_PROBE = """
import os, sys, time
sys.stdin.readline()
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
began, written = time.perf_counter(), 0
while time.perf_counter() - began < 1.0:
    written += os.pwrite(descriptor, os.urandom(262_144), written)
    os.fdatasync(descriptor)
print(written / (time.perf_counter() - began))
"""
"""Writes and flushes for a second; prints bytes a second."""


def took_effect(cap: float, capped: float, free: float) -> bool:
    """Whether a process that wrote `free` bytes a second outside of the group was held to `cap` in it."""
    return capped <= cap * _TOLERANCE and free >= 2 * cap


def disk_of(device: int, known: Path = Path("/sys/dev/block")) -> tuple[int, int]:
    """The whole disk, as (major, minor), that a file's `st_dev` lies on: limits are a disk's, not a partition's.

    Raises:
        UnavailableError: it is no disk.
    """
    found = known / f"{os.major(device)}:{os.minor(device)}"
    if not found.exists():
        raise UnavailableError("the work folder does not lie on a disk of this machine's own")
    real = found.resolve()
    disk = real.parent if (real / "partition").exists() else real
    major, _, minor = (disk / "dev").read_text().strip().partition(":")
    return int(major), int(minor)


@asynccontextmanager
async def capped(folder: Path) -> AsyncIterator[tuple[Group, str]]:
    """A group whose processes can write so much to the disk under `folder` and no more, and what was found of it.

    Raises:
        UnavailableError: no such group can be had, or it does not hold.
    """
    disk = await asyncio.to_thread(lambda: disk_of(folder.stat().st_dev))
    group = Group("io", f"tocsin-bench-{os.getpid()}-disk")
    try:
        try:
            group.limit_writes(disk, BYTES_A_SECOND, WRITES_A_SECOND)
            free, held = await _written(folder, None), await _written(folder, group)
        except OSError as error:
            raise UnavailableError(f"a disk cannot be capped: {error}") from error
        cap = BYTES_A_SECOND / 1e6
        text = f"{held / 1e6:.1f} MB/s of flushed writes under a cap of {cap:.1f}, {free / 1e6:.1f} without"
        if not took_effect(BYTES_A_SECOND, held, free):
            raise UnavailableError(text)
        yield group, text
    finally:
        group.remove()


async def _written(folder: Path, group: Group | None) -> float:
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROBE, file.name), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        if group is not None:
            group.add([process.pid])
        said, _ = await process.communicate(b"go\n")
    return float(said)


async def run(options: Options, screen: Screen) -> Report:
    folder = options.work_dir or Path(tempfile.gettempdir())
    try:
        async with capped(folder) as (group, text):
            return await _measured(options, screen, group, text)
    except UnavailableError as error:
        return not_run("p9b", str(error))


async def _measured(options: Options, screen: Screen, group: Group, text: str) -> Report:
    rate = options.amount(RATE, 20)
    seconds = options.amount(SHORT_SECONDS if options.short else SECONDS, 2)
    async with rig(options, screen, TENANTS) as ready:
        (postmaster,) = ready.pids["database"]
        group.add([postmaster, *(child.pid for child in psutil.Process(postmaster).children(recursive=True))])
        await ready.drive(max(20, rate // 4), 2, PATH)
        await ready.connection.execute("checkpoint")  # the worst time: pages are written whole after it
        judgement = (await ready.drive(rate, seconds, PATH)).judgement
        used, where = ready.usage(), {**ready.environment, "disk": text}
    return Report(
        test="p9b",
        environment=where,
        targets=[
            exactly("lost", 0, judgement.lost),
            exactly("duplicates", 0, judgement.duplicates),
            exactly("skipped, failed, early, unexpected", 0, judgement.other_faults),
            at_most("start delay p99 at the endpoint", P99_SECONDS, percentile(judgement.delays, 0.99), "s"),
        ],
        figures={
            "runs_per_second": rate,
            "disk_bytes_per_second": BYTES_A_SECOND,
            "disk_writes_per_second": WRITES_A_SECOND,
            **judgement_figures(judgement),
            **delay_figures(judgement),
            **used,
        },
        lost=judgement.lost,
        duplicates=judgement.duplicates,
        not_meaning="a slow disk in all its ways: the cap is on bytes and writes, each of which is as fast as before. "
        "Under version 1 of control groups what the kernel writes back by itself is not capped.",
    )


MEASUREMENT = Measurement("p9b", "the database's disk capped at 8 MiB/s and 500 writes/s: 0 lost, p99 <= 1 s", run)
