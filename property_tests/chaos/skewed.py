"""An executor as a plain process whose clock is wrong: its wall time is off and steps, its durations drift.

Only what this process is told of time is wrong; the machine's clock is never touched. It ends with its parent.
"""

import argparse
import asyncio
from datetime import datetime, timedelta

from tocsin.cli.logs import configure_logging
from tocsin.cli.node import ExecutorNode
from tocsin.cli.up.lifeline import stop_signals
from tocsin.common.clock import Clock, SystemClock
from tocsin.common.settings import Settings
from tocsin.common.telemetry.meter import MemoryMeter

STEP_EVERY = 10.0
"""Seconds from one step of the wall clock to the next, which takes it back."""

_GRACE = 5.0


class SkewedClock:
    """`wall` seconds ahead (behind where negative), and every ten seconds `step` more or less, at once. Durations run
    `rate` times as fast as they should."""

    def __init__(self, real: Clock, *, wall: float = 0.0, step: float = 0.0, rate: float = 1.0) -> None:
        self._real = real
        self._wall = wall
        self._step = step
        self._rate = rate

    def now(self) -> datetime:
        stepped = self._step if int(self._real.monotonic() // STEP_EVERY) % 2 else 0.0
        return self._real.now() + timedelta(seconds=self._wall + stepped)

    def monotonic(self) -> float:
        return self._real.monotonic() * self._rate

    def boottime(self) -> float:
        return self._real.boottime() * self._rate


async def main(clock: Clock, cell: str) -> None:
    """Serves the cell until SIGTERM, or until standard input ends; then drains."""
    stop = asyncio.Event()
    with stop_signals(stop, parent=True):
        node = ExecutorNode(Settings(), cell, 0, MemoryMeter(), clock)
        running = asyncio.create_task(node.run(), name="node")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await node.drain(_GRACE)
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--wall", type=float, default=0.0)
    parser.add_argument("--step", type=float, default=0.0)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--cell", default="shared")
    given = parser.parse_args()
    configure_logging()
    asyncio.run(main(SkewedClock(SystemClock(), wall=given.wall, step=given.step, rate=given.rate), given.cell))
