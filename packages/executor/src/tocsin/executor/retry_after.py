"""`Retry-After` (RFC 9110, section 10.2.3), and HTTP dates in their three forms (section 5.6.7)."""

import re
from datetime import UTC, datetime
from typing import Final

MAX_RETRY_AFTER_SECONDS: Final = 86_400.0
"""An endpoint may ask for no more than a day; more is taken as a day."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SECONDS = re.compile(r"[0-9]+")
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DAY_NAME = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_DATES = (
    re.compile(  # Sun, 06 Nov 1994 08:49:37 GMT; `-0000` and the like are seen in the wild
        rf"{_DAY_NAME}, (?P<day>[0-9]{{2}}) (?P<month>[A-Z][a-z]{{2}}) (?P<year>[0-9]{{4}}) {_TIME}"
        r" (?:GMT|UTC|[+-]0000)"
    ),
    re.compile(  # Sunday, 06-Nov-94 08:49:37 GMT
        rf"[A-Z][a-z]+day, (?P<day>[0-9]{{2}})-(?P<month>[A-Z][a-z]{{2}})-(?P<year>[0-9]{{2}}) {_TIME} GMT"
    ),
    re.compile(  # Sun Nov  6 08:49:37 1994
        rf"{_DAY_NAME} (?P<month>[A-Z][a-z]{{2}}) (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})"
    ),
)


def retry_after(values: list[str], now: datetime) -> float | None:
    """The seconds asked for, above 0 and at most `MAX_RETRY_AFTER_SECONDS`.

    None where nothing usable is asked: no value, several, a malformed or negative one, zero, or a
    date already past. Then the task's own back-off applies.
    """
    if len(values) != 1:
        return None
    text = values[0]
    if _SECONDS.fullmatch(text):
        digits = text.lstrip("0")
        # Longer than any number below the cap; int() itself refuses thousands of digits.
        seconds = float(digits or 0) if len(digits) <= 6 else MAX_RETRY_AFTER_SECONDS
    else:
        date = http_date(text, now)
        if date is None:
            return None
        seconds = (date - now).total_seconds()
    return min(seconds, MAX_RETRY_AFTER_SECONDS) if seconds > 0 else None


def http_date(text: str, now: datetime) -> datetime | None:
    """An HTTP date in UTC; None if `text` is none. Two digits of a year are read around `now`."""
    for form in _DATES:
        match = form.fullmatch(text)
        if match is not None:
            return _instant(match, now)
    return None


def _instant(match: re.Match[str], now: datetime) -> datetime | None:
    month = match["month"].lower()
    if month not in _MONTHS:
        return None
    year = int(match["year"])
    if len(match["year"]) == 2:
        year += now.year - now.year % 100
        if year > now.year + 50:  # RFC 9110: a year more than 50 ahead is the last one past with these digits
            year -= 100
    second = min(int(match["second"]), 59)  # 60 is a leap second
    try:
        return datetime(
            year,
            _MONTHS.index(month) + 1,
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            second,
            tzinfo=UTC,
        )
    except ValueError:
        return None
