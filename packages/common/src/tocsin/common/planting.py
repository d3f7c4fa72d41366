"""What a write on a task plants and records: next rows, waiting rows, skips (rule 2).

Each keeps the chain whole: what is planted names the last slot accounted for before it. `now` is the store's time: by
it an id says when its row was planted, whatever this process's clock shows.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from tocsin.common.clock import PARKED
from tocsin.common.ids import Ids, lane_of
from tocsin.common.models import Kind
from tocsin.common.store.ports import TaskTransaction
from tocsin.common.store.rows import Pending, Skip, SkipReason, Task
from tocsin.common.time.schedule import count_slots, due_at, latest_slot, next_slot


class Planter:
    """Works within the write that a caller has open; the task is locked, and its next row taken away."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    async def base(self, tx: TaskTransaction, task: Task, row: Pending | None, now: datetime) -> datetime | None:
        """The last slot accounted for before a next row that was taken away. One that is due already, and waits for
        its spread or for room, is not dropped: it goes in again as a waiting run."""
        if row is None:
            return await tx.greatest_slot(task.id)
        if row.slot is None or row.slot > now:
            return row.last_slot
        waiting = replace(self.parked_row(task, row.last_slot, now), kind=Kind.SLOT, slot=row.slot, due_at=row.due_at)
        await tx.plant([waiting])
        return row.slot

    async def account(
        self,
        tx: TaskTransaction,
        task: Task,
        base: datetime | None,
        since: datetime | None,
        now: datetime,
        reason: SkipReason,
        *,
        through: datetime | None = None,
    ) -> datetime | None:
        """Records the task's slots in (max(base, since), through or now] as one skip; says the last slot accounted for.

        `base` is the last slot accounted for before; with neither it nor `since` there is nothing to account for.
        """
        start = max((instant for instant in (base, since) if instant is not None), default=None)
        until = latest_slot(task.plan, through or now)
        if start is None or until is None or until <= start:
            return base
        first = next_slot(task.plan, start) or until
        slots = count_slots(task.plan, first - timedelta(seconds=1), until)
        skip = Skip(self._ids.new(now), first, until, base, slots.count, slots.exact, reason)
        await tx.record_skip(task.tenant_id, task.id, skip)
        return until

    async def plant_after(self, tx: TaskTransaction, task: Task, now: datetime, accounted: datetime | None) -> None:
        """Plants the first slot > max(now, the last slot accounted for)."""
        slot = next_slot(task.plan, now if accounted is None else max(now, accounted))
        if slot is not None:
            await tx.plant([self.next_row(task, slot, accounted, now)])

    async def end_row(
        self, tx: TaskTransaction, task: Task, row: Pending, now: datetime, reason: SkipReason
    ) -> datetime | None:
        """Accounts for a next row that was taken away and does not return; says the last slot accounted for."""
        if row.slot is None or row.slot > now:
            return row.last_slot
        return await self.account(tx, task, row.last_slot, row.slot - timedelta(seconds=1), now, reason)

    def skip_of(self, row: Pending, reason: SkipReason, now: datetime) -> Skip:
        return Skip(self._ids.new(now), row.slot, row.slot, row.last_slot, 1, True, reason)

    def next_row(self, task: Task, slot: datetime, last_slot: datetime | None, now: datetime) -> Pending:
        return replace(self.parked_row(task, last_slot, now), slot=slot, due_at=due_at(task.plan, task.id, slot))

    def parked_row(self, task: Task, last_slot: datetime | None, now: datetime) -> Pending:
        return Pending(
            run_id=self._ids.new(now),
            fence=0,
            tenant_id=task.tenant_id,
            task_id=task.id,
            priority=task.plan.priority,
            due_at=PARKED,
            slot=None,
            last_slot=last_slot,
            lane=lane_of(task.id),
            kind=Kind.NEXT,
            plan_version=task.plan_version,
        )
