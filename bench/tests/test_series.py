"""Charts keep their values on the way to disk, and a histogram's bins hold what their edges say."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.delays import delay_charts
from bench.report import Report
from bench.series import (
    Band,
    Charts,
    Histogram,
    Line,
    Series,
    Table,
    delay_timeline,
    log_histogram,
    read_charts,
    started_curve,
)

CHARTS = Charts(
    series=[Series("CPU", "cores", [0.0, 2.0], [Line("executor", [0.5, None])], bands=[Band("kill", 1.0, 2.0)])],
    histograms=[Histogram("start delay", "s", [0.001, 0.01, 0.1], [Line("all", [3, 4])])],
    tables=[Table("transports", ["name", "calls/s"], [["lean", 1.5], ["aiohttp", None]])],
)


def test_charts_lie_beside_the_report_and_come_back(tmp_path: Path) -> None:
    Report("p1", {}, [], "anything.", charts=CHARTS).write(tmp_path)
    assert "charts" not in json.loads((tmp_path / "p1.json").read_text())
    assert read_charts(tmp_path / "p1.charts.json").json() == CHARTS.json()


def test_a_report_without_charts_has_no_such_file(tmp_path: Path) -> None:
    Report("p1", {}, [], "anything.").write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["p1.json"]
    assert not read_charts(tmp_path / "p1.charts.json")


def test_what_is_not_finite_is_written_as_a_gap(tmp_path: Path) -> None:
    charts = Charts(series=[Series("t", "s", [0.0, 1.0], [Line("a", [math.nan, math.inf])])])
    assert read_charts(charts.write(tmp_path, "p1")).series[0].lines[0].values == [None, None]


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30))
def test_each_value_lies_in_the_bin_that_counts_it(values: list[float]) -> None:
    found = log_histogram("t", {"all": values}, least=1e-6)
    assert list(found.edges) == sorted(set(found.edges))
    assert len(found.groups[0].values) == len(found.edges) - 1
    counted = [
        sum(low <= value < high for value in values) for low, high in zip(found.edges, found.edges[1:], strict=False)
    ]
    assert list(found.groups[0].values) == counted
    assert sum(counted) == len(values)


def test_groups_share_edges_and_what_no_logarithm_has_counts_in_the_first_bin() -> None:
    found = log_histogram("t", {"a": [0.0, -1.0, 0.001], "b": [10.0, math.nan], "none": []})
    assert (found.edges[0], found.edges[-1] > 10) == (0.001, True)
    assert [sum(value or 0 for value in group.values) for group in found.groups] == [3, 1, 0]
    assert found.groups[0].values[0] == 3


def test_a_histogram_of_nothing_is_one_empty_bin() -> None:
    assert log_histogram("t", {"all": []}).groups[0].values == (0,)


@pytest.mark.parametrize(("share", "wanted"), [(0.5, 2.0), (0.99, 3.0)])
def test_a_timeline_is_the_quantile_of_each_second_in_which_runs_were_due(share: float, wanted: float) -> None:
    pairs = [(100.0, 1.0), (100.5, 2.0), (100.9, 3.0), (102.0, 0.5)]
    found = delay_timeline("t", {"critical": pairs, "low": [(101.0, 9.0)], "none": []}, share)
    assert found.x == [0.0, 1.0, 2.0]
    assert [line.values for line in found.lines] == [[wanted, None, 0.5], [None, 9.0, None], [None, None, None]]


def test_delays_by_slot_become_a_histogram_and_a_timeline_by_group() -> None:
    urgent, other = UUID(int=1), UUID(int=2)
    due = [datetime(2027, 1, 15, 8, 0, second, tzinfo=UTC) for second in range(3)]
    critical, low = {(urgent, due[0]): 0.002}, {(other, due[0]): 0.5, (other, due[2]): 0.02}
    began = due[1].timestamp()
    charts = delay_charts({"critical": critical, "high": {}, "low": low}, [("killed", began, began + 1)])
    (timeline, curve), (histogram,) = charts.series, charts.histograms
    assert [(line.name, line.values) for line in timeline.lines] == [
        ("critical", [0.002, None, None]),
        ("low", [0.5, None, 0.02]),
    ]
    assert [(band.name, band.began, band.ended) for band in timeline.bands] == [("killed", 1.0, 2.0)]
    assert {group.name: sum(value or 0 for value in group.values) for group in histogram.groups} == {
        "critical": 1,
        "low": 2,
    }
    assert (curve.x[0], curve.x[-1], curve.lines[1].values[-1]) == (0.0, 0.5, 100.0)
    assert [series.unit for series in delay_charts({"all": low | critical}).series] == ["s", "%"]
    assert [series.unit for series in delay_charts({"one second": critical}).series] == ["%"]
    assert all(not series.lines for series in delay_charts({}).series)


def test_a_curve_says_what_part_had_started() -> None:
    curve = started_curve("t", {"a": [3.0, 1.0, 2.0, 4.0], "none": []})
    (line,) = curve.lines
    assert [line.values[curve.x.index(at)] for at in (0.0, 4.0)] == [0.0, 100.0]
    assert line.values[round(len(curve.x) * 0.6)] == 50.0
