"""The next rows of all tasks, in memory."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tocsin.common.models import AtSchedule, CronSchedule, Kind, TaskState
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.next_rows import NextRowCount, Planned, SuspectPage, ZoneDataState, ZonedPage
from tocsin.common.store.rows import Pending, Task

_DAY = timedelta(days=1)


class MemoryNextRows:
    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def zone_data(self) -> ZoneDataState:
        await self._db.round_trip()
        live = frozenset(lease.zone_data for lease in self._db.leases.values() if lease.expired_at is None)
        return ZoneDataState(*self._db.zone_data, live, self._db.now())

    async def note_zone_data(self, seen: ZoneDataState, release: str, through: UUID | None) -> bool:
        await self._db.round_trip()
        if self._db.zone_data != (seen.release, seen.through):
            return False
        self._db.zone_data = (release, through)
        return True

    async def zoned(self, after: UUID, limit: int) -> ZonedPage:
        await self._db.round_trip()
        found = sorted((t for t in self._db.tasks.values() if t.id > after and _zoned(t)), key=lambda task: task.id)
        page = found[:limit]
        return ZonedPage(
            tasks=tuple((task, self._planned(task)) for task in page if task.id not in self._db.unreadable),
            unreadable=tuple(task.id for task in page if task.id in self._db.unreadable),
            last=page[-1].id if len(page) == limit else None,
        )

    async def suspects(self, after: UUID, limit: int) -> SuspectPage:
        await self._db.round_trip()
        page = sorted((t for t in self._db.tasks.values() if t.id > after), key=lambda task: task.id)[:limit]
        found = tuple(task.id for task in page if self._suspect(task))
        return SuspectPage(found, page[-1].id if page else None)

    async def count(self, task_ids: Sequence[UUID]) -> list[NextRowCount]:
        await self._db.round_trip()
        return [
            NextRowCount(
                task_id=task.id,
                state=task.state,
                next_rows=(next_rows := len(self._next_rows(task))),
                task=task if task.id not in self._db.unreadable else None,
                greatest_slot=None if next_rows else self._greatest_slot(task.id),
                now=self._db.now(),
            )
            for task in (self._db.tasks[task_id] for task_id in task_ids)
            if task.state is not TaskState.DELETED
        ]

    def _suspect(self, task: Task) -> bool:
        next_rows = len(self._next_rows(task))
        if task.state is TaskState.DELETED or next_rows == 1:
            return False
        return next_rows > 1 or (task.state is TaskState.ACTIVE and not self._long_ended(task))

    def _long_ended(self, task: Task) -> bool:
        schedule = task.plan.schedule
        last = schedule.at if isinstance(schedule, AtSchedule) else task.plan.end
        return last is not None and _midnight(last) < _midnight(self._db.now() - _DAY)

    def _next_rows(self, task: Task) -> list[Pending]:
        return [row for row in self._db.pending.of_task(task.id) if row.kind is Kind.NEXT]

    def _greatest_slot(self, task_id: UUID) -> datetime | None:
        slots = [row.slot for row in self._db.pending.of_task(task_id)]
        slots += [row.run.slot for row in self._db.of_task(task_id)]
        for row in self._db.history.values():
            if row.task_id == task_id:
                slots += [row.slot, row.until_slot]
        return max((slot for slot in slots if slot is not None), default=None)

    def _planned(self, task: Task) -> Planned | None:
        row = min(self._next_rows(task), key=lambda row: row.run_id, default=None)
        return None if row is None else Planned(row.slot, row.due_at, row.last_slot)


def _zoned(task: Task) -> bool:
    schedule = task.plan.schedule
    return task.state is TaskState.ACTIVE and isinstance(schedule, CronSchedule) and schedule.zone != "UTC"


def _midnight(value: datetime) -> datetime:
    return value.replace(hour=0, minute=0, second=0, microsecond=0)
