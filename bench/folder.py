"""A folder of reports: what lies in it, and how runs of several times become one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.medians import median_report
from bench.report import Report, read_report


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
            reports[each.stem] = read_report(each)
        except ValueError as error:
            unreadable[each.stem] = str(error)
    tests = sorted(reports, key=len, reverse=True)
    flames: dict[str, list[Path]] = {}
    for picture in [*sorted(path.glob("*.svg")), *sorted(path.glob("[0-9]*/*.svg"))]:
        of = next((test for test in tests if re.match(rf"{re.escape(test)}\b|{re.escape(test)}_", picture.stem)), "")
        flames.setdefault(of, []).append(picture.relative_to(path))
    return Folder(path, reports, unreadable, flames)


def order(test: str) -> tuple[int, str, int, str]:
    """p0 to p10 by number, then the rest by name."""
    found = re.fullmatch(r"p(\d+)(.*)", test)
    return (0, "", int(found[1]), found[2]) if found else (1, test, 0, "")


def write_medians(path: Path, runs: int) -> Sequence[Report]:
    """Writes `DIR/<test>.json` of the reports in `DIR/1` to `DIR/<runs>`, and returns them in order."""
    folders = [read_folder(path / str(number)) for number in range(1, runs + 1)]
    tests = sorted({test for folder in folders for test in folder.reports}, key=order)
    reports = [median_report([f.reports[test] for f in folders if test in f.reports]) for test in tests]
    for report in reports:
        report.write(path)
    return reports
