"""The reports of a folder as Markdown, for the README: every target, and what no figure means."""

from collections.abc import Sequence
from pathlib import Path

from bench.folder import all_tests, read_folder
from bench.page.build import Section, machine, section


def summary(path: Path, expected: Sequence[str] = ()) -> str:
    """A table of all targets, and beneath it a line for each test. Tests that are `expected` and have no report are
    shown as not run. Raises FileNotFoundError where there is no such folder."""
    folder = read_folder(path)
    sections = [section(test, folder) for test in all_tests(folder, expected)]
    where = next((line for report in folder.reports.values() if (line := machine(report))), "")
    lines = ["| test | target | seed | asked | found | met |", "|---|---|---|---|---|---|"]
    lines += [line for each in sections for line in _rows(each)]
    meanings = [f"- `{each.test}`, not meant: {_cell(each.not_meaning)}" for each in sections if each.not_meaning]
    return "\n".join([*([f"On {where}.", ""] if where else []), *lines, "", *meanings]) + "\n"


def _rows(section: Section) -> list[str]:
    if section.reason:
        return [_row(section.test, f"NOT RUN: {section.reason}", _whole(section), "", "", "")]
    return [
        _row(
            section.test if number == 0 else "",
            row.name,
            row.seed,
            row.bound,
            row.found,
            "yes" if row.met else "**no**",
        )
        for number, row in enumerate(section.rows)
    ]


def _whole(section: Section) -> str:
    return section.seed.found if section.seed else ""


def _row(*cells: str) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    """On one line, with nothing in it that ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")
