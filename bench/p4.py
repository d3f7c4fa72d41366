"""P4: the peak at 09:00. All crons of the town are due in one second: 30,000 and the one-off tasks of that second."""

from collections.abc import Mapping
from datetime import timedelta

from bench.day import (
    Lived,
    by_priority,
    charts_of,
    day_report,
    delay_figures_of,
    live,
    next_window,
    town_figures,
    town_of,
    town_rig,
)
from bench.frame import Measurement, Options, Screen
from bench.ledger import percentile
from bench.report import Environment, Figure, Report, at_most
from tocsin.common.models import Priority

STARTED_SECONDS = 4.0
CRITICAL_SECONDS = 0.4
HIGH_SECONDS = 1.0


async def run(options: Options, screen: Screen) -> Report:
    async with town_rig(options, screen) as ready:
        window = await next_window(ready, options, timedelta())
        lived = await live(ready, town_of(options, window, peak=True), window, "peak")
        where, used = ready.environment, ready.usage()
    return report(options, lived, where, used)


def report(options: Options, lived: Lived, where: Environment, used: Mapping[str, Figure]) -> Report:
    """The verdict on the peak's start delays, and on how every run of the window ended."""
    peak = lived.delays(lived.is_meeting)
    critical = lived.delays(lived.is_meeting, (Priority.CRITICAL,))
    high = lived.delays(lived.is_meeting, (Priority.HIGH,))
    return day_report(
        "p4",
        options,
        [lived],
        where,
        targets=[
            at_most("all of the peak started within", STARTED_SECONDS, percentile(peak, 1.0), "s"),
            at_most("start delay p99, critical", CRITICAL_SECONDS, percentile(critical, 0.99), "s"),
            at_most("start delay p99, high", HIGH_SECONDS, percentile(high, 0.99), "s"),
        ],
        figures={
            **delay_figures_of("peak", peak),
            **by_priority(lived, "peak", lived.is_meeting),
            **town_figures(lived),
            **used,
        },
        charts=charts_of(lived),
        not_meaning="a peak over the internet: the endpoints are one process on loopback that shares the machine, "
        "without TLS, and tasks were seeded by SQL. How long the rest takes is what its endpoints take.",
    )


MEASUREMENT = Measurement(
    "p4", "the 09:00 peak: 30,007 runs due in one second, all started <= 4 s, critical p99 <= 0.4 s", run
)
