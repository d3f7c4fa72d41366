"""P3: an ordinary day. The town at its average, its minute marks and its five-minute marks; nothing else meets."""

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
from bench.reach import Reach
from bench.report import Environment, Figure, Report, at_most

ORDINARY_SECONDS = 0.04
MARK_SECONDS = 0.8
_FIVE_MINUTES = timedelta(minutes=5)
AFTER = _FIVE_MINUTES + timedelta(seconds=30)
"""After the first five-minute mark: a second one, and half a minute."""

SHORT_AFTER = timedelta(seconds=10)


async def run(options: Options, screen: Screen) -> Report:
    return report("p3", options, *await day(options, screen))


async def day(
    options: Options, screen: Screen, reach: Reach | None = None
) -> tuple[Lived, Environment, dict[str, Figure]]:
    """Six and a half minutes of an ordinary day, with two five-minute marks; in the short form half a minute with one.

    And what it ran on, and what was used.
    """
    async with town_rig(options, screen, reach=reach) as ready:
        window = await next_window(ready, options, SHORT_AFTER if options.short else AFTER)
        lived = await live(ready, town_of(options, window, peak=False), window, "day")
        return lived, ready.environment, ready.usage()


def report(test: str, options: Options, lived: Lived, where: Environment, used: Mapping[str, Figure]) -> Report:
    """The verdict on seconds without crons, and on the worst of the five-minute marks."""
    window = lived.window
    ordinary = lived.delays(lambda slot: not lived.is_mark(slot))
    count = (window.last - window.meeting) // _FIVE_MINUTES + 1
    instants = [window.meeting + number * _FIVE_MINUTES for number in range(count)]
    marks = [lived.delays(lambda slot, instant=instant: slot == instant) for instant in instants]  # type: ignore[misc]
    figures: dict[str, Figure] = delay_figures_of("ordinary", ordinary)
    for number, mark in enumerate(marks, 1):
        figures.update(delay_figures_of(f"five_minute_mark_{number}", mark))
    minutes = lived.delays(lambda slot: lived.is_mark(slot) and slot not in instants)
    return day_report(
        test,
        options,
        [lived],
        where,
        targets=[
            at_most("start delay p99, ordinary seconds", ORDINARY_SECONDS, percentile(ordinary, 0.99), "s"),
            at_most(
                "start delay p99, the worst five-minute mark",
                MARK_SECONDS,
                max(percentile(mark, 0.99) for mark in marks),
                "s",
            ),
        ],
        figures={
            **figures,
            **delay_figures_of("minute_marks", minutes),
            **by_priority(lived, "marks", lived.is_mark),
            **town_figures(lived),
            **used,
        },
        charts=charts_of(lived),
        not_meaning="the hour or the day: hourly and daily tasks are there and not due. Ordinary seconds have about "
        "six runs; endpoints are one process on loopback, without TLS; tasks were seeded by SQL.",
    )


MEASUREMENT = Measurement(
    "p3", "an ordinary day: p99 <= 40 ms on ordinary seconds, <= 0.8 s at the five-minute mark", run
)
