"""A cron expression in a time zone: its matches in naive local time become instants here, by the DST rule.

The rule is that of Vixie and Debian cron (cron(8), "daylight saving"), made explicit:

- a **fixed-time** expression runs once for each local time that it names. A time in a gap runs at the
  first instant after the gap (`dst_gap: shift`) or not at all (`skip`); several of one gap, or one that
  the clock shows at that instant anyway, are one slot. A time in a fold runs on the first pass, on the
  last, or on both (`dst_fold`);
- any other expression (minute or hour begins with `*`) keeps its cadence in elapsed time: it matches
  whatever the clock shows at each instant, so nothing runs for a gap and both passes of a fold run.

The walk goes over stretches of constant offset, not over slots, and jumps over those that no match can
lie in. Instants are Unix seconds of the years 1970 to 2199.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from tocsin.common.models import LATEST, DstFold, DstGap
from tocsin.common.time.cron import CronExpression, parse
from tocsin.common.time.zones import DAY, Segment, check_zone, segment_at

_STOP = int(LATEST.timestamp())


class Effect(StrEnum):
    """What a change of the zone's offset does to one local time."""

    GAP_SHIFTED = "gap_shifted"
    GAP_SKIPPED = "gap_skipped"
    FOLD_FIRST = "fold_first"
    FOLD_LAST = "fold_last"


@dataclass(frozen=True, slots=True, eq=False)
class ZonedCron:
    """The slots of an expression in a zone. Compared by identity: take it from `zoned_cron`."""

    expression: CronExpression
    zone: str
    gap: DstGap
    fold: DstFold

    def at_or_after(self, instant: int, last: int) -> int | None:
        """The first slot in [instant, last]."""
        found = _first_from(self, instant)
        return found if found is not None and found <= last else None

    def at_or_before(self, instant: int, first: int) -> int | None:
        """The last slot in [first, instant]."""
        found = _last_until(self, instant)
        return found if found is not None and found >= first else None

    def walk_on(self, instant: int) -> int | None:
        """The first slot from `instant` on, found anew."""
        while instant < _STOP:
            segment = segment_at(self.zone, instant)
            if instant == segment.start and self._runs_after_gap(segment):
                return instant
            first, stop = self._window(segment)
            local = self.expression.at_or_after(max(instant + segment.offset, first))
            if local is not None and local < stop:
                return local - segment.offset
            # Later segments show no local time before `again_from`, and no offset is a whole day.
            local = self.expression.at_or_after(segment.again_from)
            if local is None:
                return None
            instant = max(segment.end, local - DAY)
        return None

    def walk_back(self, instant: int) -> int | None:
        """The last slot until `instant`, found anew."""
        while instant >= 0:
            segment = segment_at(self.zone, instant)
            start, stop = self._window(segment)
            local = self.expression.at_or_before(min(instant + segment.offset, stop - 1))
            if local is not None and local >= start:
                return local - segment.offset
            if self._runs_after_gap(segment):
                return segment.start
            # Earlier segments show no local time from `new_from` on.
            local = self.expression.at_or_before(segment.new_from - 1)
            if local is None:
                return None
            instant = min(segment.start - 1, local + DAY)
        return None

    def count(self, first: int, last: int) -> int:
        """How many slots lie in [first, last], by arithmetic over segments and months."""
        total = 0
        for segment in self._segments(first, last):
            start, stop = self._window(segment)
            start = max(start, first + segment.offset)
            total += self.expression.count(start, min(stop, last + 1 + segment.offset))
            if segment.start >= first and self._runs_after_gap(segment):
                total += not self.expression.matches(segment.local_start)
        return total

    def missing(self, instant: int) -> int | None:
        """The first local time of this fixed-time expression in the gap that ends at `instant`, if any."""
        segment = segment_at(self.zone, instant)
        if not self.expression.fixed_time or instant != segment.start:
            return None
        local = self.expression.at_or_after(segment.gap_from)
        return local if local is not None and local < segment.local_start else None

    def effect(self, instant: int) -> Effect | None:
        """What the zone did to the slot at `instant`."""
        segment = segment_at(self.zone, instant)
        if instant == segment.start and self._runs_after_gap(segment):
            return Effect.GAP_SHIFTED
        local = instant + segment.offset
        if local >= segment.again_from:
            return Effect.FOLD_FIRST
        return Effect.FOLD_LAST if local < segment.new_from else None

    def _window(self, segment: Segment) -> tuple[int, int]:
        """[start, stop): the local times of this segment that count as its own."""
        start, stop = segment.local_start, segment.local_end
        if self.expression.fixed_time:
            if self.fold is DstFold.FIRST:
                start = segment.new_from
            elif self.fold is DstFold.LAST:
                stop = segment.again_from
        return start, stop

    def _runs_after_gap(self, segment: Segment) -> bool:
        return (
            segment.gap_from < segment.local_start
            and self.gap is DstGap.SHIFT
            and self.missing(segment.start) is not None
        )

    def _segments(self, first: int, last: int) -> Iterator[Segment]:
        while first <= last:
            segment = segment_at(self.zone, first)
            yield segment
            first = segment.end


@lru_cache(maxsize=16_384)
def _first_from(cron: ZonedCron, instant: int) -> int | None:
    return cron.walk_on(instant)


@lru_cache(maxsize=16_384)
def _last_until(cron: ZonedCron, instant: int) -> int | None:
    return cron.walk_back(instant)


@lru_cache(maxsize=4_096)
def zoned_cron(text: str, zone: str, gap: DstGap, fold: DstFold) -> ZonedCron:
    """The one object for these values; shared, so that what is found for one task serves all like it.

    Raises:
        ValueError: the text or the zone is refused.
    """
    return ZonedCron(parse(text), check_zone(zone), gap, fold)
