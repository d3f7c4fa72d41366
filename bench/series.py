"""What a report shows beside its flat figures: lines over time, histograms, tables. Values with units; no drawing.

A measurement hands them over as `Report.charts`; they lie in `DIR/<test>.charts.json`, and the page draws them.
"""

import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Number = float | int | None
"""None is a gap: nothing was measured there. A value that is not finite is written as a gap."""

Cell = float | int | str | bool | None

BINS_PER_DECADE = 10

_CURVE_POINTS = 150


@dataclass(frozen=True, slots=True)
class Line:
    """One of a chart's lines, or one of a histogram's groups; as many values as the chart has x, or bins."""

    name: str
    values: Sequence[Number]


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the x axis with something in it, such as a fault or a step of the load, drawn behind the lines.
    `other`: of a second kind, in another colour."""

    name: str
    began: float
    ended: float
    detail: str = ""
    other: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """Lines over one x axis. `x` rises, in `x_unit`; values are in `unit`. `log`, `x_log`: logarithmic axes."""

    title: str
    unit: str
    x: Sequence[float]
    lines: Sequence[Line]
    x_unit: str = "s"
    log: bool = False
    x_log: bool = False
    bands: Sequence[Band] = ()


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by bin; bin i is from `edges[i]`, inclusive, to `edges[i + 1]`, in `unit`, on a logarithmic x axis."""

    title: str
    unit: str
    edges: Sequence[float]
    groups: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, as many in each as there are columns; a column's name carries its unit, as in `p99, ms`.
    `bars` names the columns whose numbers are also drawn as bars, each beside the column's largest."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    bars: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Charts:
    """All that one report shows."""

    series: Sequence[Series] = field(default=())
    histograms: Sequence[Histogram] = field(default=())
    tables: Sequence[Table] = field(default=())

    def __bool__(self) -> bool:
        return bool(self.series or self.histograms or self.tables)

    def json(self) -> str:
        """JSON text; numbers are finite."""
        return json.dumps(_finite(asdict(self)), indent=1, allow_nan=False) + "\n"

    def write(self, folder: Path, test: str) -> Path:
        """Writes `<test>.charts.json` into `folder`, which is made if missing."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{test}.charts.json"
        path.write_text(self.json())
        return path


def read_charts(path: Path) -> Charts:
    """What `Charts.write` wrote; empty where there is no such file. Raises ValueError, KeyError or TypeError for a
    file of another shape."""
    if not path.exists():
        return Charts()
    found = json.loads(path.read_text())
    return Charts(
        series=[_series(each) for each in found["series"]],
        histograms=[Histogram(**{**each, "groups": _lines(each["groups"])}) for each in found["histograms"]],
        tables=[Table(**each) for each in found["tables"]],
    )


def log_histogram(
    title: str, groups: Mapping[str, Sequence[float]], unit: str = "s", least: float = 0.001
) -> Histogram:
    """Counts in BINS_PER_DECADE bins a decade, over all decades with a value in them; edges are shared by the groups.

    What is below `least` (and no bin of a logarithmic axis could hold, such as 0) counts in the first bin; values
    that are not finite do not count.
    """
    kept = {name: [max(least, value) for value in values if math.isfinite(value)] for name, values in groups.items()}
    everything = [value for values in kept.values() for value in values]
    if not everything:
        return Histogram(title, unit, (least, least * 10), [Line(name, (0,)) for name in kept])
    first, last = _bin(min(everything)), _bin(max(everything))
    edges = [_edge(number) for number in range(first, last + 2)]
    counted = []
    for name, values in kept.items():
        counts = [0] * (last - first + 1)
        for value in values:
            counts[_bin(value) - first] += 1
        counted.append(Line(name, counts))
    return Histogram(title, unit, edges, counted)


def delay_timeline(
    title: str,
    groups: Mapping[str, Iterable[tuple[float, float]]],
    share: float = 0.99,
    bands: Sequence[Band] = (),
) -> Series:
    """Per group and second, the `share` quantile of delays: of (due, delay) pairs in seconds, by the second in which
    they were due. x is in seconds from the first of them; a second without a pair is a gap. `bands`: in the same x."""
    by_second: dict[str, defaultdict[int, list[float]]] = {}
    for name, pairs in groups.items():
        found = by_second[name] = defaultdict(list)
        for due, delay in pairs:
            found[math.floor(due)].append(delay)
    seconds = [second for found in by_second.values() for second in found]
    if not seconds:
        return Series(title, "s", (), [Line(name, ()) for name in by_second], log=True)
    first, last = min(seconds), max(seconds)
    lines = [
        Line(name, [_quantile(found.get(second), share) for second in range(first, last + 1)])
        for name, found in by_second.items()
    ]
    x = [float(second - first) for second in range(first, last + 1)]
    return Series(title, "s", x, lines, log=True, bands=bands)


def started_curve(title: str, groups: Mapping[str, Sequence[float]]) -> Series:
    """Per group, what part of it had started so many seconds after it was due, in percent: of delays in seconds."""
    rising = {name: sorted(delays) for name, delays in groups.items() if delays}
    longest = max((delays[-1] for delays in rising.values()), default=0.0)
    x = [longest * step / _CURVE_POINTS for step in range(_CURVE_POINTS + 1)]
    lines = [
        Line(name, [round(100 * bisect_right(delays, at) / len(delays), 2) for at in x])
        for name, delays in rising.items()
    ]
    return Series(title, "%", x, lines)


def _bin(value: float) -> int:
    """The bin with `_edge(n) <= value < _edge(n + 1)`; a logarithm alone errs by one at the edges."""
    number = math.floor(math.log10(value) * BINS_PER_DECADE)
    if value >= _edge(number + 1):
        return number + 1
    return number - 1 if value < _edge(number) else number


def _edge(number: int) -> float:
    return float(f"{10 ** (number / BINS_PER_DECADE):.6g}")


def _quantile(values: Sequence[float] | None, share: float) -> float | None:
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _series(found: Mapping[str, Any]) -> Series:
    return Series(**{**found, "lines": _lines(found["lines"]), "bands": [Band(**band) for band in found["bands"]]})


def _lines(found: Iterable[Mapping[str, Any]]) -> list[Line]:
    return [Line(**each) for each in found]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
