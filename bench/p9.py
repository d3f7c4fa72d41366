"""P9: half an hour, or `--hours`, at the seed's average of 38 runs/s with a burst each minute: nothing grows.

Then as long again while an old transaction is held, which keeps every dead row from being removed.
"""

import math
import statistics
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta

from bench.begin import old_transaction
from bench.collector import Row
from bench.delays import delay_charts
from bench.drive import DRAIN_SECONDS, Rig, judgement_figures, rig
from bench.frame import Measurement, Options, Screen
from bench.ledger import Judgement, SlotKey, delay_figures, judge, percentile
from bench.load import Load, is_over, make_load, recorded, seed
from bench.report import Environment, Figure, Report, Target, at_most, exactly
from bench.trend import rise_percent

PATH = "150ms/"
TENANTS = 100
STEADY = 30
"""Runs a second, between the bursts."""

BURST_A_SECOND = 8
"""Runs a second that come in bursts: 480 within the first second of each minute."""

WINDOW_SECONDS, BURST_SECONDS = 60, 60
WINDOWS = 30
"""Of a longer watch at least so many, each longer. A rise of a tenth shows in thirty, in six it does not."""

LEAD_SECONDS, SHORT_LEAD_SECONDS = 8, 4
RISE_PERCENT = 10.0
RSS_PERCENT = 5.0
EDGES = 6
"""Memory is compared from the first of so many parts to the last: in a first minute it has not settled."""

DEAD_A_RUN = 3.0
"""Dead rows a run that are left while none can be removed: one of pending, one of running, and some more of retries."""


@dataclass(frozen=True, slots=True)
class Span:
    """How long each part is watched, in windows, with a burst every so many seconds."""

    seconds: int
    window: int
    burst: int


def span(options: Options) -> Span:
    """The short form shows that the method works, in seconds a part; what grows needs longer to show."""
    if options.short:
        seconds = options.amount(16, 8)
        return Span(seconds, max(2, seconds // 4), max(2, seconds // 4))
    seconds = round(3600 * options.hours) if options.hours else WINDOWS * WINDOW_SECONDS
    return Span(seconds, WINDOW_SECONDS * max(1, seconds // (WINDOWS * WINDOW_SECONDS)), BURST_SECONDS)


@dataclass(frozen=True, slots=True)
class Watched:
    """One part. Of each window: start delays (seconds, rising), resident MiB of the executors, dead tuples."""

    name: str
    pinned: bool
    judgement: Judgement
    delays: Sequence[Sequence[float]]
    resident: Sequence[float]
    dead: Sequence[float]


async def run(options: Options, screen: Screen) -> Report:
    parts: list[Watched] = []
    where: Environment = {}
    for name, pinned in (("plain", False), ("old transaction", True)):
        async with rig(options, screen, TENANTS, part=name) as ready:
            if not options.short:  # what grows is not judged there
                await ready.drive(STEADY, 3, PATH)
            parts.append(await watch(ready, name, pinned, span(options)))
            where = ready.environment
    return report(parts, where, growth_is_judged=not options.short)


async def watch(ready: Rig, name: str, pinned: bool, length: Span) -> Watched:
    """Seeds all of it, holds an old transaction where asked to, and judges it once it is over."""
    first = await ready.instant(SHORT_LEAD_SECONDS if ready.options.short else LEAD_SECONDS)
    url = ready.endpoint.url + PATH

    def load(text: str, rate: int, after: int, seconds: int) -> Load:
        start = first + timedelta(seconds=after)
        return make_load(f"{name} {text}", ready.ids, ready.tenants, rate, start, seconds, url)

    loads = [load("steady", STEADY, 0, length.seconds)]
    burst = BURST_A_SECOND * length.burst
    loads += [load(f"burst {after}", burst, after, 1) for after in range(0, length.seconds, length.burst)]
    for each in loads:
        await seed(ready.connection, ready.ids, each)
    async with old_transaction(ready.dsn) if pinned else nullcontext():
        await ready.screen.wait(f"{name}: {length.seconds} s", await ready.until(loads[0].end))
    await ready.screen.wait(f"{name}: the last to end", DRAIN_SECONDS, lambda: is_over(ready.connection))
    arrivals = await ready.endpoint.take()
    history = await recorded(ready.connection, replace(loads[0], name=name))  # their names all begin so
    due = {slot: at for each in loads for slot, at in each.expected().items()}
    start = first.timestamp()
    called: dict[SlotKey, float] = {}
    for arrival in arrivals:
        key = (arrival.task_id, arrival.slot)
        called[key] = min(arrival.at, called.get(key, math.inf))
    delays = [(due[key], at - due[key]) for key, at in called.items() if key in due]
    rows = [row for row in ready.collector.rows if start <= row["at"] < start + length.seconds]
    return Watched(
        name=name,
        pinned=pinned,
        judgement=judge(due, arrivals, history),
        delays=[sorted(window) for window in by_window(delays, start, length)],
        resident=[mean(window) for window in by_window(_column(rows, "executors_rss_mib"), start, length)],
        dead=[max(window, default=math.nan) for window in by_window(_column(rows, "dead_tuples"), start, length)],
    )


def _column(rows: Sequence[Row], name: str) -> list[tuple[float, float]]:
    return [(row["at"], row[name]) for row in rows]


def by_window(points: Sequence[tuple[float, float]], start: float, length: Span) -> list[list[float]]:
    """The values of points (instant, value) by the whole window that the instant, in Unix seconds, falls in."""
    windows: list[list[float]] = [[] for _ in range(length.seconds // length.window)]
    for at, value in points:
        if 0 <= (number := math.floor((at - start) / length.window)) < len(windows):
            windows[number].append(value)
    return windows


def mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def report(parts: Sequence[Watched], where: Environment, *, growth_is_judged: bool = True) -> Report:
    """In a minute caches fill and no vacuum comes: growth is then shown, and no target."""
    targets: list[Target] = []
    figures: dict[str, Figure] = {}
    for part in parts:
        growth = [replace(target, name=f"{part.name}: {target.name}") for target in _growth(part)]
        targets += [replace(target, name=f"{part.name}: {target.name}") for target in _clean(part)]
        if growth_is_judged:
            targets += growth
        else:
            figures |= {target.name: target.value for target in growth}
        figures |= {f"{part.name}: {name}": value for name, value in _figures(part).items()}
    return Report(
        test="p9",
        environment=where,
        targets=targets,
        figures=figures,
        lost=sum(part.judgement.lost for part in parts),
        duplicates=sum(part.judgement.duplicates for part in parts),
        charts=delay_charts({part.name: part.judgement.delay_of for part in parts}),
        not_meaning="that nothing ever grows: what shows in days does not show in half an hour, and the short form "
        "shows only that the method works. Rates are low: P2 has the high ones.",
    )


def _clean(part: Watched) -> list[Target]:
    return [
        exactly("lost", 0, part.judgement.lost),
        exactly("duplicates", 0, part.judgement.duplicates),
        exactly("skipped, failed, early, unexpected", 0, part.judgement.other_faults),
    ]


def _growth(part: Watched) -> list[Target]:
    p99 = [percentile(window, 0.99) for window in part.delays]
    edge = max(1, len(part.resident) // EDGES)
    growth = 100 * (mean(part.resident[-edge:]) / mean(part.resident[:edge]) - 1)
    if part.pinned:
        left = (part.dead[-1] - part.dead[0]) / max(1, sum(len(window) for window in part.delays[1:]))
        dead = at_most("dead rows a run, none removable", DEAD_A_RUN, left)
    else:
        dead = at_most("dead rows, rise that is no chance", RISE_PERCENT, rise_percent(part.dead), "%")
    return [
        at_most("start delay p99, rise that is no chance", RISE_PERCENT, rise_percent(p99), "%"),
        at_most("executors' resident memory, the last sixth against the first", RSS_PERCENT, growth, "%"),
        dead,
    ]


def _figures(part: Watched) -> dict[str, Figure]:
    p99 = [round(1000 * percentile(window, 0.99), 1) for window in part.delays]
    return {
        "windows": len(p99),
        "p99_ms_by_window": ", ".join(map(str, p99)),
        "resident_mib_by_window": ", ".join(f"{value:.1f}" for value in part.resident),
        "dead_tuples_by_window": ", ".join(f"{value:.0f}" for value in part.dead),
        **judgement_figures(part.judgement),
        **delay_figures(part.judgement),
    }


MEASUREMENT = Measurement(
    "p9", "half an hour at 38 runs/s with bursts, and again with an old transaction: no trend", run
)
