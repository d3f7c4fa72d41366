"""P7: an executor is killed between two bursts, when the second is already at its door and nothing is in flight."""

from datetime import timedelta

from bench import killing
from bench.drive import rig
from bench.frame import Measurement, Options, Screen
from bench.report import Report

BURST = 3000
"""Runs due within one second."""

BEFORE_SECONDS = 2
"""From the kill to the burst: its runs have been read by the executor that will not call them."""

LEAD_SECONDS = 6


async def run(options: Options, screen: Screen) -> Report:
    options = killing.with_a_survivor(options)
    burst = options.amount(BURST, 20)
    async with rig(options, screen, killing.TENANTS) as ready:
        first = await ready.drive(burst, 1, killing.PATH)
        load = await ready.seeded(burst, 1, killing.PATH, LEAD_SECONDS)
        wait = await ready.until(load.first - timedelta(seconds=BEFORE_SECONDS))
        await screen.wait("the next burst comes near", wait)
        killed = await killing.kill(ready.connection)
        played = await ready.play(load)
        return killing.report("p7", first.judgement, played, killed, ready.environment, ready.usage())


MEASUREMENT = Measurement("p7", "an executor killed between bursts: lost 0, nothing called twice, on within 15 s", run)
