"""P1: a system with nothing else to do starts 400 runs on time, each once."""

from bench.delays import delay_charts
from bench.drive import judgement_figures, rig
from bench.frame import Measurement, Options, Screen
from bench.ledger import delay_figures, percentile
from bench.report import Report, at_most, exactly

RUNS = 400
SECONDS = 10
TENANTS = 20
P99_MS = 20.0


async def run(options: Options, screen: Screen) -> Report:
    runs = options.amount(RUNS, 20)
    seconds = min(SECONDS, runs // 10)
    rate = runs // seconds
    async with rig(options, screen, min(TENANTS, rate)) as ready:
        await ready.drive(rate, 2)  # connections and statements are made once, not for these figures
        outcome = await ready.drive(rate, seconds)
        used = ready.usage()
        where = ready.environment
    judgement = outcome.judgement
    return Report(
        test="p1",
        environment=where,
        targets=[
            exactly("lost", 0, judgement.lost),
            exactly("duplicates", 0, judgement.duplicates),
            exactly("skipped, failed, early, unexpected", 0, judgement.other_faults),
            at_most("start delay p99 at the endpoint", P99_MS, percentile(judgement.delays, 0.99) * 1000, "ms"),
        ],
        figures={**judgement_figures(judgement), **delay_figures(judgement), **used},
        lost=judgement.lost,
        duplicates=judgement.duplicates,
        charts=delay_charts({"all": judgement.delay_of}),
        not_meaning="a busy or a distributed system: 40 runs/s, one endpoint on loopback, no TLS, no name to resolve, "
        "after a warm-up of two seconds.",
    )


MEASUREMENT = Measurement("p1", "400 runs, nothing else: 0 lost, 0 duplicates, start delay p99 <= 20 ms", run)
