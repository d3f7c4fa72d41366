"""What every measurement is: a name, one sentence, and a coroutine that turns options into a report."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench.report import Report

Network = Literal["direct", "az"]


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a measurement.

    `scale` multiplies amounts (runs a second, rows, seconds of a long watch), and the targets that are
    amounts with them; 1 is the measurement, less is a check that it works. `executors` is the number of
    executor processes. `steps` (runs a second) and `step_seconds` replace those of P2. `network`: how far the
    database is; `az` is +1 ms a round trip, by a proxy. `quotas`: processor limits per role, as in the seed.
    `profile`: flame graphs of the busiest seconds. `hours`: of the long watch. `report`: the folder that takes
    what belongs to a report beside it, in files that begin with `test`, the measurement's name. `work_dir` holds the
    database; a new folder in it is made and removed.
    """

    short: bool = False
    seed: int = 1
    scale: float = 1.0
    ray: bool | None = None
    executors: int = 1
    steps: tuple[int, ...] = ()
    step_seconds: int | None = None
    network: Network = "direct"
    quotas: bool = False
    profile: bool = False
    hours: float | None = None
    report: Path | None = None
    test: str = ""
    work_dir: Path | None = None
    faults: tuple[str, ...] = ()

    def rng(self) -> random.Random:
        return random.Random(self.seed)

    def named(self, test: str) -> "Options":
        """For one measurement; its name says how it differs from the plain one."""
        distance = "" if self.network == "direct" else f"-{self.network}"
        return replace(self, test=f"{test}{distance}{'-quotas' if self.quotas else ''}")

    def beside(self, suffix: str) -> Path | None:
        """A file beside the report; None where no report is written."""
        return None if self.report is None else self.report / f"{self.test}{suffix}"

    def amount(self, full: int, least: int = 1) -> int:
        """An amount by `scale`, at least `least`."""
        return max(least, round(full * self.scale))


class Screen:
    """Says on stderr what is going on; reports go to stdout."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False)

    async def wait(self, text: str, seconds: float, done: Callable[[], Awaitable[bool]] | None = None) -> bool:
        """Waits `seconds`, or until `done`, with a bar; says whether it was done (or there was nothing to ask)."""
        began = time.monotonic()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True, refresh_per_second=2) as progress:
            bar = progress.add_task(text, total=seconds)
            while (left := seconds - (time.monotonic() - began)) > 0:
                if done is not None and await done():
                    return True
                await asyncio.sleep(min(left, 0.25))
                progress.update(bar, completed=time.monotonic() - began)
        return done is None or await done()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One entry of `bench list`."""

    name: str
    summary: str
    run: Callable[[Options, Screen], Coroutine[Any, Any, Report]] = field(repr=False)
