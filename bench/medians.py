"""Several runs of one measurement as one report: the median of what was found, the sum of what went wrong."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.report import Environment, Figure, Report, Target, bound_of
from bench.series import Table

FAULT_WORDS = ("lost", "duplicate", "called again", "called twice")
"""A target or figure with one of these in its name counts faults: a median would hide one that came once."""

_UNITS_OF_TIME = {"us", "ms", "s"}


def median_report(reports: Sequence[Report]) -> Report:
    """One report of at least one run of the same test, those that were not run left out.

    A target is that of the run with the median value (of an even number, the worse of the two in the middle), so
    it is met where the median meets its bound. Counts of faults are sums, and met where every run met them. Charts are
    those of the run that was in the middle by its first target, and a table shows the targets of each.
    Raises ValueError for reports of different tests, or of none.
    """
    if len({report.test for report in reports}) != 1:
        raise ValueError("runs of one and the same test are needed")
    ran = [report for report in reports if report.reason_not_run is None]
    if not ran:
        return reports[0]
    if len(ran) == 1:
        return ran[0]
    names = list(dict.fromkeys(target.name for report in ran for target in report.targets))
    runs = {name: [_named(report, name) for report in ran] for name in names}
    targets = {name: _combined(found) for name, found in runs.items()}
    keys = list(dict.fromkeys(key for report in ran for key in report.figures))
    figures = {key: _figure(key, [report.figures.get(key) for report in ran]) for key in keys}
    typical = ran[_middle(runs[names[0]])] if names else ran[0]
    return replace(
        typical,
        environment=_environment([report.environment for report in ran]),
        targets=list(targets.values()),
        figures={"runs_of_the_test": len(ran), **figures},
        lost=_sum([report.lost for report in ran]),
        duplicates=_sum([report.duplicates for report in ran]),
        charts=replace(typical.charts, tables=[*typical.charts.tables, _each_run(runs, targets)]),
    )


def counts_faults(name: str, unit: str = "") -> bool:
    """Whether a target or figure of this name counts what must not happen. How long until calls came again does not."""
    timed = unit in _UNITS_OF_TIME or name.rpartition("_")[2] in _UNITS_OF_TIME
    return not timed and any(word in name.lower().replace("_", " ") for word in FAULT_WORDS)


def _named(report: Report, name: str) -> Target:
    """The report's target of that name; where it has none, a miss."""
    found = next((target for target in report.targets if target.name == name), None)
    return found or Target(name, "not in every run", None, False)


def _combined(targets: Sequence[Target]) -> Target:
    bounds = [bound for target in targets if (bound := bound_of(target.target)) is not None]
    sign = bounds[0].sign if bounds else ""
    if sign in ("=", "<=") and counts_faults(targets[0].name, bounds[0].unit):
        limit = replace(bounds[0], limit=sum(bound.limit for bound in bounds))  # such as calls in flight at each fault
        met = all(target.met for target in targets)
        return Target(targets[0].name, str(limit), _sum([target.value for target in targets]), met)
    if sign in ("<=", ">="):
        return targets[_middle(targets)]
    return next((target for target in targets if not target.met), targets[0])


def _middle(targets: Sequence[Target]) -> int:
    """The run whose value is the median, the worse of two; a run that found nothing is the worst."""
    rising_is_worse = not any(target.target.startswith(">=") for target in targets)

    def badness(number: int) -> float:
        value = targets[number].value
        if value is None:
            return math.inf
        return value if rising_is_worse else -value

    return sorted(range(len(targets)), key=badness)[len(targets) // 2]


def _figure(name: str, values: Sequence[Figure]) -> Figure:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if numbers and len(numbers) == sum(value is not None for value in values):
        median = statistics.median(numbers)
        whole = all(isinstance(number, int) for number in numbers) and median == int(median)
        return _sum(numbers) if counts_faults(name) else int(median) if whole else round(median, 6)
    different = list(dict.fromkeys(str(value) for value in values if value is not None))
    return values[0] if len(different) <= 1 else " / ".join(different)


def _environment(found: Sequence[Environment]) -> Environment:
    """The machine of all runs: a number that was read anew for each is the median; settings are those of the first."""
    keys = dict.fromkeys(key for each in found for key in each)
    return {key: _of_the_machine(key, [each[key] for each in found if key in each]) for key in keys}


def _of_the_machine(key: str, values: Sequence[Figure | Mapping[str, str]]) -> Figure | Mapping[str, str]:
    flat = [value for value in values if not isinstance(value, Mapping)]
    return _figure(key, flat) if len(flat) == len(values) else values[0]


def _sum(values: Sequence[float | int | None]) -> int | None:
    counted = [value for value in values if value is not None]
    return round(sum(counted)) if counted else None


def _each_run(runs: Mapping[str, Sequence[Target]], taken: Mapping[str, Target]) -> Table:
    count = max((len(targets) for targets in runs.values()), default=0)
    columns = ["target", *(f"run {number + 1}" for number in range(count)), "taken"]
    rows = [[name, *(target.value for target in targets), taken[name].value] for name, targets in runs.items()]
    return Table("Each run", columns, rows)
