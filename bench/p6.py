"""P6: a noisy neighbour. One of the ten largest tenants hangs to its timeout; how late do the others become?

That tenant has a peak of its own shortly before a five-minute mark of all: at the mark it holds as many calls as it
may, and more of its runs wait. The mark is judged, against that of the same load with a tenant that answers.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from bench.day import Lived, Window, day_report, delay_figures_of, end_town, live, next_window, town_of, town_rig
from bench.delays import delay_charts
from bench.frame import Measurement, Options, Screen
from bench.ledger import SlotKey, percentile
from bench.report import Environment, Figure, Report, at_least, at_most
from bench.town import Town
from tocsin.cli.tenants import MAX_IN_FLIGHT

NOISY = 0
"""The number of the tenant that hangs: one of the largest."""

RATIO = 0.05
SECONDS = 0.02
ROUNDS = 2
AFTER, SHORT_AFTER = timedelta(seconds=10), timedelta(seconds=3)

AHEAD = 0.5
"""Of the timeout, how long before the mark the noisy tenant's peak is: its calls still hang when the others' start."""

MARK_SECONDS = 1.0
"""From the mark on, for which a call must be open: by then the others' calls have been started."""

HELD_PERCENT = 90.0


async def run(options: Options, screen: Screen) -> Report:
    rounds = 1 if options.short else ROUNDS
    quiet: list[Lived] = []
    noisy: list[Lived] = []
    async with town_rig(options, screen) as ready:
        for number in range(1, rounds + 1):
            for name, lived, hangs in (("quiet", quiet, False), ("noisy", noisy, True)):
                window = await next_window(ready, options, SHORT_AFTER if options.short else AFTER, at_once=True)
                town = neighbours(town_of(options, window, peak=False), window, hangs=hangs)
                lived.append(await live(ready, town, window, f"{name} {number}", wait=town.longest))
                await end_town(ready)
        where, used = ready.environment, ready.usage()
    return report(options, quiet, noisy, where, used)


def neighbours(town: Town, window: Window, *, hangs: bool) -> Town:
    """The town with the noisy tenant's own peak, to endpoints that hang or that answer as they did."""
    ahead = min(timedelta(seconds=max(1, round(AHEAD * town.timeout))), window.meeting - window.first)
    town = town.with_own_peak(NOISY, window.meeting - ahead)
    return town.with_manner(NOISY, "hang") if hangs else town


def noisy_tasks(day: Lived) -> set[UUID]:
    return {task.id for task in day.town.tasks if task.tenant == NOISY}


def could_hold(day: Lived) -> int:
    """Calls that the noisy tenant could have open at the mark: its runs due within a timeout before, up to its cap."""
    mark, own = day.window.meeting, noisy_tasks(day)
    first = max(day.window.first, mark - timedelta(seconds=day.town.timeout - MARK_SECONDS))
    due = day.town.expected(first, mark - timedelta(seconds=1))
    return min(MAX_IN_FLIGHT, sum(1 for task, _ in due if task in own))


def held(day: Lived) -> int:
    """Calls of the noisy tenant that hung at the endpoint at the mark, and still did `MARK_SECONDS` later."""
    mark = day.window.meeting.timestamp()
    hanging = {task.id for task in day.town.tasks if task.tenant == NOISY and task.manner == "hang"}
    earliest = mark + MARK_SECONDS - day.town.timeout
    return sum(1 for call in day.arrivals if call.task_id in hanging and earliest <= call.at <= mark)


def others(days: Sequence[Lived], *, at_mark: bool) -> list[float]:
    """Start delays in seconds, rising, of all tenants but the noisy one: at the mark, or in the whole window."""

    def judged(day: Lived, slot: datetime) -> bool:
        return day.is_meeting(slot) or not at_mark

    delays = (
        day.delays(lambda slot, day=day: judged(day, slot), of=lambda task: task.tenant != NOISY)  # type: ignore[misc]
        for day in days
    )
    return sorted(delay for day in delays for delay in day)


def others_by_slot(days: Sequence[Lived]) -> dict[SlotKey, float]:
    """Those of the whole window by slot."""
    found: dict[SlotKey, float] = {}
    for day in days:
        own = noisy_tasks(day)
        found |= {key: delay for key, delay in day.judgement.delay_of.items() if key[0] not in own}
    return found


def report(
    options: Options,
    quiet: Sequence[Lived],
    noisy: Sequence[Lived],
    where: Environment,
    used: Mapping[str, Figure],
) -> Report:
    """The verdict on the others' p99 at the mark with the noisy tenant beside them, against the same load without; and
    on whether it held its calls then."""
    before, after = others(quiet, at_mark=True), others(noisy, at_mark=True)
    p99, with_noise = percentile(before, 0.99), percentile(after, 0.99)
    hanging = [delay for day in noisy for delay in day.delays(lambda slot: True, of=lambda task: task.tenant == NOISY)]
    calls, most = [held(day) for day in noisy], [could_hold(day) for day in noisy]
    shares = [100 * each / could if could else math.nan for each, could in zip(calls, most, strict=True)]
    return day_report(
        "p6",
        options,
        [*quiet, *noisy],
        where,
        targets=[
            at_most(
                "others' start delay p99 at the mark, more than without (5 % or 20 ms)",
                max(RATIO * p99, SECONDS) * 1000,
                (with_noise - p99) * 1000,
                "ms",
            ),
            at_least("calls that hang at the mark, of those that could", HELD_PERCENT, min(shares), "%"),
        ],
        figures={
            "calls_that_hang_at_the_mark": min(calls),
            "calls_that_could_hang_at_the_mark": min(most),
            **delay_figures_of("others_at_the_mark_without_it", before),
            **delay_figures_of("others_at_the_mark_with_it", after),
            **delay_figures_of("others_without_it", others(quiet, at_mark=False)),
            **delay_figures_of("others_with_it", others(noisy, at_mark=False)),
            **delay_figures_of("the_one_that_hangs", sorted(hanging)),
            "runs": sum(day.judgement.expected for day in (*quiet, *noisy)),
            **used,
        },
        charts=delay_charts({"others, quiet": others_by_slot(quiet), "others, noisy": others_by_slot(noisy)}),
        not_meaning="a tenant that floods: the noisy one has no more runs than before, it only holds each to its "
        "timeout. The load is the ordinary day's with one five-minute mark, and a peak of that tenant before it.",
    )


MEASUREMENT = Measurement(
    "p6", "a noisy neighbour: one of the largest tenants hangs, the others' p99 stays within +5 % or +20 ms", run
)
