"""Crash points: every one in the code is named, every name is in the code, and none does anything by itself."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tocsin.common import crashpoints
from tocsin.common.crashpoints import POINTS, reach, set_handler

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def without_handler() -> Iterator[None]:
    yield
    set_handler(None)


MEMORY = "store/memory"
"""Counted apart: the store in memory has the points of the other one."""


def reached_in_the_code() -> Counter[str]:
    """How often each point is named outside the store in memory."""
    found: Counter[str] = Counter()
    for folder in ("packages", "apps"):
        for path in (ROOT / folder).glob("*/src/**/*.py"):
            if MEMORY not in path.as_posix():
                found.update(re.findall(r'\breach\("([^"]+)"\)', path.read_text()))
    return found


def check_each_is_in_the_code_once(points: Collection[str], code: Counter[str]) -> None:
    assert code == Counter(points)


def test_the_points_are_those_in_the_code_each_once() -> None:
    check_each_is_in_the_code_once(POINTS, reached_in_the_code())


@pytest.mark.parametrize(
    ("points", "more"),
    [(POINTS | {"nowhere.before"}, []), (POINTS - {"judge.after"}, []), (POINTS, ["begin.before"])],
    ids=["named alone", "in the code alone", "twice"],
)
def test_the_check_catches_a_point(points: Collection[str], more: list[str]) -> None:
    with pytest.raises(AssertionError):
        check_each_is_in_the_code_once(points, reached_in_the_code() + Counter(more))


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
