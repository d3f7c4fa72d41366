"""What may become of a due slot by the policies of its plan: judged from what a round of begins found and left."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from property_tests.slot_chain import Link, seconds
from property_tests.stepping import LEAD
from property_tests.wall_clock import Slots
from tocsin.common.models import Kind, Misfire, Overlap, PlanSpec, Priority, TaskState
from tocsin.common.store.rows import Begun, Pending, SkipReason, Task
from tocsin.common.time.schedule import due_at

BLUR: Final = timedelta(milliseconds=1)
"""The executor knows the store's clock as a float: what differs by less may be judged either way."""

REASONS: Final = {
    "begin": {SkipReason.MISFIRE, SkipReason.OVERLAP},
    "edit": {SkipReason.EDITED, SkipReason.PAUSED},
    "pause": {SkipReason.PAUSED},
    "resume": {SkipReason.PAUSED},
    "skip": {SkipReason.SKIPPED},
}
"""Why slots may be skipped by what is done."""

_ALONE: Final = (Kind.NEXT, Kind.SLOT, Kind.NOW, Kind.CATCHUP)


@dataclass(frozen=True, slots=True)
class Round:
    """What stood before a round. `statements`: round trips so far."""

    now: datetime
    pending: dict[UUID, Pending]
    running: set[UUID]
    statements: int


@dataclass(frozen=True, slots=True)
class Judge:
    """Of one task. `plans` by plan version; `blocked`: slots that were due while another run of the task had not ended,
    or beside another due one."""

    task: Task
    plans: dict[int, PlanSpec]
    blocked: set[datetime]
    before: Round

    def begun(self, run: Begun, running: Sequence[Begun], pending: Sequence[Pending]) -> None:
        """`running`, `pending`: what the task has after the round."""
        row = self.before.pending.get(run.run_id)
        assert row is not None, "promise 2: a run is begun that was not pending"
        assert row.due_at <= self.before.now + LEAD, f"promise 8: {row.slot} is begun before it is due"
        assert row.slot is None or row.slot <= self.before.now + LEAD, f"promise 8: {row.slot} is begun before it comes"
        what = f"the run ({row.kind}) of {row.slot}"
        plans = [plan for version, plan in self.plans.items() if version >= row.plan_version]
        if row.fence == 0 and row.kind in _ALONE and all(plan.overlap is not Overlap.ALLOW for plan in plans):
            others = [other for other in running if other.run_id != run.run_id]
            assert not others, f"promise 8, overlap: {what} is begun beside another"
            assert not any(other.fence > 0 for other in pending), (
                f"promise 8, overlap: {what} is begun between two attempts"
            )
        caught_up = [row for row in pending if row.kind is Kind.CATCHUP and row.run_id not in self.before.pending]
        if row.kind is Kind.NEXT and row.slot is not None and row.slot not in self.blocked:
            self._begun_in_turn(row.slot, caught_up)

    def _begun_in_turn(self, slot: datetime, caught_up: Sequence[Pending]) -> None:
        plan = self.task.plan
        grace = timedelta(seconds=plan.grace_seconds)
        if self._late(slot) <= grace + BLUR:
            assert not caught_up or self._late(slot) > grace - BLUR, (
                f"promise 8, misfire: {slot} is in time, and others catch up"
            )
            return
        assert plan.misfire is not Misfire.SKIP, f"promise 8, misfire: {slot} is {self._late(slot)} late, and begun"
        due = self._due_after(slot - timedelta(seconds=1))
        assert min(due) <= self._wanted, f"promise 8, misfire: {slot} is begun though {due} are due by now"
        assert len(caught_up) + 1 in due, f"promise 8, misfire: {len(caught_up)} catch up beside {slot}, of {due}"
        assert all(row.priority is Priority.LOW for row in caught_up), (
            "promise 8, misfire: what catches up does not yield"
        )

    def skipped(self, link: Link, doing: str, links: Sequence[Link]) -> None:
        """`links`: all of the task's, in order."""
        withdrawn = link.reason is SkipReason.PAUSED and self.task.state is TaskState.PAUSED  # a retry, say
        assert withdrawn or link.reason in REASONS[doing], f"promise 1: {link} is recorded by {doing}"
        match link.reason:
            case SkipReason.MISFIRE:
                self._misfired(link, links)
            case SkipReason.OVERLAP:
                assert link.until <= self.before.now + LEAD, f"promise 8, overlap: {link} is skipped before it is due"
                assert any(plan.overlap is not Overlap.ALLOW for plan in self.plans.values()), (
                    f"promise 8, overlap: {link} of a task that allows it"
                )
                stood = link.first in self.blocked or link.last in self.blocked
                assert stood, f"promise 8, overlap: {link} is skipped though nothing else of its task ran"
            case SkipReason.SKIPPED:
                alone = link.first == link.until
                assert alone or link.until <= self.before.now, f"promise 1: {link} is more than was asked for"
            case _:
                # what is begun a little early may have failed and be withdrawn before its instant
                lead = LEAD if withdrawn and link.first == link.until else timedelta(0)
                assert link.until <= self.before.now + lead, f"promise 1: {link} is skipped before it is due"

    def _misfired(self, link: Link, links: Sequence[Link]) -> None:
        plan = self.task.plan
        grace = timedelta(seconds=plan.grace_seconds)
        assert self._late(link.first) > grace - BLUR, f"promise 8, misfire: {link} is within its grace"
        if plan.misfire is Misfire.SKIP:
            assert self._late(link.until) > grace - BLUR, f"promise 8, misfire: {link} has slots within their grace"
            following = Slots(plan).first_after(seconds(link.until))
            if following is not None:
                late = self._late(link.until + timedelta(seconds=following - seconds(link.until)))
                assert late <= grace + BLUR, f"promise 1: {link} is not all that is too late"
            return
        assert self._wanted in self._due_after(link.until), f"promise 8, misfire: after {link} too many or too few run"
        place = links.index(link)
        fired = links[place + 1 : place + 1 + self._wanted]
        runs = [run for run in fired if run.reason is None and run.kind is Kind.CATCHUP]
        assert len(runs) == self._wanted, f"promise 8, misfire: {len(runs)} catch up after {link}"

    @property
    def _wanted(self) -> int:
        """Late runs that are begun, at most."""
        return 1 if self.task.plan.misfire is Misfire.FIRE_ONCE else self.task.plan.max_catchup

    def _late(self, slot: datetime) -> timedelta:
        return self.before.now - slot - self._offset(slot)

    def _offset(self, slot: datetime) -> timedelta:
        """The task's share of its spread."""
        offset = due_at(self.task.plan, self.task.id, slot) - slot
        assert timedelta() <= offset <= timedelta(seconds=self.task.plan.spread_seconds), "promise 8: out of its spread"
        return offset

    def _due_after(self, slot: datetime) -> set[int]:
        """How many slots later than this one are due by now: one number, or two that a blur apart."""
        reached = self.before.now - self._offset(slot)
        slots = Slots(self.task.plan)
        return {slots.count(seconds(slot), seconds(reached + blur)) for blur in (-BLUR, BLUR)}
