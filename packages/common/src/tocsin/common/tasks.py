"""Writes on tasks and runs (rule 2): the task is locked first, and nobody plants what he has not deleted.

Each function is one transaction. The next row is looked for and deleted in a new statement each time, until one
delete returns it or a look finds none: a begin under way may replace it in between.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from tocsin.common.clock import PARKED
from tocsin.common.errors import ConflictError, FaultyDefinitionError, FieldError, NotFoundError
from tocsin.common.ids import Ids
from tocsin.common.models import CallSpec, Kind, PlanSpec, TaskState
from tocsin.common.planting import Planter
from tocsin.common.states import RunState
from tocsin.common.store.faulty import FaultyTask
from tocsin.common.store.next_rows import Planned
from tocsin.common.store.ports import TaskStore, TaskTransaction
from tocsin.common.store.rows import Pending, SkipReason, Task
from tocsin.common.time.schedule import check_plan, due_at, next_slot
from tocsin.common.time.zone_change import slot_by_new_rules

_LOOKS = 5
"""How often a cancel looks through the tables for a run that is seen and never met: a parked row, or one in a race."""


@dataclass(frozen=True, slots=True)
class NewTask:
    """What a tenant asks for. `plan` decides from the database's time: an interval may take its anchor from it."""

    name: str
    plan: Callable[[datetime], PlanSpec]
    call: CallSpec
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Idempotency:
    key: str
    request_hash: bytes


@dataclass(frozen=True, slots=True)
class Created:
    """`replayed`: the key had been used for the same request, and this is what it made."""

    task_id: UUID
    replayed: bool


class KeyReusedError(ConflictError):
    """The idempotency key belongs to another request."""


class Tasks:
    """The writes. `woken` is told (tenant, priority) after a commit that changed what is due there."""

    def __init__(self, store: TaskStore, ids: Ids, woken: Callable[[UUID, int], None]) -> None:
        self._store = store
        self._ids = ids
        self._planter = Planter(ids)
        self._woken = woken

    async def create(self, tenant_id: UUID, new: NewTask, idempotency: Idempotency | None = None) -> Created:
        """Stores a task and plants its first slot, in one transaction.

        Raises:
            FieldError: the schedule has no slot to come.
            KeyReusedError: the idempotency key was used for another request.
        """
        async with self._store.write() as tx:
            now = await tx.now()
            task_id = self._ids.new(now)
            if idempotency is not None and (made := await _replay(tx, tenant_id, idempotency, task_id)) is not None:
                return Created(made, replayed=True)
            plan = new.plan(now)
            check_plan(plan)
            slot = next_slot(plan, now)
            if slot is None:
                raise FieldError("schedule", f"has no slot after now ({now.isoformat(timespec='seconds')})")
            task = Task(
                id=task_id,
                tenant_id=tenant_id,
                name=new.name,
                state=TaskState.ACTIVE,
                version=1,
                plan_version=1,
                plan=plan,
                call=new.call,
                body=new.body,
                created_at=now,
                updated_at=now,
            )
            await tx.insert(task)
            await tx.plant([self._planter.next_row(task, slot, None, now)])
        self._woken(tenant_id, plan.priority)
        return Created(task_id, replayed=False)

    async def edit(
        self,
        tenant_id: UUID,
        task_id: UUID,
        change: Callable[[Task, datetime], Task],
        mend: Callable[[FaultyTask, datetime], Task] | None = None,
    ) -> Task:
        """Applies `change` to the locked task, or `mend` where its definition cannot be read whole. A change of
        nothing the plan reads leaves the next row alone; a task that is mended is always planned anew.

        Raises:
            NotFoundError, FieldError; FaultyDefinitionError: the definition cannot be read, and there is no `mend`.
        """
        async with self._store.write() as tx:
            try:
                old, now = await _lock(tx, tenant_id, task_id)
                new, mended = change(old, now), False
            except FaultyDefinitionError:
                locked = await tx.lock_faulty(tenant_id, task_id)
                if locked is None or mend is None:
                    raise
                (faulty, now), old, mended = locked, locked[0].task, True
                new = mend(faulty, now)
            if not mended and (new.name, new.plan, new.call, new.body) == (old.name, old.plan, old.call, old.body):
                return old
            replan = mended or new.plan != old.plan or old.state is TaskState.FAULTY
            state = TaskState.ACTIVE if old.state is TaskState.FAULTY else old.state
            new = replace(
                new,
                version=old.version + 1,
                plan_version=old.plan_version + replan,
                state=state,
                fault=None,
                updated_at=now,
            )
            new = await tx.update(new)
            if replan:
                check_plan(new.plan)
            if replan or state is TaskState.PAUSED:
                await self._replan(tx, old, new, now)
        self._woken(tenant_id, new.plan.priority)
        return new

    async def pause(self, tenant_id: UUID, task_id: UUID) -> Task:
        """Parks the next row and withdraws what waits; what runs goes on. Pausing a paused task changes nothing."""
        async with self._store.write() as tx:
            task, now = await _lock(tx, tenant_id, task_id)
            if task.state is TaskState.PAUSED:
                return task
            paused = replace(task, state=TaskState.PAUSED, version=task.version + 1, updated_at=now)
            paused = await tx.update(paused)
            row = await take_next(tx, task_id)
            await tx.withdraw_waiting(task_id, SkipReason.PAUSED)
            if row is not None:
                accounted = await self._planter.end_row(tx, task, row, now, SkipReason.PAUSED)
                await tx.plant([self._planter.parked_row(paused, accounted, now)])
        return paused

    async def resume(self, tenant_id: UUID, task_id: UUID) -> Task:
        """Plants the first slot after now; the slots of the pause are one recorded skip."""
        async with self._store.write() as tx:
            task, now = await _lock(tx, tenant_id, task_id)
            found = await tx.find_next(task_id)
            if task.state is TaskState.ACTIVE and (found is None or found.slot is not None):
                return task
            active = replace(task, state=TaskState.ACTIVE, version=task.version + 1, fault=None, updated_at=now)
            active = await tx.update(active)
            paused = task.state is TaskState.PAUSED
            base = await self._planter.base(tx, active, await take_next(tx, task_id), now)
            accounted = await self._planter.account(
                tx,
                task,
                base,
                task.updated_at if paused else base,
                now,
                SkipReason.PAUSED if paused else SkipReason.FAULTY,
            )
            await self._planter.plant_after(tx, active, now, accounted)
        self._woken(tenant_id, active.plan.priority)
        return active

    async def delete(self, tenant_id: UUID, task_id: UUID) -> None:
        """Ends the task: its next row and waiting runs are skipped, what runs goes on to its end, no retry follows.

        A task whose definition cannot be read can be deleted too.
        """
        async with self._store.write() as tx:
            reference = await tx.lock_any(tenant_id, task_id)
            if reference is None or reference.state is TaskState.DELETED:
                raise NotFoundError("no such task")
            task = await _readable(tx, tenant_id, task_id)
            await tx.mark_deleted(task_id)
            row = await take_next(tx, task_id)
            await tx.withdraw_waiting(task_id, SkipReason.DELETED)
            if row is None or row.slot is None or row.slot > reference.now:
                return
            if task is not None:
                await self._planter.end_row(tx, task, row, reference.now, SkipReason.DELETED)
            else:
                await tx.record_skip(tenant_id, task_id, self._planter.skip_of(row, SkipReason.DELETED, reference.now))

    async def skip_next(self, tenant_id: UUID, task_id: UUID) -> datetime:
        """Skips the next slot, and says which it was.

        Raises:
            NotFoundError; ConflictError: there is no next slot.
        """
        async with self._store.write() as tx:
            task, now = await _lock(tx, tenant_id, task_id)
            row = await take_next(tx, task_id)
            if row is None or row.slot is None:
                raise ConflictError("the task has no next slot to skip: it is paused, faulty or ended")
            await tx.record_skip(tenant_id, task_id, self._planter.skip_of(row, SkipReason.SKIPPED, now))
            accounted = await self._planter.account(tx, task, row.slot, row.slot, now, SkipReason.SKIPPED)
            await self._planter.plant_after(tx, task, now, accounted)
        self._woken(tenant_id, task.plan.priority)
        return row.slot

    async def run_now(self, tenant_id: UUID, task_id: UUID, *, force: bool = False) -> UUID:
        """Plants a run that is due at once; `force` starts it whatever else of the task is running.

        Raises:
            NotFoundError; ConflictError: the task is paused.
        """
        async with self._store.write() as tx:
            task, now = await _lock(tx, tenant_id, task_id)
            if task.state is TaskState.PAUSED:
                raise ConflictError("the task is paused; resume it first")
            kind = Kind.FORCED if force else Kind.NOW
            run = replace(self._planter.parked_row(task, None, now), due_at=now, kind=kind)
            await tx.plant([run])
        self._woken(tenant_id, task.plan.priority)
        return run.run_id

    async def replant(self, tenant_id: UUID, task_id: UUID) -> bool:
        """Plans an active task's next row anew, since the zone data has changed; says whether it was replaced.

        A row that `stands` is left alone. The plan version grows with a replacement; the version does not: nothing
        about the call has changed, and what is in flight goes on. Slots that the change leaves between are one
        recorded skip.

        Raises:
            FaultyDefinitionError.
        """
        async with self._store.write() as tx:
            locked = await tx.lock(tenant_id, task_id)
            if locked is None or locked[0].state is not TaskState.ACTIVE:
                return False
            task, now = locked
            while True:
                row = await tx.find_next(task_id)
                base = row.last_slot if row is not None else await tx.greatest_slot(task_id)
                if stands(task, row, base, now):
                    return False
                if row is None or await tx.delete_next(row.run_id):
                    break
            slot = slot_by_new_rules(task.plan, row.slot if row is not None else None, base, task.updated_at, now)
            task = await tx.update(replace(task, plan_version=task.plan_version + 1))
            through = None if slot is None else slot - timedelta(seconds=1)
            accounted = await self._planter.account(
                tx, task, base, task.updated_at, now, SkipReason.ZONE_DATA, through=through
            )
            if slot is not None:
                await tx.plant([self._planter.next_row(task, slot, accounted, now)])
        self._woken(tenant_id, task.plan.priority)
        return True

    async def cancel(self, tenant_id: UUID, run_id: UUID) -> RunState:
        """Cancels a run that has not ended: rule 8. Says the state it was found in.

        Raises:
            NotFoundError; ConflictError: it has ended.
        """
        async with self._store.write() as tx:
            found = await tx.find_run(tenant_id, run_id)
            if found is None:
                raise NotFoundError("no such run")
            reference = await tx.lock_any(tenant_id, found[0])
            if reference is None:
                raise NotFoundError("no such run")
            row = await _cancel(tx, tenant_id, run_id)
            replanted = row is not None and row.kind is Kind.NEXT and row.slot is not None
            if row is not None and replanted:
                await self._replant_cancelled(tx, row, reference.now)
        if row is not None and replanted:
            self._woken(tenant_id, row.priority)
        return RunState.RUNNING if row is None else RunState.PENDING

    async def _replant_cancelled(self, tx: TaskTransaction, row: Pending, now: datetime) -> None:
        task = await _readable(tx, row.tenant_id, row.task_id)
        if task is None:  # its owner will find the definition unreadable, and park it, too
            parked = replace(row, run_id=self._ids.new(now), slot=None, due_at=PARKED, last_slot=row.slot)
            await tx.plant([parked])
            return
        accounted = await self._planter.account(tx, task, row.slot, row.slot, now, SkipReason.SKIPPED)
        await self._planter.plant_after(tx, task, now, accounted)

    async def _replan(self, tx: TaskTransaction, old: Task, new: Task, now: datetime) -> None:
        """Replaces the next row of an edited task; the old schedule's slots up to now are one recorded skip."""
        row = await take_next(tx, new.id)
        if new.state is TaskState.PAUSED:
            base = row.last_slot if row is not None else await tx.greatest_slot(new.id)
            accounted = await self._planter.account(tx, old, base, old.updated_at, now, SkipReason.PAUSED)
            await tx.plant([self._planter.parked_row(new, accounted, now)])
            return
        same_slots = new.plan == old.plan.model_copy(update={"priority": new.plan.priority})
        if row is not None and row.slot is not None and same_slots:
            await tx.plant([replace(self._planter.next_row(new, row.slot, row.last_slot, now), due_at=row.due_at)])
            return
        base = await self._planter.base(tx, new, row, now)
        if row is not None and (row.slot is None or row.slot <= now):
            # else no slot of the old plan lies between, and `base` may be older than that plan
            base = await self._planter.account(tx, old, base, base, now, SkipReason.EDITED)
        await self._planter.plant_after(tx, new, now, base)


def stands(task: Task, row: Pending | Planned | None, base: datetime | None, now: datetime) -> bool:
    """Whether a task's next row is as the zone data in use plans it. `base`: the last slot accounted for before it.

    A parked row stands, and so does one whose slot has come: its owner begins it, and plans what follows.
    """
    if row is None:
        return slot_by_new_rules(task.plan, None, base, task.updated_at, now) is None
    if row.slot is None or row.slot <= now:
        return True
    slot = slot_by_new_rules(task.plan, row.slot, base, task.updated_at, now)
    return slot is not None and (slot, due_at(task.plan, task.id, slot)) == (row.slot, row.due_at)


async def take_next(tx: TaskTransaction, task_id: UUID) -> Pending | None:
    """Deletes the next row of a locked task and returns it; None where a look finds none (rule 2)."""
    while (row := await tx.find_next(task_id)) is not None:
        if await tx.delete_next(row.run_id):
            return row
    return None


async def _cancel(tx: TaskTransaction, tenant_id: UUID, run_id: UUID) -> Pending | None:
    """Ends a pending run and returns its row, or marks a running one: None. A run may move between two looks."""
    for _ in range(_LOOKS):
        row = await tx.cancel_pending(run_id)
        if row is not None or await tx.cancel_running(run_id):
            return row
        found = await tx.find_run(tenant_id, run_id)
        if found is None or found[1].terminal:
            break
    raise ConflictError("the run has ended, or stands for no slot before its task is resumed")


async def _lock(tx: TaskTransaction, tenant_id: UUID, task_id: UUID) -> tuple[Task, datetime]:
    locked = await tx.lock(tenant_id, task_id)
    if locked is None:
        raise NotFoundError("no such task")
    return locked


async def _readable(tx: TaskTransaction, tenant_id: UUID, task_id: UUID) -> Task | None:
    try:
        locked = await tx.lock(tenant_id, task_id)
    except FaultyDefinitionError:
        return None
    return None if locked is None else locked[0]


async def _replay(tx: TaskTransaction, tenant_id: UUID, idempotency: Idempotency, task_id: UUID) -> UUID | None:
    """Claims the key for `task_id`: None. Held by an equal request: the task that it made."""
    while not await tx.claim_key(tenant_id, idempotency.key, idempotency.request_hash, task_id):
        holder = await tx.key_holder(tenant_id, idempotency.key)
        if holder is None:
            continue  # it was forgotten for its age between the two statements
        request_hash, made = holder
        if request_hash != idempotency.request_hash:
            raise KeyReusedError("this Idempotency-Key was used for another request")
        return made
    return None
