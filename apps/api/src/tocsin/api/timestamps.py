"""Timestamps of RFC 3339, and nothing else.

`T` and `Z` may be small letters, `-00:00` means UTC (both as the RFC has it). Refused: leap seconds,
24:00, a missing offset, a blank instead of `T`, and more than six digits of a fraction of a second.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from tocsin.common.clock import PARKED

RULE: Final = "must be an RFC 3339 timestamp with an offset, such as 2026-03-01T09:00:00Z"

_FORM = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[Tt]"
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<offset_hours>[0-9]{2}):(?P<offset_minutes>[0-9]{2}))"
)


def parse_timestamp(text: object) -> datetime:
    """The instant, in UTC.

    Raises:
        ValueError: one sentence with the rule that is broken.
    """
    form = _FORM.fullmatch(text) if isinstance(text, str) else None
    if form is None:
        raise ValueError(RULE)
    if form["second"] == "60":
        raise ValueError("must not be a leap second: computers' clocks do not show them")
    fraction = form["fraction"] or ""
    if len(fraction) > 6:
        raise ValueError("must have at most six digits of a fraction of a second")
    year, month, day, hour, minute, second = (
        int(form[name]) for name in ("year", "month", "day", "hour", "minute", "second")
    )
    microsecond = int(fraction.ljust(6, "0"))
    try:
        local = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=_offset(form))
        return local.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{RULE}; this one does not exist") from None


def _offset(form: re.Match[str]) -> timezone:
    if form["sign"] is None:
        return UTC
    hours, minutes = int(form["offset_hours"]), int(form["offset_minutes"])
    if hours > 23 or minutes > 59:
        raise ValueError
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if form["sign"] == "-" else offset)


def format_timestamp(instant: datetime | None) -> str | None:
    """RFC 3339 in UTC with `Z`, fractions only where there are any; None for no instant, and for never."""
    if instant is None or instant == PARKED:
        return None
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
