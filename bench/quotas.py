"""Processor limits per role, as the first seed's pods had them: half a core each, two for the database.

A limit is only called applied once a process that does nothing but burn has been seen to be held by one.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import psutil

from bench.cgroup import Group, UnavailableError
from bench.report import Figure, Report

CORES = {"executor": 0.5, "api": 0.5, "database": 2.0}
"""Of each process of a role, with all that it starts."""

_TOLERANCE = 1.2
_SETTLE_SECONDS = 0.3
_BURN_SECONDS = 1.0


def took_effect(cores: float, burnt: float, seconds: float, throttled: int) -> bool:
    """Whether a process that took `burnt` seconds of processor in `seconds` was held to `cores`: a busy machine may
    give it less by itself, so it must have been throttled too."""
    return throttled > 0 and burnt <= cores * seconds * _TOLERANCE


class Quotas:
    """The limits of one measurement. `text` says for the report what was applied, or why it was not."""

    def __init__(self, text: str, applied: bool) -> None:
        self.text = text
        self.applied = applied
        self._groups: dict[str, list[Group]] = {}

    def limit(self, role: str, pids: Sequence[int]) -> None:
        """Each of these processes, with what it has started, gets what its role is due. Nothing where none apply."""
        if not self.applied:
            return
        for pid in pids:
            group = Group("cpu", f"tocsin-bench-{os.getpid()}-{role}-{pid}")
            self._groups.setdefault(role, []).append(group)
            group.limit_cores(CORES[role])
            group.add([pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))])

    def throttled(self) -> dict[str, float]:
        """Seconds that each role has waited for its quota so far."""
        return {role: sum(group.throttled()[1] for group in groups) for role, groups in self._groups.items()}

    def remove(self) -> None:
        for groups in self._groups.values():
            for group in groups:
                group.remove()


@asynccontextmanager
async def quotas(wanted: bool) -> AsyncIterator[Quotas]:
    """To be entered before what is limited is started, so that its groups are empty when they are removed."""
    made = await _probed() if wanted else Quotas("none", False)
    try:
        yield made
    finally:
        made.remove()


async def _probed() -> Quotas:
    cores = CORES["executor"]
    try:
        group = Group("cpu", f"tocsin-bench-{os.getpid()}-probe")
    except UnavailableError as error:
        return Quotas(f"not applied: {error}", False)
    burner = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    try:
        group.limit_cores(cores)
        group.add([burner.pid])
        await asyncio.sleep(_SETTLE_SECONDS)
        process, loop = psutil.Process(burner.pid), asyncio.get_running_loop()
        before, began = sum(process.cpu_times()[:2]), loop.time()
        await asyncio.sleep(_BURN_SECONDS)
        burnt, seconds = sum(process.cpu_times()[:2]) - before, loop.time() - began
        held = took_effect(cores, burnt, seconds, group.throttled()[0])
    except OSError as error:
        return Quotas(f"not applied: {error}", False)
    finally:
        burner.kill()
        await burner.wait()
        group.remove()
    found = f"a process that burns took {burnt / seconds:.2f} cores under a limit of {cores}"
    if not held:
        return Quotas(f"not applied: {found}", False)
    limits = ", ".join(f"{role} {cores}" for role, cores in CORES.items())
    return Quotas(f"{limits} cores by cgroup v{group.version}; {found}", True)


def beside(report: Report) -> Report:
    """A report under quotas: speeds are shown without targets, counts that must be exact keep theirs."""
    speeds: dict[str, Figure] = {
        target.name: target.value for target in report.targets if not target.target.startswith("=")
    }
    kept = [target for target in report.targets if target.target.startswith("=")]
    return replace(report, targets=kept, figures={**speeds, **report.figures})
