"""What the API writes and reads of tasks, in memory.

A write keeps its changes to itself until it commits. What it has deleted or marked is locked for others
meanwhile: a begin passes it by, a completion waits, as PostgreSQL's row locks make them.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tocsin.common.crashpoints import reach
from tocsin.common.errors import FaultyDefinitionError
from tocsin.common.models import Kind, TaskState
from tocsin.common.states import RunState
from tocsin.common.store.faulty import NO_SCHEDULE, FaultyTask
from tocsin.common.store.memory.database import IdempotencyKey, MemoryDatabase, ended_row, parked
from tocsin.common.store.memory.reads import attempts_of, summaries, view_of
from tocsin.common.store.memory.runs import skip_row
from tocsin.common.store.rows import Begun, Outcome, Pending, Skip, SkipReason, Task, TaskFault, TaskReference
from tocsin.common.store.views import HistoryRow, RunSummary, RunView, TaskView


class MemoryTaskTransaction:
    """One write. Reads see what others have committed, changed by what this write has done."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database
        self._held: list[asyncio.Lock] = []
        self._ended = asyncio.Event()
        self._tasks: dict[UUID, Task] = {}
        self._planted: dict[UUID, Pending] = {}
        self._deleted: set[UUID] = set()
        self._marked: set[UUID] = set()
        self._recorded: list[HistoryRow] = []
        self._claimed: dict[tuple[UUID, str], IdempotencyKey] = {}

    async def lock(self, tenant_id: UUID, task_id: UUID) -> tuple[Task, datetime] | None:
        await self._db.round_trip()
        if task_id not in self._db.tasks:
            return None
        await self._hold(self._db.task_locks[task_id])
        task = self._tasks.get(task_id, self._db.tasks[task_id])
        if task.tenant_id != tenant_id or task.state is TaskState.DELETED:
            return None
        if task_id in self._db.unreadable:
            raise FaultyDefinitionError(task_id, self._db.unreadable[task_id])
        return task, self._db.now()

    async def now(self) -> datetime:
        await self._db.round_trip()
        return self._db.now()

    async def find_next(self, task_id: UUID) -> Pending | None:
        await self._db.round_trip()
        return next((row for row in self._pending_of(task_id) if row.kind is Kind.NEXT), None)

    async def delete_next(self, run_id: UUID) -> bool:
        await self._db.round_trip()
        return await self._take(run_id, only=Kind.NEXT) is not None

    async def greatest_slot(self, task_id: UUID) -> datetime | None:
        await self._db.round_trip()
        slots = [row.slot for row in self._pending_of(task_id)]
        slots += [row.run.slot for row in self._db.of_task(task_id)]
        for row in [*self._db.history.values(), *self._recorded]:
            if row.task_id == task_id:
                slots += [row.slot, row.until_slot]
        return max((slot for slot in slots if slot is not None), default=None)

    async def plant(self, rows: Sequence[Pending]) -> None:
        await self._db.round_trip()
        for row in rows:
            planted = replace(row, due_at=self._db.clamped(row.due_at), fence=0, losses=0)
            self._planted[row.run_id] = planted

    async def record_skip(self, tenant_id: UUID, task_id: UUID, skip: Skip) -> None:
        await self._db.round_trip()
        self._recorded.append(skip_row(tenant_id, task_id, skip, self._db.stamp()))

    async def withdraw_waiting(self, task_id: UUID, reason: SkipReason) -> list[UUID]:
        await self._db.round_trip()
        waiting = [row.run_id for row in self._pending_of(task_id) if row.kind is not Kind.NEXT]
        for run_id in waiting:
            row = await self._take(run_id)
            if row is not None:
                ended = ended_row(row, self._db.stamp(), Outcome.SKIPPED, RunState.SKIPPED, reason=reason)
                self._recorded.append(replace(ended, until_slot=row.slot, skip_count=1, skip_exact=True))
        return waiting

    async def insert(self, task: Task) -> Task:
        await self._db.round_trip()
        now = self._db.now()
        stored = replace(task, version=1, plan_version=1, created_at=now, updated_at=now, fault=None)
        self._tasks[task.id] = stored
        return stored

    async def update(self, task: Task) -> Task:
        await self._db.round_trip()
        created_at = self._tasks.get(task.id, self._db.tasks[task.id]).created_at
        stored = replace(task, created_at=created_at)
        self._tasks[task.id] = stored
        return stored

    async def lock_any(self, tenant_id: UUID, task_id: UUID) -> TaskReference | None:
        await self._db.round_trip()
        if task_id not in self._db.tasks:
            return None
        await self._hold(self._db.task_locks[task_id])
        task = self._tasks.get(task_id, self._db.tasks[task_id])
        return TaskReference(task.state, self._db.now()) if task.tenant_id == tenant_id else None

    async def lock_faulty(self, tenant_id: UUID, task_id: UUID) -> tuple[FaultyTask, datetime] | None:
        reference = await self.lock_any(tenant_id, task_id)
        if reference is None or reference.state is TaskState.DELETED:
            return None
        task = self._tasks.get(task_id, self._db.tasks[task_id])
        unplanned = replace(task, plan=task.plan.model_copy(update={"schedule": NO_SCHEDULE}))
        return FaultyTask(unplanned, {"schedule": self._db.unreadable[task_id]}), reference.now

    async def mark_deleted(self, task_id: UUID) -> None:
        await self._db.round_trip()
        task = self._tasks.get(task_id, self._db.tasks[task_id])
        self._tasks[task_id] = replace(
            task, state=TaskState.DELETED, version=task.version + 1, updated_at=self._db.now()
        )

    async def cancel_pending(self, run_id: UUID) -> Pending | None:
        await self._db.round_trip()
        found = self._planted.get(run_id) or self._db.pending.get(run_id)
        if found is None or parked(found):
            return None
        row = await self._take(run_id)
        if row is not None:
            why = "cancelled before its call"
            now = self._db.stamp()
            self._recorded.append(ended_row(row, now, Outcome.CANCELLED, RunState.CANCELLED, reason=why))
        return row

    async def cancel_running(self, run_id: UUID) -> bool:
        await self._db.round_trip()
        if run_id not in self._marked:
            await self._db.unlocked([run_id])
        if run_id not in self._db.running:
            return False
        self._marked.add(run_id)
        self._db.row_locks[run_id] = self._ended
        return True

    async def find_run(self, tenant_id: UUID, run_id: UUID) -> tuple[UUID, RunState] | None:
        await self._db.round_trip()
        row = self._planted.get(run_id) or self._db.pending.get(run_id)
        if row is not None and run_id not in self._deleted:
            return (row.task_id, RunState.PENDING) if row.tenant_id == tenant_id else None
        if (running := self._db.running.get(run_id)) is not None:
            return (running.run.task_id, RunState.RUNNING) if running.run.tenant_id == tenant_id else None
        for ended in [*self._db.history.values(), *self._recorded]:
            if ended.run_id == run_id and ended.tenant_id == tenant_id and ended.state is not None:
                return ended.task_id, ended.state
        return None

    async def claim_key(self, tenant_id: UUID, key: str, request_hash: bytes, task_id: UUID) -> bool:
        await self._db.round_trip()
        await self._hold(self._db.key_locks[tenant_id, key])
        if (tenant_id, key) in self._db.idempotency or (tenant_id, key) in self._claimed:
            return False
        self._claimed[tenant_id, key] = IdempotencyKey(request_hash, task_id, self._db.now())
        return True

    async def key_holder(self, tenant_id: UUID, key: str) -> tuple[bytes, UUID] | None:
        await self._db.round_trip()
        held = self._claimed.get((tenant_id, key)) or self._db.idempotency.get((tenant_id, key))
        return (held.request_hash, held.task_id) if held is not None else None

    def commit(self) -> None:
        """Makes the changes everybody's, all at once."""
        for task_id, task in self._tasks.items():
            self._db.tasks[task_id] = task
            self._db.unreadable.pop(task_id, None)
        for run_id in self._deleted:
            self._db.pending.remove(run_id)
        for row in self._planted.values():
            self._db.pending.add(row)
        for run_id in self._marked:
            self._db.running[run_id].cancelled = True
        for ended in self._recorded:
            self._db.record(ended)
        self._db.idempotency.update(self._claimed)

    def release(self) -> None:
        """Lets go of every lock, at the write's end, however it ended."""
        for run_id in self._deleted | self._marked:
            self._db.row_locks.pop(run_id, None)
        self._ended.set()
        for lock in self._held:
            lock.release()

    async def _hold(self, lock: asyncio.Lock) -> None:
        if lock not in self._held:
            await lock.acquire()
            self._held.append(lock)

    async def _take(self, run_id: UUID, only: Kind | None = None) -> Pending | None:
        """Deletes a pending row, of one kind if `only` is given, for this write; None where it is gone."""
        if run_id in self._planted:
            return self._planted.pop(run_id)
        if run_id in self._deleted:
            return None
        await self._db.unlocked([run_id])
        row = self._db.pending.get(run_id)
        if row is None or (only is not None and row.kind is not only):
            return None
        self._deleted.add(run_id)
        self._db.row_locks[run_id] = self._ended
        return row

    def _pending_of(self, task_id: UUID) -> list[Pending]:
        committed = [row for row in self._db.pending.of_task(task_id) if row.run_id not in self._deleted]
        return committed + [row for row in self._planted.values() if row.task_id == task_id]


class MemoryTasks:
    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    @asynccontextmanager
    async def write(self) -> AsyncIterator[MemoryTaskTransaction]:
        await self._db.round_trip()
        transaction = MemoryTaskTransaction(self._db)
        try:
            yield transaction
            reach("api.write.before")
            await self._db.round_trip()
            transaction.commit()
        finally:
            transaction.release()
        reach("api.write.after")

    async def notify(self, payload: str) -> None:
        await self._db.round_trip()
        self._db.notified.append(payload)

    async def definitions(self, task_ids: Sequence[UUID]) -> tuple[list[Task], list[FaultyDefinitionError]]:
        await self._db.round_trip()
        found = [self._db.tasks[task_id] for task_id in dict.fromkeys(task_ids) if task_id in self._db.tasks]
        broken = self._db.unreadable
        faulty = [FaultyDefinitionError(task.id, broken[task.id]) for task in found if task.id in broken]
        return [task for task in found if task.id not in broken], faulty

    async def mark_faulty(self, faults: Sequence[TaskFault]) -> None:
        for fault in sorted(faults, key=lambda fault: fault.task_id):
            await self._db.round_trip()
            async with self._db.task_locks[fault.task_id]:
                task = self._db.tasks.get(fault.task_id)
                if task is None or task.state is not TaskState.ACTIVE or task.plan_version != fault.plan_version:
                    continue
                self._db.tasks[fault.task_id] = replace(
                    task, state=TaskState.FAULTY, fault=fault.reason, updated_at=self._db.now()
                )

    async def get(self, tenant_id: UUID, task_id: UUID) -> TaskView | None:
        await self._db.round_trip()
        task = self._db.tasks.get(task_id)
        if task is None or task.tenant_id != tenant_id or task.state is TaskState.DELETED:
            return None
        return view_of(self._db, task)

    async def listing(self, tenant_id: UUID, before: UUID | None, limit: int) -> list[TaskView]:
        await self._db.round_trip()
        found = [
            task
            for task in self._db.tasks.values()
            if task.tenant_id == tenant_id
            and task.state is not TaskState.DELETED
            and (before is None or task.id < before)
        ]
        found.sort(key=lambda task: task.id, reverse=True)
        return [view_of(self._db, task) for task in found[:limit]]

    async def runs(self, tenant_id: UUID, task_id: UUID, before: UUID | None, limit: int) -> list[RunSummary]:
        await self._db.round_trip()
        found = [
            summary for summary in summaries(self._db, tenant_id, task_id) if before is None or summary.run_id < before
        ]
        return found[:limit]

    async def run(self, tenant_id: UUID, run_id: UUID) -> RunView | None:
        await self._db.round_trip()
        attempts = attempts_of(self._db, tenant_id, run_id)
        pending = self._db.pending.get(run_id)
        running = self._db.running.get(run_id)
        ended = [row for row in attempts if row.state is not None]
        last: Pending | Begun | HistoryRow
        if pending is not None and pending.tenant_id == tenant_id:
            last, state = pending, RunState.PENDING
        elif running is not None and running.run.tenant_id == tenant_id:
            last, state = running.run, RunState.RUNNING
        elif ended and ended[-1].state is not None:
            last, state = ended[-1], ended[-1].state
        else:
            return None
        return RunView(
            run_id=run_id,
            task_id=last.task_id,
            state=state,
            kind=last.kind,
            slot=last.slot,
            due_at=last.due_at,
            cancelled=running is not None and running.cancelled,
            attempts=tuple(attempts),
        )
