"""Crash points: every one in the code is named, every name is in the code, and none does anything by itself."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tocsin.common import crashpoints
from tocsin.common.crashpoints import POINTS, reach, set_handler

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def without_handler() -> Iterator[None]:
    yield
    set_handler(None)


def reached_in_the_code() -> set[str]:
    found: set[str] = set()
    for folder in ("packages", "apps"):
        for path in (ROOT / folder).glob("*/src/**/*.py"):
            found |= set(re.findall(r'\breach\("([^"]+)"\)', path.read_text()))
    return found


def test_the_points_are_those_in_the_code() -> None:
    assert reached_in_the_code() == POINTS


def test_each_comes_before_and_after_something() -> None:
    assert {point.rpartition(".")[2] for point in POINTS} == {"before", "after"}
    assert {point.rpartition(".")[0] + ".after" for point in POINTS} <= POINTS


def test_in_production_nothing_happens() -> None:
    assert crashpoints._handler is None
    for point in POINTS:
        reach(point)


def test_a_handler_hears_of_a_point_and_may_not_return() -> None:
    heard: list[str] = []

    def crash(point: str) -> None:
        heard.append(point)
        raise KeyboardInterrupt

    set_handler(crash)
    with pytest.raises(KeyboardInterrupt):
        reach("begin.before")
    set_handler(None)
    reach("begin.after")
    assert heard == ["begin.before"]
