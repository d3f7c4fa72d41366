"""Every broken twin is caught by its machine: a machine that can miss one proves nothing by holding."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from property_tests.mutant import Caught, Instead, Mutant, hunt, promises_in, why_missed
from property_tests.mutants.__main__ import EXCEPTIONS, HEAD, row_of
from property_tests.registry import EVERY_MUTANT, MUTANTS, NEEDS_POSTGRES
from property_tests.world.backends import Server

TABLE = Path(__file__).parents[2] / "docs" / "mutants.md"
_ROW = re.compile(r"^\| ([^|]+) \| (\w+) \| (\d+) \| ([\d, ]+) \| \d+ \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def server(open_tmp_path: Path) -> Iterator[Server]:
    with Server.running(open_tmp_path / "worlds of mutants") as running:
        yield running


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant, request: pytest.FixtureRequest) -> None:
    if mutant.machine.__name__ in NEEDS_POSTGRES:
        request.getfixturevalue("server")
    assert why_missed(mutant, hunt(mutant)) is None


def test_a_mutant_is_caught_by_its_own_promise_only() -> None:
    mutant = replace(MUTANTS[0], promise=1)
    named = Caught("promise 1, misfire: too many", 4)
    assert why_missed(mutant, named) is None
    for other in ("promise 10: too many", "promises 2 and 8: twice", "assert promise 1", "it broke promise 1"):
        assert "but not as promise 1" in (why_missed(mutant, Caught(other, 4)) or "")
    assert "does not notice" in (why_missed(mutant, None) or "")
    either = replace(mutant, promise=8, instead=Instead(1, "for it is looked at first"))
    assert why_missed(either, named) is None
    assert why_missed(either, Caught("promises 2 and 8: twice", 4)) is None
    assert "but not as promise 1 or 8" in (why_missed(either, Caught("promise 10: too many", 4)) or "")


def test_what_a_machine_says_names_its_promises() -> None:
    assert promises_in("promise 12: another tenant's task") == {12}
    assert promises_in("promises 2 and 8: the slot 2027-02-07 has a second run") == {2, 8}
    assert promises_in("promises 1, 5 and 8: all") == {1, 5, 8}
    assert promises_in("3 promises") == promises_in("") == promises_in("promise of nothing") == frozenset()


def table_faults(text: str) -> list[str]:
    """What a table of twins says otherwise than the registry. What was seen, and in how many programs, changes with the
    machines; it is only held to what is accepted."""
    rows = [(name, machine, int(promise)) for name, machine, promise, _ in _ROW.findall(text)]
    kept = [(mutant.name, mutant.machine.__name__, mutant.promise) for mutant in EVERY_MUTANT]
    faults = [f"not in the table: {row}" for row in (Counter(kept) - Counter(rows))]
    faults += [f"not in the registry: {row}" for row in (Counter(rows) - Counter(kept))]
    accepted = {mutant.name: mutant.accepted for mutant in EVERY_MUTANT}
    for name, _, _, seen in _ROW.findall(text):
        if not {int(number) for number in seen.split(", ")} & accepted.get(name, frozenset()):
            faults.append(f"seen otherwise than is accepted: {name}")
    if not faults and rows != kept:
        faults.append("in another order")
    if not text.startswith(HEAD) or not text.endswith("\n".join(["", *EXCEPTIONS, ""])):
        faults.append("what stands around the table is not what the command prints")
    return faults


def test_the_table_of_mutants_is_that_of_the_registry() -> None:
    assert table_faults(TABLE.read_text()) == []


def test_a_table_that_is_not_is_caught() -> None:
    rows = [row_of(mutant, Caught(f"promise {mutant.promise}: broken", 4)) for mutant in EVERY_MUTANT]

    def text(rows: list[str]) -> str:
        return "\n".join([HEAD, *rows, "", *EXCEPTIONS, ""])

    good = text(rows)
    assert table_faults(good) == []
    assert table_faults(text(rows[1:]))[0].startswith("not in the table")
    assert table_faults(text([*rows, rows[0]]))[0].startswith("not in the registry")
    assert table_faults(text([*rows[1:], rows[0]])) == ["in another order"]
    assert len(table_faults(good.replace(MUTANTS[0].name, "a guard of old", 1))) >= 2
    otherwise = row_of(MUTANTS[0], Caught("promise 12: broken", 4))
    assert table_faults(text([otherwise, *rows[1:]])) == [f"seen otherwise than is accepted: {MUTANTS[0].name}"]
    assert table_faults(good.replace("Written by", "Written for")) != []
    assert table_faults(good.replace(EXCEPTIONS[-1], "")) != []
