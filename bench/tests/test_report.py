"""A report's JSON has the promised shape, and a miss is a miss."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench.report import Report, Target, at_least, at_most, exactly, failed, not_run, read_report


def report(*targets: Target) -> Report:
    return Report(
        test="p1",
        environment={"cores": 2, "postgresql_settings": {"fsync": "on"}},
        targets=targets,
        not_meaning="anything else.",
        figures={"start_delay_p50_ms": 1.5, "nothing": None},
        lost=0,
        duplicates=2,
    )


def test_the_json_has_the_promised_shape(tmp_path: Path) -> None:
    path = report(at_most("p99", 50, 4.2, "ms")).write(tmp_path / "new")
    assert path.name == "p1.json"
    assert json.loads(path.read_text()) == {
        "test": "p1",
        "environment": {"cores": 2, "postgresql_settings": {"fsync": "on"}},
        "targets": [{"name": "p99", "target": "<= 50 ms", "value": 4.2, "met": True}],
        "figures": {"start_delay_p50_ms": 1.5, "nothing": None},
        "lost": 0,
        "duplicates": 2,
        "not_meaning": "anything else.",
    }


@pytest.mark.parametrize(
    ("target", "met", "bound"),
    [
        (at_most("t", 50, 50.0, "ms"), True, "<= 50 ms"),
        (at_most("t", 50, 50.1, "ms"), False, "<= 50 ms"),
        (at_least("t", 50_000, 50_000, "runs/s"), True, ">= 50,000 runs/s"),
        (at_least("t", 3000, 2999.9), False, ">= 3,000"),
        (exactly("t", 0, 0), True, "= 0"),
        (exactly("t", 0, 1), False, "= 0"),
    ],
)
def test_bounds(target: Target, met: bool, bound: str) -> None:
    assert (target.met, target.target) == (met, bound)


@pytest.mark.parametrize("target", [at_most("t", 1, math.nan), at_least("t", 1, math.nan)])
def test_what_was_not_measured_is_missed_and_still_json(target: Target) -> None:
    assert (target.met, target.value) == (False, None)
    assert json.loads(report(target).json())["targets"][0]["value"] is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_has_no_number_keeps_no_report_from_being_written(value: float) -> None:
    found = replace(report(at_most("rise", 10, value, "%")), figures={"p99_ms": value, "share": 0.5})
    read = json.loads(found.json())
    assert (read["targets"][0]["value"], read["targets"][0]["met"]) == (None, False)
    assert read["figures"] == {"p99_ms": None, "share": 0.5}


def test_one_miss_misses_the_whole() -> None:
    assert report(exactly("a", 0, 0)).met
    assert not report(exactly("a", 0, 0), exactly("b", 0, 1)).met


def test_what_ran_and_asked_for_nothing_has_met_nothing() -> None:
    assert not report().met


def test_the_table_says_the_same() -> None:
    out = io.StringIO()
    report(exactly("lost", 0, 1), at_most("p99", 50, math.nan, "ms")).show(Console(file=out, width=120))
    text = out.getvalue()
    for part in ("lost", "= 0", "NO", "nothing", "start delay p50 ms", "1.5", "cores: 2", "anything else."):
        assert part in text


def test_a_measurement_that_broke_is_a_miss_and_one_that_cannot_be_had_is_none(tmp_path: Path) -> None:
    broke = failed("p1", RuntimeError("no disk"))
    assert (broke.met, broke.figures["error"]) == (False, "RuntimeError: no disk")
    absent = not_run("hints", "no Redis")
    assert (absent.met, absent.reason_not_run) == (True, "no Redis")
    for one in (broke, absent):
        assert read_report(one.write(tmp_path)).json() == one.json()


@pytest.mark.parametrize("text", ["[]", "{}", '{"targets": [{"name": "x"}]}', '{"targets": [], "extra": 1}', "no JSON"])
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "p1.json").write_text(text)
    with pytest.raises(ValueError, match=r"not a report|Expecting"):
        read_report(tmp_path / "p1.json")
