"""Broken twins of what decides slots: the calendar, the plan of a due row, and the writes that replace a next row."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from property_tests.machine import Profile
from property_tests.mutant import Instead, Mutant
from property_tests.timing import TimingMachine
from tocsin.common.models import CronSchedule, DstFold, Overlap, PlanSpec
from tocsin.common.planting import Planter
from tocsin.common.store.ports import TaskTransaction
from tocsin.common.store.rows import Pending, SkipReason, Task
from tocsin.common.time import schedule
from tocsin.common.time.zoned_cron import ZonedCron
from tocsin.engine import begin, plan
from tocsin.engine.plan import is_exclusive


def _catch_up_without_bound(patch: pytest.MonkeyPatch) -> None:
    real = schedule.last_slots
    patch.setattr(plan, "last_slots", lambda spec, after, until, limit: real(spec, after, until, limit * 100))


class _BothPasses(ZonedCron):
    """`dst_fold: first` lets both passes of a fold run."""

    __slots__ = ()

    def _window(self, segment: Any) -> tuple[int, int]:
        if self.fold is DstFold.FIRST:
            return segment.local_start, segment.local_end
        return super()._window(segment)


class _NoShift(ZonedCron):
    """A time in a gap is lost, though it should run after the gap."""

    __slots__ = ()

    def _runs_after_gap(self, segment: Any) -> bool:
        return False


def _another_calendar(patch: pytest.MonkeyPatch, made: type[ZonedCron]) -> None:
    """Slots are memoised by calendar: these are others than the product's, and what is compiled is kept apart."""
    real = schedule._calendar
    kept: dict[tuple[Any, ...], ZonedCron] = {}

    def calendar(spec: PlanSpec) -> Any:
        found = real(spec)
        if not isinstance(spec.schedule, CronSchedule):
            return found
        assert isinstance(found, ZonedCron)
        values = (found.expression, found.zone, found.gap, found.fold)
        return kept.setdefault(values, made(*values))

    patch.setattr(schedule, "_calendar", calendar)
    patch.setattr(schedule, "_COMPILED", {})


def _a_fold_fires_twice(patch: pytest.MonkeyPatch) -> None:
    _another_calendar(patch, _BothPasses)


def _a_gap_swallows(patch: pytest.MonkeyPatch) -> None:
    _another_calendar(patch, _NoShift)


def _the_slot_asked_about(patch: pytest.MonkeyPatch) -> None:
    real = schedule.next_slot
    patch.setattr(plan, "next_slot", lambda spec, after: real(spec, after - timedelta(seconds=1)))


def _unrecorded(patch: pytest.MonkeyPatch, reason: SkipReason) -> None:
    """A write leaves its slots out without a skip."""
    real = Planter.account

    async def account(
        self: Planter,
        tx: TaskTransaction,
        task: Task,
        base: datetime | None,
        since: datetime | None,
        now: datetime,
        given: SkipReason,
        *,
        through: datetime | None = None,
    ) -> datetime | None:
        return base if given is reason else await real(self, tx, task, base, since, now, given, through=through)

    patch.setattr(Planter, "account", account)


def _an_edit_drops_slots(patch: pytest.MonkeyPatch) -> None:
    _unrecorded(patch, SkipReason.EDITED)


def _a_resume_forgets_the_pause(patch: pytest.MonkeyPatch) -> None:
    _unrecorded(patch, SkipReason.PAUSED)


def _an_edit_drops_the_due_row(patch: pytest.MonkeyPatch) -> None:
    """A row whose slot has come is dropped by an edit, as one that is still to come."""

    async def base(
        self: Planter, tx: TaskTransaction, task: Task, row: Pending | None, now: datetime
    ) -> datetime | None:
        return await tx.greatest_slot(task.id) if row is None else row.slot or row.last_slot

    patch.setattr(Planter, "base", base)


def _overlap_lets_a_second_through(patch: pytest.MonkeyPatch) -> None:
    def exclusive(row: Pending, spec: PlanSpec) -> bool:
        return spec.overlap is not Overlap.SKIP and is_exclusive(row, spec)

    patch.setattr(plan, "is_exclusive", exclusive)
    patch.setattr(begin, "is_exclusive", exclusive)


_FEW, _SOME, _MANY = Profile(40, 25), Profile(150, 30), Profile(300, 30)

MUTANTS: Sequence[Mutant] = (
    Mutant("catch-up unbounded", 8, TimingMachine, _catch_up_without_bound, _SOME),
    Mutant(
        "a fold fires twice under fold=first",
        8,
        TimingMachine,
        _a_fold_fires_twice,
        _SOME,
        instead=Instead(
            1, "for a skip that spans the fold counts a slot too many, as soon as it is asked for its count"
        ),
    ),
    Mutant("a time in a gap is lost under gap=shift", 8, TimingMachine, _a_gap_swallows, _SOME),
    Mutant("the slot asked about is returned again", 8, TimingMachine, _the_slot_asked_about, _FEW),
    Mutant("an edit drops slots without a skip", 1, TimingMachine, _an_edit_drops_slots, _MANY, seed=3),
    Mutant("an edit drops a slot that has come", 1, TimingMachine, _an_edit_drops_the_due_row, _SOME),
    Mutant("a resume forgets the slots of the pause", 1, TimingMachine, _a_resume_forgets_the_pause, _SOME),
    Mutant("overlap skip lets a second run through", 8, TimingMachine, _overlap_lets_a_second_through, _MANY),
)
