"""Which slots a plan has, worked out without any of the product's calendar: the oracle of the timing machine.

Of a cron schedule each minute of a day is looked at on the zone's wall clock, and the documented rule is applied word
by word; only days far from any change of the zone's offset are expanded by hour and minute. Instants are Unix seconds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

from tocsin.common.models import AtSchedule, CronSchedule, DstFold, DstGap, EverySchedule, PlanSpec

MINUTE, DAY = 60, 86_400
EVER = 8 * 366 + 2
"""Days within which every schedule here that goes on has a slot: a 29th of February, around the year 2100 too."""

_FIRST = 0
_LAST = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) - 1
_EVERY_DAY = frozenset(range(7))


@dataclass(frozen=True, slots=True)
class Cron:
    """An expression by its values. `fixed`: neither its minute nor its hour begins with `*`."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    fixed: bool
    seconds: tuple[int, ...] = (0,)
    weekdays: frozenset[int] = _EVERY_DAY
    leap_day: bool = False

    def names_day(self, day: date) -> bool:
        if self.leap_day and (day.month, day.day) != (2, 29):
            return False
        return day.isoweekday() % 7 in self.weekdays

    def names(self, wall: datetime) -> bool:
        """Whether it names this minute of the wall clock."""
        return wall.minute in self.minutes and wall.hour in self.hours and self.names_day(wall.date())


_ALL_HOURS = frozenset(range(24))

CRONS = {
    cron.text: cron
    for cron in (
        Cron("30 2 * * *", frozenset({30}), frozenset({2}), fixed=True),
        Cron("0 0 * * *", frozenset({0}), frozenset({0}), fixed=True),
        Cron("15,45 0-3 * * *", frozenset({15, 45}), frozenset(range(4)), fixed=True),
        Cron("0-59/20 0-23 * * *", frozenset({0, 20, 40}), _ALL_HOURS, fixed=True),
        Cron("*/30 * * * *", frozenset({0, 30}), _ALL_HOURS, fixed=False),
        Cron("30 */2 * * *", frozenset({30}), frozenset(range(0, 24, 2)), fixed=False),
        Cron("10,50 15 2 * * 0", frozenset({15}), frozenset({2}), True, (10, 50), frozenset({0})),
        Cron("0 12 29 2 *", frozenset({0}), frozenset({12}), fixed=True, leap_day=True),
    )
}


@cache
def zone_of(name: str) -> ZoneInfo:
    """The zone by the release of zone data that the product uses."""
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _offset(zone: ZoneInfo, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@lru_cache(maxsize=200_000)
def slots_of_day(cron: Cron, name: str, gap: DstGap, fold: DstFold, day: int) -> tuple[int, ...]:
    """The slots in one UTC day, counted from 1970."""
    zone, start = zone_of(name), day * DAY
    offsets = {_offset(zone, at) for at in (start - DAY, start, start + DAY, start + 2 * DAY)}
    if len(offsets) == 1:
        return tuple(_quiet_day(cron, start, offsets.pop()))
    return tuple(_walk(cron, zone, gap, fold, start))


def _quiet_day(cron: Cron, start: int, offset: int) -> Iterable[int]:
    for local_day in ((start + offset) // DAY, (start + offset) // DAY + 1):
        if not cron.names_day(date.fromordinal(date(1970, 1, 1).toordinal() + local_day)):
            continue
        for hour in sorted(cron.hours):
            for minute in sorted(cron.minutes):
                for second in cron.seconds:
                    instant = local_day * DAY + hour * 3_600 + minute * MINUTE + second - offset
                    if start <= instant < start + DAY:
                        yield instant


def _walk(cron: Cron, zone: ZoneInfo, gap: DstGap, fold: DstFold, start: int) -> Iterable[int]:
    """Looks at each minute. A fixed time that the clock jumps over runs at the first instant after the jump."""
    for instant in range(start, start + DAY, MINUTE):
        wall = datetime.fromtimestamp(instant, zone)
        seconds = list(cron.seconds) if _runs(cron, wall, fold) else []
        if cron.fixed and gap is DstGap.SHIFT and 0 not in seconds:
            before = datetime.fromtimestamp(instant - MINUTE, zone).replace(tzinfo=None)
            jumped = int((wall.replace(tzinfo=None) - before).total_seconds()) // MINUTE
            if any(cron.names(before + timedelta(minutes=m)) for m in range(1, jumped)):
                seconds.insert(0, 0)
        yield from (instant + second for second in seconds)


def _runs(cron: Cron, wall: datetime, fold: DstFold) -> bool:
    if not cron.names(wall.replace(tzinfo=None)):
        return False
    is_first_pass = wall.fold == 0 and wall.utcoffset() != wall.replace(fold=1).utcoffset()
    if cron.fixed and fold is DstFold.FIRST:
        return wall.fold == 0
    if cron.fixed and fold is DstFold.LAST:
        return not is_first_pass
    return True


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a plan. All its instants are whole Unix seconds."""

    plan: PlanSpec

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and the last instant that may be a slot."""
        start = -(-self.plan.start.timestamp() // 1) if self.plan.start is not None else _FIRST
        stop = -(-self.plan.end.timestamp() // 1) - 1 if self.plan.end is not None else _LAST
        return max(int(start), _FIRST), min(int(stop), _LAST)

    def first_after(self, instant: int) -> int | None:
        first, last = self.bounds
        first = max(first, instant + 1)
        return next(iter(self._between(first, min(last, first + EVER * DAY))), None)

    def last_until(self, instant: int, after: int) -> int | None:
        """The last slot in (after, instant]."""
        first, last = self.bounds
        return next(iter(self._between(max(first, after + 1), min(last, instant), back=True)), None)

    def count(self, after: int, until: int) -> int:
        """How many lie in (after, until]."""
        first, last = self.bounds
        first, last = max(first, after + 1), min(last, until)
        schedule = self.plan.schedule
        if first > last:
            return 0
        if isinstance(schedule, EverySchedule):
            ahead = -(-(first - int(schedule.anchor.timestamp())) // schedule.every_seconds)
            beyond = (last - int(schedule.anchor.timestamp())) // schedule.every_seconds
            return beyond - ahead + 1
        if isinstance(schedule, CronSchedule):
            days = (self._of_day(day) for day in range(first // DAY, last // DAY + 1))
            return sum(bisect_right(found, last) - bisect_left(found, first) for found in days)
        return sum(1 for _ in self._between(first, last))

    def _between(self, first: int, last: int, *, back: bool = False) -> Iterable[int]:
        """The slots in [first, last], rising, or falling."""
        if first > last:
            return
        schedule = self.plan.schedule
        match schedule:
            case AtSchedule():
                at = int(schedule.at.timestamp())
                yield from [at] if first <= at <= last else []
            case EverySchedule():
                anchor, period = int(schedule.anchor.timestamp()), schedule.every_seconds
                lowest = anchor + -(-(first - anchor) // period) * period
                highest = anchor + (last - anchor) // period * period
                yield from range(highest, first - 1, -period) if back else range(lowest, last + 1, period)
            case CronSchedule():
                days = range(last // DAY, first // DAY - 1, -1) if back else range(first // DAY, last // DAY + 1)
                for day in days:
                    found = self._of_day(day)
                    yield from (slot for slot in (reversed(found) if back else found) if first <= slot <= last)

    def _of_day(self, day: int) -> tuple[int, ...]:
        schedule = self.plan.schedule
        assert isinstance(schedule, CronSchedule)
        return slots_of_day(CRONS[schedule.cron], schedule.zone, self.plan.dst_gap, self.plan.dst_fold, day)


@dataclass(slots=True)
class Era:
    """A plan in force: its slots in (since, until] are a task's."""

    slots: Slots
    since: int
    until: int | None = None


class Timeline:
    """The slots of a task whose plan was changed now and then."""

    def __init__(self, plan: PlanSpec, since: int) -> None:
        self.eras = [Era(Slots(plan), since)]

    def change(self, plan: PlanSpec, since: int) -> None:
        """From now on another plan: its first slot is later than `since`."""
        self.eras[-1].until = since
        self.eras.append(Era(Slots(plan), since))

    def first_after(self, instant: int) -> int | None:
        for era in self.eras:
            slot = era.slots.first_after(max(instant, era.since))
            if slot is not None and (era.until is None or slot <= era.until):
                return slot
        return None

    def count(self, after: int, until: int) -> int:
        ends = [until if era.until is None else min(until, era.until) for era in self.eras]
        starts = [max(after, era.since) for era in self.eras]
        pairs = zip(self.eras, starts, ends, strict=True)
        return sum(era.slots.count(start, end) for era, start, end in pairs if start < end)
