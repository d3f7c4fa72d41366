"""The slots of a plan: pure functions of the plan and of instants that are handed in.

A slot is a whole second, UTC, within [start, end) of the plan and before 2200. Every function's work is
bounded by the number of slots asked for, never by the length of time between its arguments. Arguments
must be aware; results are UTC.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from tocsin.common.errors import FieldError
from tocsin.common.models import EARLIEST, LATEST, AtSchedule, CronSchedule, DstGap, EverySchedule, PlanSpec
from tocsin.common.time.zoned_cron import Effect, ZonedCron, zoned_cron
from tocsin.common.time.zones import zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_COUNTED = 10 * 366 * 86_400
"""Seconds over which a cron schedule's slots are counted; a longer time gives a lower bound."""


@dataclass(frozen=True, slots=True)
class SlotCount:
    """`count` is a lower bound where `exact` is False."""

    count: int
    exact: bool


@dataclass(frozen=True, slots=True)
class PreviewSlot:
    """A slot as a person should see it.

    `local`: what the zone's wall clock shows at the slot, ISO 8601 with its offset. `due_at`: the slot
    plus the task's spread. With the effect `gap_skipped`, no run comes of it: `slot` and `due_at` are
    None, and `local` is the first local time that the gap takes away, without an offset.
    """

    slot: datetime | None
    due_at: datetime | None
    local: str
    effect: Effect | None


def next_slot(plan: PlanSpec, after: datetime) -> datetime | None:
    """The first slot strictly later than `after`; None if there is none."""
    calendar, first, last = _compiled(plan)
    return _maybe(calendar.at_or_after(max(_floor(after) + 1, first), last))


def latest_slot(plan: PlanSpec, until: datetime) -> datetime | None:
    """The greatest slot not later than `until`; None if there is none."""
    calendar, first, last = _compiled(plan)
    return _maybe(calendar.at_or_before(min(_floor(until), last), first))


def last_slots(plan: PlanSpec, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The last slots in (after, until], at most `limit` of them, rising."""
    calendar = _calendar(plan)
    first, last = _range(plan, after, until)
    found: list[datetime] = []
    while len(found) < limit and (slot := calendar.at_or_before(last, first)) is not None:
        found.append(_instant(slot))
        last = slot - 1
    return found[::-1]


def count_slots(plan: PlanSpec, after: datetime, until: datetime) -> SlotCount:
    """How many slots lie in (after, until].

    Counted by arithmetic. Of a cron schedule only the last ten years are counted: where the time is
    longer, the count is a lower bound and marked inexact.
    """
    first, last = _range(plan, after, until)
    if first > last:
        return SlotCount(0, exact=True)
    counted = max(first, last - _COUNTED) if isinstance(plan.schedule, CronSchedule) else first
    return SlotCount(_calendar(plan).count(counted, last), exact=counted == first)


def due_at(plan: PlanSpec, task_id: UUID, slot: datetime) -> datetime:
    """The slot plus the task's share of the spread: stable by hash of the task's id, whole milliseconds,
    in [0, spread_seconds)."""
    return slot + _offset(task_id, plan.spread_seconds) if plan.spread_seconds else slot


@lru_cache(maxsize=65_536)
def _offset(task_id: UUID, spread_seconds: int) -> timedelta:
    digest = hashlib.blake2b(task_id.bytes, digest_size=8, person=b"tocsin.spread").digest()
    return timedelta(milliseconds=int.from_bytes(digest, "big") * spread_seconds * 1_000 >> 64)


def preview(plan: PlanSpec, task_id: UUID, after: datetime, count: int) -> list[PreviewSlot]:
    """At most `count` entries from the first slot later than `after` on, times lost to gaps among them."""
    calendar = _calendar(plan)
    shown = replace(calendar, gap=DstGap.SHIFT) if isinstance(calendar, ZonedCron) else calendar
    first, last = _bounds(plan)
    first = max(_floor(after) + 1, first)
    entries: list[PreviewSlot] = []
    while len(entries) < count and (instant := shown.at_or_after(first, last)) is not None:
        entries.extend(_entries(plan, task_id, calendar, instant))
        first = instant + 1
    return entries[:count] if count > 0 else []


def check_plan(plan: PlanSpec) -> None:
    """Refuses a plan without any slot.

    Raises:
        FieldError: nothing lies between start and end.
    """
    if next_slot(plan, EARLIEST - _SECOND) is None:
        field = "schedule" if plan.end is None else "end"
        raise FieldError(field, "the schedule must have at least one slot between start and end, and before 2200")


class _Calendar(Protocol):
    def at_or_after(self, instant: int, last: int) -> int | None: ...

    def at_or_before(self, instant: int, first: int) -> int | None: ...

    def count(self, first: int, last: int) -> int: ...


@dataclass(frozen=True, slots=True)
class _Every:
    """The anchor gives the phase and no beginning: slots lie before it too."""

    anchor: int
    period: int

    def at_or_after(self, instant: int, last: int) -> int | None:
        found = instant + (self.anchor - instant) % self.period
        return found if found <= last else None

    def at_or_before(self, instant: int, first: int) -> int | None:
        found = instant - (instant - self.anchor) % self.period
        return found if found >= first else None

    def count(self, first: int, last: int) -> int:
        return (last - self.anchor) // self.period - (first - 1 - self.anchor) // self.period


@dataclass(frozen=True, slots=True)
class _At:
    instant: int

    def at_or_after(self, instant: int, last: int) -> int | None:
        return self.instant if instant <= self.instant <= last else None

    def at_or_before(self, instant: int, first: int) -> int | None:
        return self.instant if first <= self.instant <= instant else None

    def count(self, first: int, last: int) -> int:
        return int(first <= self.instant <= last)


_COMPILED: dict[int, tuple[PlanSpec, tuple[_Calendar, int, int]]] = {}
_MOST_COMPILED = 65_536


def _compiled(plan: PlanSpec) -> tuple[_Calendar, int, int]:
    """The calendar of a plan and its bounds, worked out once for each object: hashing a plan costs more than that."""
    found = _COMPILED.get(id(plan))
    if found is not None and found[0] is plan:
        return found[1]
    if len(_COMPILED) >= _MOST_COMPILED:
        _COMPILED.clear()
    compiled = (_calendar(plan), *_bounds(plan))
    _COMPILED[id(plan)] = (plan, compiled)  # the plan is held, so that its id is not another's
    return compiled


def _calendar(plan: PlanSpec) -> _Calendar:
    match plan.schedule:
        case CronSchedule(cron=text, zone=zone_name):
            return zoned_cron(text, zone_name, plan.dst_gap, plan.dst_fold)
        case EverySchedule(every_seconds=period, anchor=anchor):
            return _Every(_floor(anchor), period)
        case AtSchedule(at=at):
            return _At(_floor(at))


def _bounds(plan: PlanSpec) -> tuple[int, int]:
    """The first and the last instant that may be a slot."""
    first = EARLIEST if plan.start is None else max(plan.start, EARLIEST)
    stop = LATEST if plan.end is None else min(plan.end, LATEST)
    return _ceiling(first), _ceiling(stop) - 1


def _range(plan: PlanSpec, after: datetime, until: datetime) -> tuple[int, int]:
    first, last = _bounds(plan)
    return max(_floor(after) + 1, first), min(_floor(until), last)


def _entries(plan: PlanSpec, task_id: UUID, calendar: _Calendar, instant: int) -> Iterator[PreviewSlot]:
    """What to show of an instant that is a slot, or would be one if times in a gap were shifted."""
    effect, wall = None, "UTC"
    if isinstance(calendar, ZonedCron):
        effect, wall = calendar.effect(instant), calendar.zone
        missing = calendar.missing(instant)
        if missing is not None and calendar.gap is DstGap.SKIP:
            local = (_EPOCH + missing * _SECOND).replace(tzinfo=None).isoformat()
            yield PreviewSlot(None, None, local, Effect.GAP_SKIPPED)
    if calendar.at_or_after(instant, instant) is not None:
        slot = _instant(instant)
        yield PreviewSlot(slot, due_at(plan, task_id, slot), slot.astimezone(zone(wall)).isoformat(), effect)


def _floor(value: datetime) -> int:
    """The last whole second not after `value`, in Unix seconds.

    Raises:
        ValueError: `value` has no offset.
    """
    if value.tzinfo is None:
        raise ValueError("an instant needs an offset from UTC")
    since = value - _EPOCH
    return since.days * 86_400 + since.seconds


def _ceiling(value: datetime) -> int:
    return -((_EPOCH - value.astimezone(UTC)) // _SECOND)


def _instant(seconds: int) -> datetime:
    return _EPOCH + seconds * _SECOND


def _maybe(seconds: int | None) -> datetime | None:
    return None if seconds is None else _instant(seconds)
