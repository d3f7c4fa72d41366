"""IANA time zones from the PyPI `tzdata` package, whatever the system has, and the offsets that hold in them.

Instants are Unix seconds. A *local time* is what the zone's wall clock shows, as seconds since
1970-01-01T00:00:00 on that clock; around a gap or a fold (PEP 495) it has no instant, or two.
"""

from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]

DAY = 86_400
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

_STRIDE = 2 * DAY
"""Offsets are compared this far apart. Since 1970 no zone changed its offset twice within six days."""


@cache
def zone_names() -> frozenset[str]:
    """Every zone name of the installed release, links included."""
    return frozenset((resources.files("tzdata") / "zones").read_text(encoding="ascii").split())


def check_zone(name: str) -> str:
    """The name itself, if it is one of the release's names, letter case included.

    Raises:
        ValueError: it is not; the text is one sentence for the person who gave it.
    """
    if name not in zone_names():
        raise ValueError("must be an IANA time zone name such as Europe/Berlin or UTC, letter case included")
    return name


@cache  # bounded by the number of names
def zone(name: str) -> ZoneInfo:
    """The zone, read from the `tzdata` package. It cannot be pickled; hand on its name.

    Raises:
        ValueError: the name is not one of the release's.
    """
    path = resources.files("tzdata").joinpath("zoneinfo", *check_zone(name).split("/"))
    with path.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def zone_data_version() -> str:
    """The release of the zone data in use, as IANA names it: `2026a`."""
    return str(tzdata.IANA_VERSION)


class Segment(NamedTuple):
    """Instants in [start, end), over which a zone's offset (seconds east of UTC) does not change.

    `gap_from`: the first local time of the gap that ends at `start`; `start + offset` where there is none.
    `new_from`: local times below it are second passes: they were shown before `start` already.
    `again_from`: local times from it on are first passes: they are shown again after `end`.
    """

    start: int
    end: int
    offset: int
    gap_from: int
    new_from: int
    again_from: int

    @property
    def local_start(self) -> int:
        return self.start + self.offset

    @property
    def local_end(self) -> int:
        return self.end + self.offset


def segment_at(name: str, instant: int) -> Segment:
    """The segment that holds an instant of the years 1970 to 2200. Each UTC new year cuts a segment too."""
    year = date.fromordinal(EPOCH_ORDINAL + instant // DAY).year
    return next(segment for segment in _segments_of_year(name, year) if instant < segment.end)


@lru_cache(maxsize=8_192)
def _segments_of_year(name: str, year: int) -> tuple[Segment, ...]:
    first, last = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) for y in (year, year + 1))
    changes = _changes(zone(name), first - _STRIDE, last + _STRIDE)
    cuts = [first, *(at for at, _, _ in changes if first < at < last), last]
    return tuple(_segment(start, end, _offset(zone(name), start), changes) for start, end in pairwise(cuts))


def _segment(start: int, end: int, offset: int, changes: list[tuple[int, int, int]]) -> Segment:
    local_start = start + offset
    gap_from = min((at + before for at, before, _ in changes if at == start), default=local_start)
    new_from = max((at + before for at, before, _ in changes if at <= start), default=local_start)
    again_from = min((at + after for at, _, after in changes if at >= end), default=end + offset)
    return Segment(
        start,
        end,
        offset,
        min(gap_from, local_start),
        max(new_from, local_start),
        min(again_from, end + offset),
    )


def _changes(tz: ZoneInfo, first: int, last: int) -> list[tuple[int, int, int]]:
    """(instant, offset before it, offset from it on) for each change of offset in (first, last]."""
    changes = []
    low, before = first, _offset(tz, first)
    while low < last:
        high = min(low + _STRIDE, last)
        after = _offset(tz, high)
        if after != before:
            changes.append((_first_with(tz, after, low, high), before, after))
        low, before = high, after
    return changes


def _first_with(tz: ZoneInfo, offset: int, low: int, high: int) -> int:
    """The first instant in (low, high] with this offset, where `high` has it and `low` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(tz, middle) == offset:
            high = middle
        else:
            low = middle
    return high


def _offset(tz: ZoneInfo, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, tz).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)
