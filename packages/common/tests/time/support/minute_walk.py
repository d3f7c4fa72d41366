"""The oracle of cron in zones: a naive walk over UTC minutes, and what it is compared by.

The walk knows nothing of segments: at each minute it looks at the wall clock and applies the documented
rule word by word.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tocsin.common.models import DstFold, DstGap
from tocsin.common.time.zoned_cron import ZonedCron, zoned_cron
from tocsin.common.time.zones import zone

HOUR, DAY = 3_600, 86_400
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Spec:
    """An expression by its values; `fixed` says how its text begins."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    weekdays: frozenset[int]
    fixed: bool

    def holds(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and wall.isoweekday() % 7 in self.weekdays


Rules = tuple[DstGap, DstFold]
DEFAULT: Rules = (DstGap.SHIFT, DstFold.FIRST)
EVERY_DAY = frozenset(range(7))
HALF_PAST_TWO = Spec("30 2 * * *", frozenset({30}), frozenset({2}), EVERY_DAY, fixed=True)
HALF_HOURS = Spec("0,30 0-23 * * *", frozenset({0, 30}), frozenset(range(24)), EVERY_DAY, fixed=True)
ALL_MINUTES = Spec("0-59 0-23 * * *", frozenset(range(60)), frozenset(range(24)), EVERY_DAY, fixed=True)
FIVE_MINUTES = Spec("*/5 * * * *", frozenset(range(0, 60, 5)), frozenset(range(24)), EVERY_DAY, fixed=False)


def wall_at(tz: ZoneInfo, instant: int) -> datetime:
    return datetime.fromtimestamp(instant, tz)


def is_first_pass(wall: datetime) -> bool:
    return wall.fold == 0 and wall.utcoffset() != wall.replace(fold=1).utcoffset()


def walk(spec: Spec, tz: ZoneInfo, first: int, last: int, rules: Rules) -> list[int]:
    """The slots in [first, last], whole minutes, by looking at each of them."""
    gap, fold = rules
    found = []
    before = wall_at(tz, first - 60).replace(tzinfo=None)
    for instant in range(first, last + 1, 60):
        wall = wall_at(tz, instant)
        naive = wall.replace(tzinfo=None)
        runs = spec.holds(naive)
        if spec.fixed:
            if fold is DstFold.FIRST and wall.fold == 1:
                runs = False
            if fold is DstFold.LAST and is_first_pass(wall):
                runs = False
            missing = before + MINUTE
            while gap is DstGap.SHIFT and missing < naive and not runs:
                runs = spec.holds(missing)
                missing += MINUTE
        if runs:
            found.append(instant)
        before = naive
    return found


Next = Callable[[int], int | None]


def assert_forward(expected: list[int], first: int, last: int, next_from: Next) -> None:
    """From each instant asked, the first slot is the first of `expected`."""
    at = first
    for slot in expected:
        found = next_from(at)
        assert found == slot
        at = slot + 1
    beyond = next_from(at)
    assert beyond is None or beyond > last
    for asked in range(first, last, 1_740):
        index = bisect_left(expected, asked)
        if index < len(expected):
            assert next_from(asked) == expected[index]


def assert_backward(expected: list[int], first: int, last: int, cron: ZonedCron) -> None:
    for asked in range(first, last, 1_740):
        index = bisect_right(expected, asked)
        assert cron.at_or_before(asked, first) == (expected[index - 1] if index else None)
    at = last
    for slot in reversed(expected):
        assert cron.at_or_before(at, first) == slot
        at = slot - 1
    assert cron.at_or_before(at, first) is None


def assert_as_walked(spec: Spec, name: str, first: int, last: int, rules: Rules) -> None:
    expected = walk(spec, zone(name), first, last, rules)
    cron = zoned_cron(spec.text, name, *rules)
    assert_forward(expected, first, last, cron.walk_on)
    assert_backward(expected, first, last, cron)
    assert cron.count(first, last) == len(expected)
    middle = (first + last) // 2 + 17
    assert cron.count(first, middle) == bisect_right(expected, middle)
    assert cron.count(middle + 1, last) == len(expected) - bisect_right(expected, middle)


def changes(tz: ZoneInfo, first: int, last: int) -> Iterator[int]:
    """The instants at which the offset changes: each day, then each minute of a day that differs."""
    for day in range(first, last, DAY):
        if wall_at(tz, day).utcoffset() == wall_at(tz, day + DAY).utcoffset():
            continue
        for minute in range(day, day + DAY, 60):
            if wall_at(tz, minute).utcoffset() != wall_at(tz, minute + 60).utcoffset():
                yield minute + 60


def utc(*at: int) -> int:
    return int(datetime(*at, tzinfo=UTC).timestamp())  # type: ignore[misc, arg-type]
