"""The fields of a cron text: which values each one names. The grammar stands at the head of `cron`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_ITEMS = 60
"""Items of one field's list: every minute of an hour can be named."""

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_VALUE = "[0-9]{1,2}|[A-Z]{3}"
_STEP = "[0-9]{1,3}"
_ITEM = re.compile(rf"(?:(\*)|({_VALUE})(?:-({_VALUE}))?)(?:/({_STEP}))?")
_DAY_SPECIAL = re.compile(r"(LW)|L(?:-([0-9]{1,2}))?|([0-9]{1,2})W")
_WEEKDAY_SPECIAL = re.compile(rf"({_VALUE})(?:(L)|#([0-9]))")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of numbers from `low` to `high`; `names` are those of its values, from `low` on."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.high - self.low + 1


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY_OF_MONTH = Field("day of month", 1, 31)
MONTH = Field("month", 1, 12, _MONTHS)
DAY_OF_WEEK = Field("day of week", 0, 6, _WEEKDAYS)


@dataclass(frozen=True, slots=True)
class DaysOfMonth:
    """Days by number, days before the end (`L` is 0), working days nearest to a day, the last working day."""

    numbers: frozenset[int]
    before_end: frozenset[int]
    nearest: frozenset[int]
    last_working: bool

    def of_month(self, first_weekday: int, length: int) -> set[int]:
        days = {day for day in self.numbers if day <= length}
        days |= {length - n for n in self.before_end if n < length}
        days |= {_nearest_working(day, first_weekday, length) for day in self.nearest if day <= length}
        if self.last_working:
            days.add(_nearest_working(length, first_weekday, length))
        return days


@dataclass(frozen=True, slots=True)
class DaysOfWeek:
    """Weekdays (Sunday is 0): each time they come, the n-th of a month as (weekday, n), the last one."""

    every: frozenset[int]
    nth: frozenset[tuple[int, int]]
    last: frozenset[int]

    def of_month(self, first_weekday: int, length: int) -> set[int]:
        dates = {(first_weekday + day - 1) % 7: range(day, length + 1, 7) for day in range(1, 8)}
        days = {day for weekday in self.every for day in dates[weekday]}
        days |= {dates[weekday][n - 1] for weekday, n in self.nth if n <= len(dates[weekday])}
        days |= {dates[weekday][-1] for weekday in self.last}
        return days


@dataclass(frozen=True, slots=True)
class Days:
    """The two day fields together: joined by OR where `either`, else both must match."""

    by_day: DaysOfMonth
    by_weekday: DaysOfWeek
    either: bool

    def of_month(self, first_weekday: int, length: int) -> tuple[int, ...]:
        """The matching days of a month of `length` days whose first is a `first_weekday` (Sunday is 0)."""
        by_day = self.by_day.of_month(first_weekday, length)
        by_weekday = self.by_weekday.of_month(first_weekday, length)
        return tuple(sorted(by_day | by_weekday if self.either else by_day & by_weekday))


def _nearest_working(day: int, first_weekday: int, length: int) -> int:
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def numbers(kind: Field, word: str) -> tuple[int, ...]:
    """The values that a field's text names, rising.

    Raises:
        ValueError: the text is refused; one sentence says which rule it breaks.
    """
    return tuple(sorted({value for item in _items(kind, word) for value in _values(kind, item)}))


def _items(kind: Field, word: str) -> Iterator[str]:
    items = word.split(",")
    if len(items) > MAX_ITEMS:
        raise ValueError(f"{kind.name}: a list has at most {MAX_ITEMS} items")
    return iter(items)


def days(day: str, weekday: str) -> Days:
    """The rule that the two day fields make together.

    Raises:
        ValueError: one of them is refused; one sentence says which rule it breaks.
    """
    either = not day.startswith("*") and not weekday.startswith("*")
    return Days(_days_of_month(day), _days_of_week(weekday), either)


def _days_of_month(word: str) -> DaysOfMonth:
    plain: set[int] = set()
    before_end: set[int] = set()
    nearest: set[int] = set()
    last_working = False
    for item in _items(DAY_OF_MONTH, word):
        match = _DAY_SPECIAL.fullmatch(item)
        if match is None:
            plain.update(_values(DAY_OF_MONTH, item))
        elif match[1]:
            last_working = True
        elif match[3]:
            nearest.add(_value(DAY_OF_MONTH, match[3]))
        else:
            before_end.add(_bounded(int(match[2]), 30, "day of month: L-") if match[2] else 0)
    return DaysOfMonth(frozenset(plain), frozenset(before_end), frozenset(nearest), last_working)


def _days_of_week(word: str) -> DaysOfWeek:
    every: set[int] = set()
    nth: set[tuple[int, int]] = set()
    last: set[int] = set()
    for item in _items(DAY_OF_WEEK, word):
        match = _WEEKDAY_SPECIAL.fullmatch(item)
        if match is None:
            every.update(_values(DAY_OF_WEEK, item))
        elif match[2]:
            last.add(_value(DAY_OF_WEEK, match[1]) % 7)
        else:
            nth.add((_value(DAY_OF_WEEK, match[1]) % 7, _bounded(int(match[3]), 5, "day of week: #")))
    return DaysOfWeek(frozenset(every), frozenset(nth), frozenset(last))


def _bounded(number: int, most: int, what: str) -> int:
    if not 1 <= number <= most:
        raise ValueError(f"{what} takes a number from 1 to {most}")
    return number


def _values(kind: Field, item: str) -> list[int]:
    """The values of one item of a list: `*`, a number or name, or a range, perhaps with a step."""
    match = _ITEM.fullmatch(item)
    if match is None:
        raise ValueError(_allowed(kind))
    star, first, last, step = match.groups()
    if star:
        values = list(range(kind.low, kind.high + 1))
    elif last is None:
        if step is not None:
            raise ValueError(f"{kind.name}: a step follows * or a range, not a single value")
        values = [_value(kind, first)]
    else:
        values = _range(kind, _value(kind, first), _value(kind, last))
    if kind is DAY_OF_WEEK:
        values = [value % 7 for value in values]
    return values[:: _step(kind, step)]


def _range(kind: Field, first: int, last: int) -> list[int]:
    """From first to last, through the field's end and on from its start where last lies before first."""
    if first <= last:
        return list(range(first, last + 1))
    return [*range(first, kind.high + 1), *range(kind.low, last + 1)]


def _step(kind: Field, text: str | None) -> int:
    if text is None:
        return 1
    return _bounded(int(text), kind.size, f"{kind.name}: a step")


def _value(kind: Field, text: str) -> int:
    if text in kind.names:
        return kind.low + kind.names.index(text)
    high = 7 if kind is DAY_OF_WEEK else kind.high
    if text.isdigit() and kind.low <= int(text) <= high:
        return int(text)
    raise ValueError(_allowed(kind))


def _allowed(kind: Field) -> str:
    names = f", names {kind.names[0]} to {kind.names[-1]}" if kind.names else ""
    special = {DAY_OF_MONTH: ", L, L-n, nW, LW", DAY_OF_WEEK: ", dL, d#n"}.get(kind, "")
    high = 7 if kind is DAY_OF_WEEK else kind.high
    return f"{kind.name}: takes numbers {kind.low} to {high}{names}, *, ranges, steps, lists{special}"
