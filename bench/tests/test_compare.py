"""A comparison flags what became worse, by the direction of each bound, and nothing else."""

import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from bench.compare import changes, compare, target_change, warnings
from bench.report import Environment, Figure, Report, Target, at_least, at_most, exactly, not_run

MACHINE: Environment = {"cores": 2, "cpu": "one", "runtime": "Ray", "loop_median_ms": 10.0}


def report(
    *targets: Target, test: str = "p1", lost: int = 0, machine: Environment = MACHINE, **figures: Figure
) -> Report:
    return Report(test, machine, targets, "more.", figures, lost=lost, duplicates=0)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (at_most("p99", 20, 10, "ms"), at_most("p99", 20, 11.4, "ms"), False),
        (at_most("p99", 20, 10, "ms"), at_most("p99", 20, 11.6, "ms"), True),
        (at_most("p99", 20, 10, "ms"), at_most("p99", 20, 1, "ms"), False),
        (at_least("rate", 5, 10), at_least("rate", 5, 8.8), False),
        (at_least("rate", 5, 10), at_least("rate", 5, 8.6), True),
        (at_least("rate", 5, 10), at_least("rate", 5, 100), False),
        (exactly("lost", 0, 0), exactly("lost", 0, 1), True),
        (exactly("lost", 0, 2), exactly("lost", 0, 1), False),
        (exactly("runs", 400, 400), exactly("runs", 400, 399), True),
        (at_most("growth", 5, 0.0, "%"), at_most("growth", 5, 4.0, "%"), False),
        (at_most("growth", 5, -1.0, "%"), at_most("growth", 5, 6.0, "%"), True),
        (at_most("p99", 20, 10, "ms"), at_most("p99", 20, math.nan, "ms"), True),
        (at_most("p99", 20, math.nan, "ms"), at_most("p99", 20, 10, "ms"), False),
        (at_most("p99", 20, 10, "ms"), None, True),
        (None, at_most("p99", 20, 30, "ms"), False),
        (at_most("kill: called again", 200, 10, "calls"), at_most("kill: called again", 210, 205, "calls"), False),
        (at_most("kill: called again", 200, 10, "calls"), at_most("kill: called again", 200, 201, "calls"), True),
        (Target("dead", "within 3 sigma", 600, True), Target("dead", "within 3 sigma", 900, False), True),
        (Target("dead", "within 3 sigma", 600, True), Target("dead", "within 3 sigma", 620, True), False),
    ],
)
def test_worse_is_said_by_the_direction_of_the_bound(before: Target | None, after: Target | None, worse: bool) -> None:
    assert target_change("p1", before, after, 1.15).worse is worse


def test_a_blind_direction_would_miss_a_fallen_rate() -> None:
    """The twin without directions takes every rise for worse: a rate that fell and one that rose catch it."""
    fell = target_change("p1", at_least("rate", 5, 10), at_least("rate", 5, 6), 1.15)
    rose = target_change("p1", at_least("rate", 5, 10), at_least("rate", 5, 16), 1.15)
    blind = [(change.ratio or 0) > 1.15 for change in (fell, rose)]
    assert [fell.worse, rose.worse] == [True, False] != blind


def test_figures_are_shown_and_never_worse() -> None:
    old, new = report(p50=1.0, way="a", gone=3, held=True), report(p50=9.0, way="b", held=False)
    found = {change.name: change for change in changes({"p1": old}, {"p1": new})}
    assert (found["p50"].ratio, found["p50"].worse) == (9.0, False)
    assert not {"way", "gone", "held"} & set(found)


def test_a_loss_in_a_test_is_worse_even_where_no_target_says_so() -> None:
    found = list(changes({"p1": report(lost=0)}, {"p1": report(lost=1)}))
    assert [change.name for change in found if change.worse] == ["lost, all of the test"]


def written(folder: Path, *reports: Report) -> Path:
    for one in reports:
        one.write(folder)
    return folder


def compared(before: Path, after: Path, ratio: float = 1.15) -> tuple[int, str]:
    out = io.StringIO()
    code = compare(before, after, Console(file=out, width=200), ratio)
    return code, out.getvalue()


def test_the_exit_code_says_whether_something_became_worse(tmp_path: Path) -> None:
    old = written(tmp_path / "a", report(at_most("p99", 20, 10, "ms"), p50=1.0, p90=2.0))
    new = written(tmp_path / "b", report(at_most("p99", 20, 12, "ms"), p50=3.0, p90=2.1))
    code, text = compared(old, new)
    assert (code, "WORSE" in text, "1.20" in text) == (1, True, True)
    assert "p50" in text
    assert "p90" not in text
    assert compared(old, new, ratio=1.25)[0] == 0
    assert compared(new, old)[0] == 0


def test_what_is_not_measured_again_is_a_regression(tmp_path: Path) -> None:
    old = written(tmp_path / "a", report(), report(test="p2"), report(test="hints"), not_run("peers", "none"))
    new = written(tmp_path / "b", report(), not_run("hints", "no Redis"))
    code, text = compared(old, new)
    assert code == 1
    assert [line.split()[-1] for line in text.splitlines() if "not measured again" in line] == ["p2", "hints"]
    assert compared(new, old)[0] == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cores": 4}, "cores was 2, is 4"),
        ({"cpu": "another"}, "cpu was one, is another"),
        ({"loop_median_ms": 12.5}, "1.25 times as long"),
        ({"loop_median_ms": 7.0}, "0.70 times as long"),
        ({"loop_median_ms": 11.5}, ""),
        ({}, ""),
    ],
)
def test_another_machine_or_another_pace_is_said(changed: dict[str, Figure], said: str) -> None:
    found = list(warnings({"p1": report()}, {"p1": report(machine={**MACHINE, **changed}), "p2": report(test="p2")}))
    assert (len(found), all(said in line for line in found)) == (1 if said else 0, True)
