"""A folder of reports: what lies in it, and in which order it is shown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.collected import collected
from bench.report import Report, plain_name, read_report


@dataclass(frozen=True, slots=True)
class Folder:
    """`reports` by test, in the order in which they are shown. `unreadable`: why a file that should hold a report does
    not. `flames` by test: pictures, relative to the folder; those of no test under an empty name."""

    path: Path
    reports: Mapping[str, Report]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    flames: Mapping[str, Sequence[Path]] = field(default_factory=dict)


def read_folder(path: Path) -> Folder:
    """All reports `DIR/<test>.json`, and the flame graphs `*.svg` in it and in its numbered folders. Raises
    FileNotFoundError where there is no such folder."""
    if not path.is_dir():
        raise FileNotFoundError(f"no folder {path}")
    reports: dict[str, Report] = {}
    unreadable: dict[str, str] = {}
    for each in sorted(
        (file for file in path.glob("*.json") if "." not in file.stem), key=lambda file: order(file.stem)
    ):
        try:
            reports[each.stem] = read_test(path, each.stem)
        except ValueError as error:
            unreadable[each.stem] = str(error)
    tests = sorted(reports, key=len, reverse=True)
    flames: dict[str, list[Path]] = {}
    for picture in [*sorted(path.glob("*.svg")), *sorted(path.glob("[0-9]*/*.svg"))]:
        of = next((test for test in tests if re.match(rf"{re.escape(test)}\b|{re.escape(test)}_", picture.stem)), "")
        flames.setdefault(of, []).append(picture.relative_to(path))
    return Folder(path, reports, unreadable, flames)


def read_test(path: Path, test: str) -> Report:
    """One report of a folder with all its charts, also those of what the collector wrote beside it. Raises OSError, and
    ValueError for what is no report."""
    report = read_report(path / f"{test}.json")
    series = [*report.charts.series, *collected(path / f"{test}.series.json")]
    return replace(report, charts=replace(report.charts, series=series))


def all_tests(folder: Folder, expected: Sequence[str] = ()) -> list[str]:
    """Every test of the folder, and every one expected of which it has no form, in order."""
    known = {*folder.reports, *folder.unreadable}
    forms = {plain_name(test) for test in known}
    return sorted(known | {test for test in expected if test not in forms}, key=order)


def order(test: str) -> tuple[int, str, int, str]:
    """p0 to p10 by number, then the rest by name."""
    found = re.fullmatch(r"p(\d+)(.*)", test)
    return (0, "", int(found[1]), found[2]) if found else (1, test, 0, "")
