"""`docs/cases.md` is true: each test that it names exists, and each test's number is that of a case in it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "cases.md"
PARTS = ("packages", "apps", "bench", "property_tests")

_ROW = re.compile(r"^\| B(\d+) \| (\S+) \|([^|]*)\|([^|]*)\|$", re.MULTILINE)
_TEST = re.compile(r"`([^`:]*)::(\w+)`")
_NUMBERED = re.compile(r"^ *(?:async )?def ((?:test_|b\d+_)\w+)\(", re.MULTILINE)


def named_tests(held_by: str) -> Iterator[tuple[str, str]]:
    """Pairs of path and name; a name without a path is of the file before it."""
    path = ""
    for found, name in _TEST.findall(held_by):
        path = found or path
        yield path, name


def defines(root: Path, path: str, name: str) -> bool:
    file = root / path
    return file.is_file() and re.search(rf"^ *(async )?def {name}\(", file.read_text(), re.MULTILINE) is not None


def table_faults(text: str, root: Path) -> list[str]:
    """What is wrong with a table of cases over a source tree."""
    faults = []
    rows = [(int(number), held_by, left) for number, _, held_by, left in _ROW.findall(text)]
    if len(rows) != len(re.findall(r"^\| B", text, re.MULTILINE)):
        faults.append("a row cannot be read")
    numbers = [number for number, _, _ in rows]
    if numbers != sorted(set(numbers)):
        faults.append("a case is named twice, or out of order")
    for number, held_by, left in rows:
        tests = list(named_tests(held_by))
        if not tests and not left.strip():
            faults.append(f"B{number} is held by nothing, for no reason")
        faults += [f"B{number}: no {name} in {path}" for path, name in tests if not defines(root, path, name)]
    for part in PARTS:
        for file in (root / part).rglob("*.py"):
            for test in _NUMBERED.findall(file.read_text()):
                of_cases = {int(n) for n in re.findall(r"(?:^|_)b(\d+)(?=_)", test)}
                faults += [f"{test} is of B{n}, which the table lacks" for n in of_cases - set(numbers)]
    return faults


def test_the_table_of_cases_is_true() -> None:
    text = TABLE.read_text()
    assert _ROW.search(text)
    assert table_faults(text, ROOT) == []


GOOD = "| B1 | cron | `packages/a.py::test_b1_one`, `::test_two` | |\n| B2 | redis | | not yet: no index |\n"
SOURCE = "def test_b1_one() -> None: ...\nasync def test_two() -> None: ...\n"


@pytest.mark.parametrize(
    ("table", "source", "fault"),
    [
        (GOOD, SOURCE, None),
        (GOOD.replace("test_two", "test_three"), SOURCE, "B1: no test_three in packages/a.py"),
        (GOOD.replace("a.py", "b.py"), SOURCE, "B1: no test_b1_one in packages/b.py"),
        (GOOD.replace("not yet: no index", ""), SOURCE, "B2 is held by nothing, for no reason"),
        (GOOD.replace("B2", "B1"), SOURCE, "a case is named twice, or out of order"),
        (GOOD.replace("| redis |", "|"), SOURCE, "a row cannot be read"),
        (GOOD, f"{SOURCE}def test_b3_other() -> None: ...\n", "test_b3_other is of B3, which the table lacks"),
        (GOOD, f"{SOURCE}    def b4_inner(x) -> None: ...\n", "b4_inner is of B4, which the table lacks"),
        (GOOD, f"{SOURCE}def test_b1_b5_two() -> None: ...\n", "test_b1_b5_two is of B5, which the table lacks"),
    ],
)
def test_a_table_that_is_not_true_is_caught(tmp_path: Path, table: str, source: str, fault: str | None) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "a.py").write_text(source)
    assert table_faults(table, tmp_path)[:1] == ([] if fault is None else [fault])
