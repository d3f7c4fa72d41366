"""Plans as a test draws them: relative to the instant at which they are given, so that small programs stay small."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from property_tests.wall_clock import CRONS
from tocsin.common.models import (
    AtSchedule,
    CronSchedule,
    DstFold,
    DstGap,
    EverySchedule,
    Misfire,
    Overlap,
    PlanSpec,
    Priority,
)

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca")
"""No change; whole hours on each side of UTC; half an hour; a gap at midnight; summer time all the year but Ramadan."""


@dataclass(frozen=True, slots=True)
class Night:
    """Some hours before a zone's clocks change."""

    zone: str
    at: datetime


NIGHTS = (
    Night("Europe/Berlin", datetime(2026, 3, 28, 22, 0, 0, 250_000, UTC)),  # a gap
    Night("Europe/Berlin", datetime(2026, 10, 24, 22, 0, tzinfo=UTC)),  # a fold
    Night("America/New_York", datetime(2026, 11, 1, 3, 0, tzinfo=UTC)),  # a fold
    Night("Australia/Lord_Howe", datetime(2026, 4, 4, 12, 0, tzinfo=UTC)),  # a fold of half an hour
    Night("America/Santiago", datetime(2026, 9, 6, 2, 0, tzinfo=UTC)),  # a gap: there is no midnight
    Night("Africa/Casablanca", datetime(2027, 2, 6, 23, 0, tzinfo=UTC)),  # a fold at the start of Ramadan
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan less the instant that it counts from. `what`: an expression, a period, or 0: one instant, at `offset`.

    Seconds: `start` from now, `end` from the start, or from now; None: there is none.
    """

    what: str | int
    zone: str = "UTC"
    offset: int = 0
    start: int | None = None
    end: int | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, now: datetime) -> PlanSpec:
        whole = now.replace(microsecond=0)
        schedule: CronSchedule | EverySchedule | AtSchedule
        if isinstance(self.what, str):
            schedule = CronSchedule(cron=self.what, zone=self.zone)
        elif self.what:
            schedule = EverySchedule(every_seconds=self.what, anchor=whole + timedelta(seconds=self.offset))
        else:
            schedule = AtSchedule(at=whole + timedelta(seconds=self.offset))
        start = None if self.start is None else now + timedelta(seconds=self.start)
        end = None if self.end is None else (start or now) + timedelta(seconds=self.end)
        return PlanSpec(schedule=schedule, start=start, end=end, **self.rest)


_POLICIES: dict[str, st.SearchStrategy[Any]] = {
    "misfire": st.sampled_from([Misfire.SKIP, Misfire.FIRE_ALL]),
    "grace_seconds": st.sampled_from([1, 60, 300]),
    "max_catchup": st.sampled_from([1, 2, 5]),
    "overlap": st.sampled_from([Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.CANCEL_PREVIOUS]),
    "priority": st.sampled_from(Priority),
    "spread_seconds": st.sampled_from([1, 90, 7_200]),
}
"""Left out, each is its default: fire once, allow, no spread."""

_DST: dict[str, st.SearchStrategy[Any]] = {"dst_gap": st.sampled_from(DstGap), "dst_fold": st.sampled_from(DstFold)}


def drafts(*, ends: bool = True) -> st.SearchStrategy[Draft]:
    """`ends`: some have a start or an end."""
    policies = st.fixed_dictionaries({}, optional=_POLICIES)
    start = st.sampled_from([None, None, -90, 40, 86_400]) if ends else st.none()
    end = st.sampled_from([None, None, None, 600, 2 * 86_400]) if ends else st.none()
    every = st.builds(
        Draft,
        st.sampled_from([20, 60, 3_600, 86_400, 7 * 86_400]),
        offset=st.integers(-100, 100),
        start=start,
        end=end,
        rest=policies,
    )
    at = st.builds(Draft, st.just(0), offset=st.sampled_from([-30, 0, 1, 45, 4_000]), rest=policies)
    cron = st.builds(
        Draft,
        st.sampled_from(sorted(CRONS)),
        zone=st.sampled_from(ZONES),
        start=start,
        end=end,
        rest=st.fixed_dictionaries(_DST, optional=_POLICIES),
    )
    return st.one_of(cron, every, at) if ends else cron
