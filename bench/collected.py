"""What the collector wrote beside a report, as charts: processor, memory and the database over time."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bench.series import Band, Line, Series

_BY_ROLE = {
    "_cores": ("Processor by part of the system", "cores"),
    "_rss_mib": ("Resident memory by part of the system", "MiB"),
    "_throttled_seconds": ("Waited for a quota, since the start", "s"),
}
_ALONE = {
    "commits": ("Commits", "1/s"),
    "wal_bytes": ("WAL written", "B/s"),
    "dead_tuples": ("Dead tuples of the run tables", "rows"),
    "lock_waits": ("Waiting for a lock", "sessions"),
    "oldest_xmin_seconds": ("Age of the oldest snapshot", "s"),
}
_NOT_DRAWN = {"at", "part"}

T = TypeVar("T")


def collected(path: Path) -> list[Series]:
    """Of a file of columns: `at` in Unix seconds, `part` (what the system was doing) and one per figure, all of one
    length; x is in seconds from the first row, and the parts are its bands. None where there is no such file. Raises
    ValueError for a file of another shape."""
    if not path.exists():
        return []
    columns = json.loads(path.read_text())
    try:
        return charts_of(columns)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} holds no columns: {error!r}") from error


def charts_of(columns: Mapping[str, Sequence[float | None]]) -> list[Series]:
    """One chart for each kind of figure that every part of the system has, then one for each of the others; a figure
    that was 0 throughout is not drawn."""
    at = [float(instant or 0) for instant in columns["at"]]
    x = [instant - at[0] for instant in at]
    parts = [str(part) for part in columns.get("part", ())]
    bands = _bands(x, parts)
    changes = [row for row in range(1, len(parts)) if parts[row] != parts[row - 1]]
    x = _between(x, changes, lambda row: (x[row - 1] + x[row]) / 2)
    columns = {name: _between(values, changes, lambda row: None) for name, values in columns.items()}
    names = [name for name in columns if name not in _NOT_DRAWN and any(columns[name])]
    charts = []
    for suffix, (title, unit) in _BY_ROLE.items():
        lines = [Line(name.removesuffix(suffix), columns[name]) for name in names if name.endswith(suffix)]
        if lines:
            charts.append(Series(title, unit, x, lines, bands=bands))
    for name in names:
        if not name.endswith(tuple(_BY_ROLE)):
            title, unit = _ALONE.get(name, (name.replace("_", " "), ""))
            charts.append(Series(title, unit, x, [Line(title, columns[name])], bands=bands))
    return charts


def _between(values: Sequence[T], rows: Sequence[int], value: Callable[[int], T]) -> list[T]:
    """The values with one more before each of these rows: between two parts a line has a gap."""
    return [each for row, old in enumerate(values) for each in ([value(row), old] if row in rows else [old])]


def _bands(x: Sequence[float], parts: Sequence[str]) -> list[Band]:
    """A band for each part, every second one in the other colour; a single part needs none."""
    names = list(dict.fromkeys(parts))
    if len(names) < 2:
        return []
    spans = {name: [instant for instant, part in zip(x, parts, strict=True) if part == name] for name in names}
    return [
        Band(name, min(instants), max(instants), other=number % 2 == 1)
        for number, (name, instants) in enumerate(spans.items())
    ]
