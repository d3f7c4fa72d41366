"""The page: what stands in it, from the reports of a folder, and its HTML."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jinja2

from bench.folder import Folder, all_tests, read_folder
from bench.page.draw import STYLE, histogram_chart, line_chart, svg
from bench.report import Report, Target, bound_of
from bench.seed_figures import CRON, INDEX, SeedFigure, found_for, seed_figure
from bench.series import Cell, Charts, Table

Verdict = Literal["met", "missed", "not run"]

PEERS = "peers"


@dataclass(frozen=True, slots=True)
class Row:
    """A target as it is shown. `used`: the part of its bound that it took, 0 to 1; None where that says nothing."""

    name: str
    bound: str
    found: str
    met: bool
    seed: str
    used: float | None


@dataclass(frozen=True, slots=True)
class Section:
    """All that is shown of one test; `reason` where it was not run."""

    test: str
    seed: SeedFigure | None
    verdict: Verdict
    reason: str
    rows: Sequence[Row]
    counts: Mapping[str, str]
    charts: Sequence[str]
    tables: Sequence[Table]
    flames: Sequence[tuple[str, str]]
    figures: Mapping[str, str]
    environment: Mapping[str, str]
    not_meaning: str


def write_page(folder: Path, expected: Sequence[str] = ()) -> Path:
    """Writes `DIR/index.html` of the reports in `DIR`. Tests that are `expected` and have none are shown as not run.
    Raises FileNotFoundError where there is no such folder."""
    path = folder / "index.html"
    path.write_text(page(read_folder(folder), expected), encoding="utf-8")
    return path


def page(folder: Folder, expected: Sequence[str] = ()) -> str:
    """The HTML: one file that asks for no other, but for links to the flame graphs beside it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [section(test, folder) for test in shown_tests(folder, expected)]
    rows = [row for each in sections for row in each.rows]
    return environment.get_template("page.html").render(
        sections=sections,
        met=sum(row.met for row in rows),
        targets=len(rows),
        ran=sum(each.verdict != "not run" for each in sections),
        lost=sum(report.lost or 0 for report in folder.reports.values()),
        duplicates=sum(report.duplicates or 0 for report in folder.reports.values()),
        machine=next((line for report in folder.reports.values() if (line := machine(report))), ""),
        other_flames=flames(folder, ""),
        style=STYLE,
        sources=(CRON, INDEX),
        widest=widest,
        is_numeric=is_numeric,
        text=text,
    )


def shown_tests(folder: Folder, expected: Sequence[str]) -> list[str]:
    """Every test of the folder, and every one expected of which it has no form; the peers first, for all else is read
    beside them."""
    tests = all_tests(folder, expected)
    return sorted(tests, key=lambda test: test != PEERS)


def section(test: str, folder: Folder) -> Section:
    """What is shown of one test, also where it has no report."""
    report = folder.reports.get(test)
    if report is None:
        why = folder.unreadable.get(test)
        return _absent(test, f"its report cannot be read: {why}" if why else "no report in this folder")
    if report.reason_not_run is not None:
        return _absent(test, report.reason_not_run)
    counts = {"lost": report.lost, "duplicates": report.duplicates}
    return Section(
        test=test,
        seed=seed_figure(test),
        verdict="met" if report.met else "missed",
        reason="",
        rows=[row(test, target) for target in report.targets],
        counts={name: text(count) for name, count in counts.items() if count is not None},
        charts=drawn(report.charts),
        tables=report.charts.tables,
        flames=flames(folder, test),
        figures={name.replace("_", " "): text(value) for name, value in report.figures.items()},
        environment=environment_of(report),
        not_meaning=report.not_meaning,
    )


def row(test: str, target: Target) -> Row:
    bound = bound_of(target.target)
    used = None
    if bound is not None and target.value is not None and bound.limit > 0 and target.value > 0 and bound.sign != "=":
        share = target.value / bound.limit if bound.sign == "<=" else bound.limit / target.value
        used = min(1.0, share)
    return Row(target.name, target.target, found(target), target.met, found_for(test, target.name), used)


def found(target: Target) -> str:
    """What was found, in its bound's unit."""
    bound = bound_of(target.target)
    return "nothing" if target.value is None else f"{target.value:,} {bound.unit if bound else ''}".rstrip()


def text(value: object) -> str:
    """A figure or cell as it is shown; nothing is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def widest(table: Table, column: int) -> float:
    """The largest number of a column, which its bars are drawn beside; at least a little above 0."""
    return max([1e-12, *(float(cell) for cell in _column(table, column) if isinstance(cell, int | float))])


def is_numeric(table: Table, column: int) -> bool:
    """Whether all cells of a column that hold something hold numbers, which are set to the right."""
    cells = [cell for cell in _column(table, column) if cell is not None]
    return bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)


def _column(table: Table, column: int) -> list[Cell]:
    return [cells[column] for cells in table.rows]


def drawn(charts: Charts) -> list[str]:
    """The charts of a report, histograms first."""
    histograms = [svg(histogram_chart(each)) for each in charts.histograms]
    return [*histograms, *(svg(line_chart(each)) for each in charts.series)]


def flames(folder: Folder, test: str) -> list[tuple[str, str]]:
    """Flame graphs as (relative path, picture as a data URL)."""
    pictures = folder.flames.get(test, ())
    return [(each.as_posix(), _data_url(folder.path / each)) for each in pictures]


def machine(report: Report) -> str:
    """One line of what all was measured on."""
    named = report.environment
    parts = (
        ("cores", "{} cores"),
        ("cpu", "{}"),
        ("ram_gib", "{} GiB"),
        ("kernel", "{}"),
        ("postgresql", "PostgreSQL {}"),
        ("python", "Python {}"),
    )
    return ", ".join(form.format(named[name]) for name, form in parts if named.get(name) is not None)


def environment_of(report: Report) -> dict[str, str]:
    """Flat: settings of the server stand after the machine's."""
    flat: dict[str, str] = {}
    for name, value in report.environment.items():
        entries = value.items() if isinstance(value, Mapping) else ((name, value),)
        flat |= {key.replace("_", " "): text(each) for key, each in entries}
    return flat


def _absent(test: str, reason: str) -> Section:
    return Section(test, seed_figure(test), "not run", reason, (), {}, (), (), (), {}, {}, "")


def _data_url(picture: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(picture.read_bytes()).decode()
