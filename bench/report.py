"""A measurement's report: targets with what was found, figures, and the two forms in which it is given."""

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.series import Charts, read_charts

Figure = float | int | str | bool | None

Environment = Mapping[str, Figure | Mapping[str, str]]

NOT_RUN = "not_run"
"""The figure that says why a measurement could not be had on this machine."""


@dataclass(frozen=True, slots=True)
class Target:
    """`target` is the bound with its unit; `value` what was found, in that unit; None where nothing was."""

    name: str
    target: str
    value: float | None
    met: bool


def at_most(name: str, limit: float, value: float, unit: str = "") -> Target:
    """A value that must not exceed `limit`. What could not be measured (nan) is a miss."""
    return Target(name, _bound("<=", limit, unit), _rounded(value), value <= limit)


def at_least(name: str, limit: float, value: float, unit: str = "") -> Target:
    """A value that must reach `limit`. What could not be measured (nan) is a miss."""
    return Target(name, _bound(">=", limit, unit), _rounded(value), value >= limit)


def exactly(name: str, wanted: int, value: int) -> Target:
    return Target(name, f"= {wanted}", value, value == wanted)


@dataclass(frozen=True, slots=True)
class Bound:
    """A target's bound, read back. `sign` is `<=`, `>=` or `=`."""

    sign: str
    limit: float
    unit: str

    def __str__(self) -> str:
        return _bound(self.sign, self.limit, self.unit)


def bound_of(target: str) -> Bound | None:
    """The bound in a target's text; None where it has another form than that of the functions above."""
    found = re.fullmatch(r"(<=|>=|=) (-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?) ?(.*)", target)
    return None if found is None else Bound(found[1], float(found[2].replace(",", "")), found[3])


def _bound(sign: str, limit: float, unit: str) -> str:
    return f"{sign} {limit:,g} {unit}".rstrip() if limit < 1000 else f"{sign} {limit:,.0f} {unit}".rstrip()


def _rounded(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def milliseconds(seconds: float) -> float:
    """A time as a figure."""
    return round(1000 * seconds, 2)


def median_milliseconds(seconds: Iterable[float]) -> float:
    """The median of times as a figure, to the microsecond: of many short ones."""
    return round(1000 * statistics.median(seconds), 3)


def _finite(figure: Figure) -> Figure:
    return None if isinstance(figure, float) and not math.isfinite(figure) else figure


@dataclass(frozen=True, slots=True)
class Report:
    """What is written to `DIR/<test>.json`, field by field.

    `lost` and `duplicates` are counts of runs, None where a measurement runs none. `not_meaning`: what the
    figures must not be taken for. `charts` (lines, histograms, tables) go to a file of their own beside it.
    """

    test: str
    environment: Environment
    targets: Sequence[Target]
    not_meaning: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    lost: int | None = None
    duplicates: int | None = None
    charts: Charts = field(default=Charts())

    @property
    def met(self) -> bool:
        """A measurement that ran and asked for nothing has met nothing."""
        asked = bool(self.targets) or self.reason_not_run is not None
        return asked and all(target.met for target in self.targets)

    @property
    def reason_not_run(self) -> str | None:
        """Why nothing was measured; None where something was."""
        reason = self.figures.get(NOT_RUN)
        return None if reason is None else str(reason)

    def json(self) -> str:
        """The report as JSON text; numbers are finite: a figure that is not could not be measured, and is null."""
        contract = {name: value for name, value in asdict(self).items() if name != "charts"}
        contract["figures"] = {name: _finite(value) for name, value in self.figures.items()}
        return json.dumps(contract, indent=2, allow_nan=False, default=str) + "\n"

    def write(self, folder: Path) -> Path:
        """Writes `<test>.json`, and `<test>.charts.json` where it has charts, into `folder`, made if missing."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.test}.json"
        path.write_text(self.json())
        if self.charts:
            self.charts.write(folder, self.test)
        return path

    def show(self, console: Console) -> None:
        """Prints the same as tables."""
        if self.reason_not_run is not None:
            console.print(f"bench {self.test}: NOT RUN: {self.reason_not_run}", highlight=False)
            return
        targets = Table(title=f"bench {self.test}", title_justify="left")
        for name in ("target", "bound", "found", "met"):
            targets.add_column(name, justify="right" if name == "found" else "left")
        for target in self.targets:
            found = "nothing" if target.value is None else f"{target.value:,}"
            targets.add_row(target.name, target.target, found, "yes" if target.met else "[bold red]NO[/]")
        console.print(targets)
        figures = Table("figure", "value", show_header=False)
        counts = {"lost": self.lost, "duplicates": self.duplicates}
        for name, value in {**counts, **self.figures}.items():
            if value is not None:
                figures.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else str(value))
        console.print(figures)
        machine = (f"{name}: {value}" for name, value in self.environment.items() if not isinstance(value, Mapping))
        console.print("On " + ", ".join(machine), highlight=False)
        console.print(f"Not meant: {self.not_meaning}", highlight=False)


def plain_name(test: str) -> str:
    """A test's name without what says how it was run: that of `p2-az-quotas` is `p2`."""
    return test.partition("-")[0]


def not_run(test: str, reason: str, environment: Environment | None = None) -> Report:
    """The report of a measurement that this machine does not allow: it has no target, met or missed."""
    return Report(test, environment or {}, (), "anything: nothing was measured.", {NOT_RUN: reason})


def failed(test: str, error: Exception) -> Report:
    """The report of a measurement that broke: it has one target, to end at all, and missed it."""
    text = f"{type(error).__name__}: {error}"
    return Report(test, {}, [exactly("measurements that ended", 1, 0)], "anything: it broke.", {"error": text})


def read_report(path: Path) -> Report:
    """What `Report.write` wrote, with its charts. Raises OSError, and ValueError for a file that is no report."""
    found = json.loads(path.read_text())
    try:
        targets = [Target(**target) for target in found.pop("targets")]
        return Report(**found, targets=targets, charts=read_charts(path.with_suffix(".charts.json")))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} is not a report: {error}") from error
