"""A model of begins: it applies each plan as a begin would, and accounts for every slot."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tocsin.common.clock import PARKED
from tocsin.common.models import CallSpec, EverySchedule, Kind, Misfire, PlanSpec, Priority, TaskState
from tocsin.common.store.rows import BeginItem, Pending, Plant, SkipReason, Task
from tocsin.common.time.schedule import due_at, latest_slot, next_slot
from tocsin.engine.plan import plan_run

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
EVERY_MINUTE = EverySchedule(every_seconds=60, anchor=NOW)
TASK_ID = UUID(int=5)

Planning = Callable[..., BeginItem]


def ids() -> Callable[[], UUID]:
    numbers = itertools.count(1000)
    return lambda: UUID(int=next(numbers))


def a_task(**plan: Any) -> Task:
    spec = PlanSpec(**{"schedule": EVERY_MINUTE, **plan})
    call = CallSpec(url="https://example.com/")
    return Task(TASK_ID, UUID(int=1), "task", TaskState.ACTIVE, 1, 1, spec, call, None, NOW, NOW)


def a_row(task: Task, slot: datetime | None, **changes: Any) -> Pending:
    row = Pending(
        run_id=UUID(int=9),
        fence=0,
        tenant_id=task.tenant_id,
        task_id=task.id,
        priority=Priority.NORMAL,
        due_at=PARKED if slot is None else due_at(task.plan, task.id, slot),
        slot=slot,
        last_slot=None if slot is None else latest_slot(task.plan, slot - SECOND),
        lane=0,
        kind=Kind.NEXT,
        plan_version=1,
    )
    return replace(row, **changes)


def kinds(item: BeginItem) -> list[Kind]:
    return [plant.kind for plant in item.plants]


@dataclass(frozen=True, slots=True)
class Link:
    """Slots accounted for together: a run has one, a skip may have many."""

    last: datetime | None
    first: datetime
    until: datetime
    count: int
    exact: bool
    run: bool


class Model:
    """Applies plans as a begin does: plants become rows, a due_at already past becomes now."""

    def __init__(self, task: Task, row: Pending, planning: Planning) -> None:
        self.task = task
        self.next: Pending | None = row
        self.planning = planning
        self.links: list[Link] = []
        self.ids = ids()
        self.started = row.slot
        self.begun: list[tuple[datetime, datetime]] = []

    def begin(self, now: datetime, **how: Any) -> bool:
        """One begin of the next row, if it is due."""
        row = self.next
        if row is None or row.due_at > now:
            return False
        assert row.slot is not None
        item = self.planning(row, self.task, now, self.ids, **how)
        self.next = None
        self._check_lateness(item, now)
        if item.skip is None:
            self._link(row.last_slot, row.slot, row.slot, 1, exact=True, run=True)
            self.begun.append((row.slot, now))
        for skip in (item.skip, *item.skips):
            if skip is not None:
                assert skip.first_slot is not None
                assert skip.until_slot is not None
                self._link(skip.previous_slot, skip.first_slot, skip.until_slot, skip.count, skip.exact, run=False)
        assert len(item.plants) <= self.task.plan.max_catchup + 1, "a begin plants without bound"
        for plant in item.plants:
            self._plant(row, plant, now)
        return True

    def _check_lateness(self, item: BeginItem, now: datetime) -> None:
        """By the policy `skip`, only what is later than its grace is skipped; and nothing before it is due."""
        plan = self.task.plan
        for skip in (item.skip, *item.skips):
            if skip is not None and skip.until_slot is not None:
                late = now - due_at(plan, self.task.id, skip.until_slot)
                judged = plan.misfire is Misfire.SKIP and skip.reason is SkipReason.MISFIRE
                assert late > timedelta(seconds=plan.grace_seconds if judged else -0.001), "skipped before its time"

    def _plant(self, row: Pending, plant: Plant, now: datetime) -> None:
        assert plant.slot is not None
        if plant.kind is Kind.CATCHUP:
            assert plant.due_at >= due_at(self.task.plan, self.task.id, plant.slot), "a catch-up run starts early"
            self._link(plant.last_slot, plant.slot, plant.slot, 1, exact=True, run=True)
            return
        assert self.next is None, "a second next row"
        self.next = replace(
            row,
            run_id=plant.run_id,
            slot=plant.slot,
            last_slot=plant.last_slot,
            due_at=max(plant.due_at, now),
        )

    def _link(
        self, last: datetime | None, first: datetime, until: datetime, count: int, exact: bool, *, run: bool
    ) -> None:
        self.links.append(Link(last, first, until, count, exact, run))

    def check(self) -> None:
        """Every slot from the first row's on is in exactly one link, and the links are a chain without a gap."""
        plan = self.task.plan
        expected = self.started
        last = self.links[0].last if self.links else None
        for link in sorted(self.links, key=lambda link: link.first):
            assert link.last == last, "the chain has a gap"
            assert link.first == expected, "a slot is lost, or has two runs"
            count, slot = 1, link.first
            while slot < link.until:
                following = next_slot(plan, slot)
                assert following is not None
                count, slot = count + 1, following
            assert slot == link.until, "a skip ends where no slot is"
            assert link.count == count if link.exact else link.count <= count
            last, expected = link.until, next_slot(plan, link.until)
        if self.links:
            assert (None if self.next is None else self.next.slot) == expected
            assert self.next is None or self.next.last_slot == last


def drive(task: Task, slot: datetime, gaps: list[tuple[float, int, bool]], planning: Planning = plan_run) -> Model:
    """`gaps`: seconds to the next round, begins in it, and whether an earlier run of the task held the row."""
    model = Model(task, a_row(task, slot), planning)
    now = slot
    for seconds, begins, held in gaps:
        now += timedelta(seconds=seconds)
        for _ in range(begins):
            if not model.begin(now, held=held):
                break
    model.check()
    return model
