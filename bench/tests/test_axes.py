"""Axes have round ends around all values, and marks that lie on them."""

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.page.axes import Axis, axis_over, clock, label, time_axis, time_marks
from bench.page.draw import MOST_POINTS, line_chart, svg
from bench.series import Line, Series

FINITE = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-6)


@given(st.lists(FINITE, max_size=20))
def test_a_linear_axis_holds_zero_and_all_values(values: list[float]) -> None:
    axis = axis_over(values)
    assert axis.low <= min([0.0, *values]) + 1e-6
    assert axis.high >= max([0.0, *values]) * (1 - 1e-9)
    assert axis.low < axis.high
    assert 2 <= len(axis.marks()) <= 8


@given(st.lists(st.floats(1e-6, 1e9), max_size=20), st.integers(4, 12))
def test_a_logarithmic_axis_holds_all_values_and_marks_rise(values: list[float], most: int) -> None:
    axis = axis_over(values, log=True)
    assert all(axis.low * (1 - 1e-6) <= value <= axis.high * (1 + 1e-6) for value in values)
    marks = [value for value, _ in axis.marks(most)]
    assert marks == sorted(set(marks))
    assert all(0 <= axis.share(value) <= 1 for value in marks)


def test_what_no_logarithm_has_does_not_move_the_axis() -> None:
    assert axis_over([0.0, -1.0, None, math.nan, 0.02, 3.0], log=True) == axis_over([0.02, 3.0], log=True)


def test_a_share_is_even_by_value_or_by_ratio() -> None:
    assert Axis(0, 10).share(5) == pytest.approx(0.5)
    assert Axis(1, 100, log=True).share(10) == pytest.approx(0.5)
    assert (Axis(1, 100).share(-5), Axis(1, 100).share(500)) == (0, 1)


@given(st.floats(5, 1e6))
def test_marks_of_time_are_few_and_round(length: float) -> None:
    marks = time_marks(time_axis([0.0, length]))
    assert 1 <= len(marks) <= 13
    assert all(value == round(value) for value, _ in marks)


def test_a_time_shorter_than_seconds_is_marked_in_parts_of_one() -> None:
    assert [text for _, text in time_marks(time_axis([0.0, 0.5]), 6)] == [
        "0 s",
        "100 ms",
        "200 ms",
        "300 ms",
        "400 ms",
        "500 ms",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (90, "1:30 min"), (300, "5 min"), (7200, "2 h"), (9000, "2:30 h")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.02, "s", "20 ms"),
        (2.0, "s", "2 s"),
        (0.00025, "s", "250 us"),
        (1500.0, "ms", "1.5 s"),
        (12_000.0, "calls/s", "12k calls/s"),
        (0.5, "", "0.5"),
    ],
)
def test_labels(value: float, unit: str, text: str) -> None:
    assert label(value, unit) == text


def strokes(series: Series) -> list[list[str]]:
    found = ElementTree.fromstring(svg(line_chart(series))).iter("{http://www.w3.org/2000/svg}polyline")
    return [stroke.attrib["points"].split() for stroke in found]


def test_a_gap_parts_a_line_and_a_value_alone_is_a_dot() -> None:
    series = Series("t", "s", [0.0, 1.0, 2.0, 3.0, 4.0], [Line("a", [1.0, 2.0, None, 3.0, None])])
    assert [len(stroke) for stroke in strokes(series)] == [2]
    assert svg(line_chart(series)).count("<circle") == 3


def test_of_many_points_no_peak_vanishes() -> None:
    values = [1.0] * (MOST_POINTS * 5)
    values[4321] = 9.0
    series = Series("t", "s", [float(n) for n in range(len(values))], [Line("a", values)])
    (stroke,) = strokes(series)
    heights = {float(point.partition(",")[2]) for point in stroke}
    assert len(stroke) <= MOST_POINTS
    assert len(heights) == 2
