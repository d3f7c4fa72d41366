"""Executors as plain processes, beside those that Ray places, each with a clock that is wrong in its own way."""

import asyncio
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from property_tests.chaos.endpoint import ROOT
from property_tests.chaos.watch import Watch
from tocsin.common.clock import DatabaseClock

WALL_SECONDS = 7_200.0
STEP_SECONDS = 300.0
DRIFT = 500e-6
"""As much as NTP may slew a clock (`adjtimex(2)`: 500 ppm): more than any crystal's own."""

_STOP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Skew:
    wall: float
    step: float
    rate: float

    def __str__(self) -> str:
        return f"wall {self.wall:+.0f} s, steps of {self.step:+.0f} s, drift {1e6 * (self.rate - 1):+.0f} ppm"

    def early(self, ttl: float) -> float:
        """Seconds by which it may start a call too early: what it drifts while it goes by a sample of the database's
        clock. When the next comes it is `KEEP_SECONDS` old, at most; and for a ttl, at most, none may come."""
        return max(0.0, self.rate - 1) * (DatabaseClock.KEEP_SECONDS + ttl)


def draw(rng: random.Random) -> Skew:
    return Skew(
        wall=rng.uniform(-WALL_SECONDS, WALL_SECONDS),
        step=rng.uniform(-STEP_SECONDS, STEP_SECONDS),
        rate=1 + rng.uniform(-DRIFT, DRIFT),
    )


class SkewedExecutors:
    """Started one by one, ended together. Their logs lie in `folder`."""

    def __init__(self, folder: Path, environment: Mapping[str, str], watch: Watch, ttl: float) -> None:
        self._folder = folder
        self._environment = environment
        self._watch = watch
        self._ttl = ttl
        self._processes: list[asyncio.subprocess.Process] = []

    def pids(self) -> set[int]:
        """Of those that live."""
        return {process.pid for process in self._processes if process.returncode is None}

    async def start(self, rng: random.Random) -> Skew:
        skew = draw(rng)
        number = len(self._processes)
        with (self._folder / f"skewed-{number}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "property_tests.chaos.skewed"),
                *(f"--wall={skew.wall}", f"--step={skew.step}", f"--rate={skew.rate!r}"),
                cwd=ROOT,
                env=dict(self._environment),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._watch.early_of[process.pid] = skew.early(self._ttl)
        self._processes.append(process)
        return skew

    async def stop(self) -> None:
        """By the end of their standard input."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
