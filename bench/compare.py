"""Two folders of reports against each other: what changed, and what became worse by more than a ratio."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.folder import order, read_folder
from bench.medians import counts_faults
from bench.report import Environment, Report, Target, bound_of

RATIO = 1.15
"""By how much a target's value may become worse."""

PACE = 0.2
"""By what part the machine's pace (`loop_median_ms`) may differ before figures are not to be compared."""


@dataclass(frozen=True, slots=True)
class Change:
    """`ratio`: the value after by the value before; None where one of them is missing or not above 0. `worse`: a
    regression; a figure is never one, for nothing says which way is better."""

    test: str
    name: str
    bound: str
    before: float | None
    after: float | None
    ratio: float | None
    worse: bool


def compare(before: Path, after: Path, console: Console, ratio: float = RATIO) -> int:
    """Prints what `after` changed. Exit code: 1 where a target became worse by more than `ratio`, lost or called again
    more, or where what `before` measured was not measured again. Raises FileNotFoundError for a folder that is not."""
    old, new = read_folder(before).reports, read_folder(after).reports
    found = list(changes(old, new, ratio))
    missing = [test for test in old if ran(old[test]) and not ran(new.get(test))]
    for warning in warnings(old, new):
        console.print(f"[bold yellow]warning[/] {warning}", highlight=False)
    for test in missing:
        console.print(f"[bold red]not measured again[/] {test}", highlight=False)
    _show(found, ratio, console)
    return 1 if missing or any(change.worse for change in found) else 0


def ran(report: Report | None) -> bool:
    return report is not None and report.reason_not_run is None


def changes(before: Mapping[str, Report], after: Mapping[str, Report], ratio: float = RATIO) -> Iterator[Change]:
    """Of all tests that both ran: each target of either, then each figure that is a number in both."""
    for test in sorted({*before, *after}, key=order):
        old, new = before.get(test), after.get(test)
        if old is None or new is None or not (ran(old) and ran(new)):
            continue
        earlier = {target.name: target for target in old.targets}
        later = {target.name: target for target in new.targets}
        for name in dict.fromkeys([*earlier, *later]):
            yield target_change(test, earlier.get(name), later.get(name), ratio)
        for count in ("lost", "duplicates"):
            yield _count_change(test, count, getattr(old, count), getattr(new, count))
        for name in dict.fromkeys([*old.figures, *new.figures]):
            one, two = _number(old.figures.get(name)), _number(new.figures.get(name))
            if one is not None and two is not None:
                yield Change(test, name, "", one, two, _ratio(one, two), worse=False)


def target_change(test: str, before: Target | None, after: Target | None, ratio: float) -> Change:
    """One of the two may be missing: a target that is no longer asked is a regression, a new one is none."""
    shown = after or before
    assert shown is not None
    one, two = (target.value if target else None for target in (before, after))
    return Change(test, shown.name, shown.target, one, two, _ratio(one, two), _is_worse(before, after, ratio))


def _is_worse(before: Target | None, after: Target | None, ratio: float) -> bool:
    if before is None or before.value is None:
        return False
    if after is None or after.value is None:
        return True
    bound = bound_of(after.target)
    if bound is not None and bound.sign == "=":
        return abs(after.value - bound.limit) > abs(before.value - bound.limit)
    step = _ratio(before.value, after.value)
    if bound is None or step is None or counts_faults(after.name, bound.unit):
        return before.met and not after.met  # calls again beside those in flight: both differ in every run
    return step > ratio if bound.sign == "<=" else step < 1 / ratio


def _count_change(test: str, name: str, before: int | None, after: int | None) -> Change:
    """Losses are regressions by one; calls again after a fault are judged by their targets."""
    worse = name == "lost" and (after or 0) > (before or 0)
    return Change(test, f"{name}, all of the test", "", before, after, _ratio(before, after), worse)


def warnings(before: Mapping[str, Report], after: Mapping[str, Report]) -> Iterator[str]:
    """Why the figures of the two may not be comparable."""
    for test in sorted(set(before) & set(after), key=order):
        old, new = before[test].environment, after[test].environment
        for key in ("cores", "cpu", "runtime"):
            if key in old and key in new and old[key] != new[key]:
                yield f"{test}: {key} was {old[key]}, is {new[key]}"
        if (pace := _pace(old, new)) is not None and not 1 - PACE <= pace <= 1 + PACE:
            yield f"{test}: the machine took {pace:.2f} times as long for a fixed loop; its figures say little"


def _pace(old: Environment, new: Environment) -> float | None:
    return _ratio(_number(old.get("loop_median_ms")), _number(new.get("loop_median_ms")))


def _ratio(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or before <= 0 or after <= 0:
        return None
    return after / before


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _show(found: list[Change], ratio: float, console: Console) -> None:
    """All targets; of the figures those that changed by more than `ratio`, one way or the other."""
    table = Table(title=f"targets, and figures that changed by more than {ratio:g}", title_justify="left")
    for name in ("test", "target or figure", "bound", "before", "after", "ratio", ""):
        table.add_column(name, justify="right" if name in ("before", "after", "ratio") else "left")
    quiet = 0
    for change in found:
        still = change.before == change.after or (change.ratio is not None and 1 / ratio <= change.ratio <= ratio)
        if not change.bound and still and not change.worse:
            quiet += 1
            continue
        step = "" if change.ratio is None else f"{change.ratio:.2f}"
        values = ("nothing" if value is None else f"{value:,}" for value in (change.before, change.after))
        mark = "[bold red]WORSE[/]" if change.worse else ""
        table.add_row(change.test, change.name.replace("_", " "), change.bound, *values, step, mark)
    console.print(table)
    console.print(f"{quiet} figures changed by less.", highlight=False)
