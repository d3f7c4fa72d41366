"""Where the time goes: py-spy on the processes that work, executors or the API, during the busiest seconds.

It reads another process's memory, which the system may forbid (`ptrace`); the report then says so.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from bench.frame import Options

SECONDS = 20
"""Of recording: half for the flame graph, half for speedscope. Both at once would stop the process twice as often."""

_RATE = 100
_FORMATS = {"flamegraph": ".svg", "speedscope": ".speedscope.json"}
_SHOWN = 300


Busy: TypeAlias = Callable[[Callable[[], Awaitable[None]]], Awaitable[object]]
"""Keeps processes busy while it awaits what it is given, which records them."""


async def profiled(options: Options, processes: Mapping[str, int], busy: Busy) -> dict[str, str]:
    """Records processes (role to pid) while `busy` keeps them so, where that was asked for; figures for the report."""
    if not options.profile:
        return {}
    if options.report is None:
        return {"profile": "not recorded: --report names no folder"}
    folder, said = options.report, dict[str, str]()

    async def record() -> None:
        said.update(await recorded(processes, folder, options.test, options.amount(SECONDS, 2)))

    await busy(record)
    return said


async def recorded(processes: Mapping[str, int], folder: Path, name: str, seconds: int = SECONDS) -> dict[str, str]:
    """Records processes (role to pid) for `seconds`, all at the same time; into `<name>-<role>.svg`, a flame graph, and
    `<name>-<role>.speedscope.json`. Says for the report what was written, or why it was not."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    found = await asyncio.gather(
        *(_record(pid, folder / f"{name}-{role}", max(1, seconds // 2)) for role, pid in processes.items())
    )
    return {f"profile_{role}": text for role, text in zip(processes, found, strict=True)}


async def _record(pid: int, stem: Path, seconds: int) -> str:
    written = []
    for kind, suffix in _FORMATS.items():
        path = stem.with_name(stem.name + suffix)
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("py-spy")),
            *("record", "--pid", str(pid), "--duration", str(seconds), "--rate", str(_RATE)),
            *("--format", kind, "--output", str(path)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        if process.returncode != 0:
            return f"could not be recorded: {said.decode(errors='replace').strip()[-_SHOWN:]}"
        written.append(path.name)
    return ", ".join(written)
