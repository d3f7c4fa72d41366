"""P7b: an executor is killed in the middle of a burst, with thousands of calls in flight."""

import asyncio
import math

from bench import killing
from bench.drive import rig
from bench.frame import Measurement, Options, Screen
from bench.load import Load
from bench.report import Report

BURST = 30_000
SHORT_BURST = 6000
SHARE = 0.3
"""Of the burst's runs that have been called when the executor is killed."""

_LOOK_SECONDS = 0.01
_MOST_SECONDS = 30.0


async def run(options: Options, screen: Screen) -> Report:
    options = killing.with_a_survivor(options)
    burst = options.amount(SHORT_BURST if options.short else BURST, 20)
    async with rig(options, screen, killing.TENANTS) as ready:
        first = await ready.drive(max(1, burst // 20), 2, killing.PATH)  # connections and statements are made once
        load = await ready.seeded(burst, 1, killing.PATH)
        struck: list[killing.Killed] = []

        async def strike(load: Load) -> None:
            async with asyncio.timeout(_MOST_SECONDS):
                while await ready.endpoint.count() < SHARE * load.runs:
                    await asyncio.sleep(_LOOK_SECONDS)
            struck.append(await killing.kill(ready.connection))

        played = await ready.play(load, meanwhile=strike)
        (killed,) = struck
        before = sum(1 for arrival in played.arrivals if arrival.at <= killed.at)
        figures = {"called_before_the_kill_percent": math.floor(100 * before / load.runs), **ready.usage()}
        return killing.report("p7b", first.judgement, played, killed, ready.environment, figures)


MEASUREMENT = Measurement(
    "p7b", "an executor killed mid-burst: lost 0, repeats within the calls in flight, <= 15 s", run
)
