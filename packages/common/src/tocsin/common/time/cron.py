"""Cron texts: what is accepted, what it means, and its matches in naive local time.

The parser and the expansion are our own: a set of integers per field and a walk over months are
smaller and an order of magnitude faster than what croniter's differing rules would take to correct
(seconds last, `LW` and `5L` refused, `R` drawn anew at each parse, never-firing texts accepted).
croniter and cronsim serve as second opinions in the tests.

Grammar, letter case ignored, blanks and tabs alike:

- five fields (minute, hour, day of month, month, day of week), or six with **seconds first**;
- in a field: `*`, numbers, three-letter names (month and day of week; Sunday is 0 and 7), ranges, steps
  on `*` or on a range (`*/5`, `10-40/10`), and lists of these; a range whose end lies before its start
  wraps around (`22-2`, `fri-mon`, and `22-2/2` is 22, 0, 2);
- day of month: `L` (last day), `L-n` (n days before it), `nW` (the working day nearest to day n within
  the month), `LW` (last working day);
- day of week: `d#n` (the n-th of the month), `dL` (the last of the month);
- `@hourly @daily @midnight @weekly @monthly @yearly @annually`.

Day of month and day of week are joined by OR, unless one of them begins with `*`: then both must match
(Vixie and Debian cron, crontab(5)).
"""

import re
from bisect import bisect_left, bisect_right
from calendar import isleap
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from tocsin.common.time.cron_fields import HOUR, MINUTE, MONTH, SECOND, Days, days, numbers
from tocsin.common.time.zones import DAY, EPOCH_ORDINAL

MAX_TEXT = 256

_SEARCH_MONTHS = 41 * 12
"""No match lies further off: 29 February on a given weekday can stay away for 40 years, around 2100."""

_MACROS = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
}
_BLANKS = " \t\r\n"


@dataclass(frozen=True, slots=True, eq=False)
class CronExpression:
    """A parsed cron text and its matches in naive local time.

    Local times are seconds since 1970-01-01T00:00:00 on a wall clock without gaps or folds; those given
    lie in the years 1900 to 2300. `text` is normalised: single blanks, names in capitals, macros small.
    `fixed_time`: neither the minute nor the hour field begins with `*`, so that it names times of the
    day and not a cadence (the rule of Vixie and Debian cron).
    """

    text: str
    has_seconds: bool
    fixed_time: bool
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    days: Days
    _known: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, repr=False)

    def at_or_after(self, local: int) -> int | None:
        """The first match not before `local`; None if 41 years have none."""
        day, second = divmod(local, DAY)
        if self._matches_day(day) and (time := self._time_at_or_after(second)) is not None:
            return day * DAY + time
        found = self._day_after(day)
        return None if found is None else found * DAY + self._time(0, 0, 0)

    def at_or_before(self, local: int) -> int | None:
        """The last match not after `local`; None if 41 years have none."""
        day, second = divmod(local, DAY)
        if self._matches_day(day) and (time := self._time_at_or_before(second)) is not None:
            return day * DAY + time
        found = self._day_before(day)
        return None if found is None else found * DAY + self._time(-1, -1, -1)

    def matches(self, local: int) -> bool:
        return self.at_or_after(local) == local

    def count(self, start: int, stop: int) -> int:
        """How many matches lie in [start, stop): arithmetic over months, not over matches."""
        if stop <= start:
            return 0
        (first, start_second), (last, stop_second) = divmod(start, DAY), divmod(stop, DAY)
        total = self._count_days(first, last) * len(self.hours) * len(self.minutes) * len(self.seconds)
        if self._matches_day(first):
            total -= self._times_before(start_second)
        if self._matches_day(last):
            total += self._times_before(stop_second)
        return total

    def days_of(self, year: int, month: int) -> tuple[int, ...]:
        """The matching days of a month, rising. Only the month's first weekday and length decide."""
        if month not in self.months:
            return ()
        key = date(year, month, 1).toordinal() % 7, _length(year, month)
        days = self._known.get(key)
        if days is None:
            days = self._known[key] = self.days.of_month(*key)
        return days

    def can_match(self) -> bool:
        lengths = {length for month in self.months for length in {_length(2023, month), _length(2024, month)}}
        return any(self.days.of_month(first, length) for length in lengths for first in range(7))

    def _matches_day(self, day: int) -> bool:
        on = date.fromordinal(EPOCH_ORDINAL + day)
        return on.day in self.days_of(on.year, on.month)

    def _day_after(self, day: int) -> int | None:
        after = date.fromordinal(EPOCH_ORDINAL + day)
        year, month, least = after.year, after.month, after.day + 1
        for _ in range(_SEARCH_MONTHS):
            days = self.days_of(year, month)
            index = bisect_left(days, least)
            if index < len(days):
                return date(year, month, days[index]).toordinal() - EPOCH_ORDINAL
            year, month, least = (year + 1, 1, 1) if month == 12 else (year, month + 1, 1)
        return None

    def _day_before(self, day: int) -> int | None:
        before = date.fromordinal(EPOCH_ORDINAL + day)
        year, month, most = before.year, before.month, before.day - 1
        for _ in range(_SEARCH_MONTHS):
            days = self.days_of(year, month)
            index = bisect_right(days, most)
            if index > 0:
                return date(year, month, days[index - 1]).toordinal() - EPOCH_ORDINAL
            year, month, most = (year - 1, 12, 31) if month == 1 else (year, month - 1, 31)
        return None

    def _count_days(self, first: int, last: int) -> int:
        """Matching days in [first, last)."""
        start, stop = (date.fromordinal(EPOCH_ORDINAL + day) for day in (first, last))
        months = range(start.year * 12 + start.month - 1, stop.year * 12 + stop.month - 1)
        whole = sum(len(self.days_of(month // 12, month % 12 + 1)) for month in months)
        skipped = bisect_left(self.days_of(start.year, start.month), start.day)
        return whole - skipped + bisect_left(self.days_of(stop.year, stop.month), stop.day)

    def _time(self, hour: int, minute: int, second: int) -> int:
        """The second of the day at these places in the three fields."""
        return self.hours[hour] * 3600 + self.minutes[minute] * 60 + self.seconds[second]

    def _time_at_or_after(self, second_of_day: int) -> int | None:
        hour, minute, second = _clock(second_of_day)
        h = bisect_left(self.hours, hour)
        if h == len(self.hours):
            return None
        if self.hours[h] > hour:
            return self._time(h, 0, 0)
        m = bisect_left(self.minutes, minute)
        if m < len(self.minutes) and self.minutes[m] == minute:
            s = bisect_left(self.seconds, second)
            if s < len(self.seconds):
                return self._time(h, m, s)
            m += 1
        if m < len(self.minutes):
            return self._time(h, m, 0)
        return self._time(h + 1, 0, 0) if h + 1 < len(self.hours) else None

    def _time_at_or_before(self, second_of_day: int) -> int | None:
        hour, minute, second = _clock(second_of_day)
        h = bisect_right(self.hours, hour) - 1
        if h < 0:
            return None
        if self.hours[h] < hour:
            return self._time(h, -1, -1)
        m = bisect_right(self.minutes, minute) - 1
        if m >= 0 and self.minutes[m] == minute:
            s = bisect_right(self.seconds, second) - 1
            if s >= 0:
                return self._time(h, m, s)
            m -= 1
        if m >= 0:
            return self._time(h, m, -1)
        return self._time(h - 1, -1, -1) if h > 0 else None

    def _times_before(self, second_of_day: int) -> int:
        """How many of a day's matching times lie before this one."""
        hour, minute, second = _clock(second_of_day)
        h = bisect_left(self.hours, hour)
        count = h * len(self.minutes) * len(self.seconds)
        if h < len(self.hours) and self.hours[h] == hour:
            m = bisect_left(self.minutes, minute)
            count += m * len(self.seconds)
            if m < len(self.minutes) and self.minutes[m] == minute:
                count += bisect_left(self.seconds, second)
        return count


def check_cron(text: str) -> str:
    """The normalised text.

    Raises:
        ValueError: the text is refused; one sentence says which rule it breaks.
    """
    return parse(text).text


@lru_cache(maxsize=4_096)
def parse(text: str) -> CronExpression:
    """The expression of a cron text, by the grammar at the head of this module.

    Raises:
        ValueError: the text is refused; one sentence says which rule it breaks.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"must have at most {MAX_TEXT} characters")
    if not text.isascii():
        raise ValueError("must be ASCII: plain digits, letters and blanks")
    if "=" in text:
        raise ValueError("takes no variables; the time zone has a field of its own")
    words = re.split(f"[{_BLANKS}]+", text.strip(_BLANKS).upper())
    if words[0].startswith("@"):
        macro = words[0] if len(words) == 1 else ""
        if macro not in _MACROS:
            raise ValueError(f"of macros only {', '.join(_MACROS).lower()} are known")
        return _expression(macro.lower(), _MACROS[macro].split())
    if len(words) not in (5, 6):
        raise ValueError("must have five fields, or six with seconds first")
    return _expression(" ".join(words), words)


def _expression(text: str, words: list[str]) -> CronExpression:
    has_seconds = len(words) == 6
    second, minute, hour, day, month, weekday = words if has_seconds else ["0", *words]
    expression = CronExpression(
        text=text,
        has_seconds=has_seconds,
        fixed_time=not minute.startswith("*") and not hour.startswith("*"),
        seconds=numbers(SECOND, second),
        minutes=numbers(MINUTE, minute),
        hours=numbers(HOUR, hour),
        months=frozenset(numbers(MONTH, month)),
        days=days(day, weekday),
    )
    if not expression.can_match():
        raise ValueError("must name a day that some month has")
    return expression


def _length(year: int, month: int) -> int:
    return 28 + isleap(year) if month == 2 else 30 + (month + (month > 7)) % 2


def _clock(second_of_day: int) -> tuple[int, int, int]:
    minutes, second = divmod(second_of_day, 60)
    return *divmod(minutes, 60), second
