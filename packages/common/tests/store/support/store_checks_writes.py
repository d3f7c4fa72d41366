"""Rule 2: what writes on tasks do, whoever keeps the store."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from store_bench import Bench
from store_builders import (
    CALL,
    HOUR,
    a_lease,
    a_task,
    a_tenant,
    begin_one,
    ended,
    fail_once,
    hourly,
    rolled_back,
    the_task,
    waiting,
)
from store_chain import faults
from tocsin.common.clock import PARKED
from tocsin.common.errors import ConflictError, FaultyDefinitionError, FieldError, NotFoundError
from tocsin.common.models import AtSchedule, EverySchedule, Kind, PlanSpec, Priority, TaskState
from tocsin.common.states import RunState
from tocsin.common.store.faulty import FaultyTask
from tocsin.common.store.rows import BeginItem, SkipReason, Task, TaskFault
from tocsin.common.tasks import Idempotency, KeyReusedError, NewTask

Change = Callable[[Task, datetime], Task]


def replanned(**changes: Any) -> Change:
    return lambda task, _: replace(task, plan=task.plan.model_copy(update=changes))


def half_hourly(task: Task, _: datetime) -> Task:
    assert isinstance(task.plan.schedule, EverySchedule)
    schedule = EverySchedule(every_seconds=1800, anchor=task.plan.schedule.anchor)
    return replace(task, plan=task.plan.model_copy(update={"schedule": schedule}))


async def check_creation_plants_the_first_slot(bench: Bench) -> None:
    tenant = await a_tenant(bench)
    task = await a_task(bench, tenant, hourly(priority=Priority.LOW))
    row = await bench.next_row(task.id)
    assert (task.state, task.version, task.plan_version, task.body) == (TaskState.ACTIVE, 1, 1, b"body")
    assert (row.tenant_id, row.fence, row.kind, row.priority) == (tenant, 0, Kind.NEXT, Priority.LOW)
    assert (row.slot, row.last_slot, row.plan_version) == (row.due_at, None, 1)
    assert bench.woken == [(tenant, Priority.LOW)]
    view = await bench.store.tasks.get(tenant, task.id)
    assert view is not None
    assert (view.task, view.next_slot, view.next_due_at, view.fault) == (task, row.slot, row.due_at, None)
    assert await bench.store.tasks.get(bench.ids.new(), task.id) is None


async def check_a_failed_creation_leaves_nothing(bench: Bench) -> None:
    tenant = await a_tenant(bench)
    past = datetime(2001, 1, 1, tzinfo=(await bench.now()).tzinfo)
    new = NewTask("late", lambda _: PlanSpec(schedule=AtSchedule(at=past)), CALL, None)
    key = Idempotency("key", b"hash")
    with pytest.raises(FieldError):
        await bench.tasks.create(tenant, new, key)
    assert await bench.store.tasks.listing(tenant, None, 10) == []
    assert not (await bench.tasks.create(tenant, NewTask("t", hourly(), CALL, None), key)).replayed


async def check_an_idempotency_key_makes_one_task(bench: Bench) -> None:
    tenant = await a_tenant(bench)
    new = NewTask("task", hourly(), CALL, None)
    key = Idempotency("key", b"hash")
    first, second = await asyncio.gather(*(bench.tasks.create(tenant, new, key) for _ in range(2)))
    assert first.task_id == second.task_id
    assert sorted([first.replayed, second.replayed]) == [False, True]
    assert (await bench.tasks.create(tenant, new, key)).replayed
    with pytest.raises(KeyReusedError):
        await bench.tasks.create(tenant, new, Idempotency("key", b"other"))
    stranger = await a_tenant(bench)
    assert not (await bench.tasks.create(stranger, new, key)).replayed
    assert len(await bench.store.tasks.listing(tenant, None, 10)) == 1


async def check_old_idempotency_keys_are_forgotten(bench: Bench) -> None:
    tenant = await a_tenant(bench)
    new = NewTask("task", hourly(), CALL, None)
    await bench.tasks.create(tenant, new, Idempotency("key", b"hash"))
    assert await bench.store.history.expire_keys(60) == 0
    await bench.now()
    assert await bench.store.history.expire_keys(0) == 1
    assert not (await bench.tasks.create(tenant, new, Idempotency("key", b"other"))).replayed


async def check_tasks_are_listed_newest_first(bench: Bench) -> None:
    tenant = await a_tenant(bench)
    tasks = [await a_task(bench, tenant) for _ in range(3)]
    await a_task(bench)
    listing = bench.store.tasks.listing
    assert [view.id for view in await listing(tenant, None, 10)] == [task.id for task in tasks[::-1]]
    assert [view.id for view in await listing(tenant, tasks[2].id, 1)] == [tasks[1].id]


async def check_an_edit_of_the_plan_replaces_the_next_row(bench: Bench) -> None:
    task = await a_task(bench)
    old = await bench.next_row(task.id)
    edited = await bench.tasks.edit(task.tenant_id, task.id, half_hourly)
    new = await bench.next_row(task.id)
    assert (edited.version, edited.plan_version) == (2, 2)
    assert (new.run_id != old.run_id, new.slot, new.plan_version) == (True, old.slot, 2)
    assert await faults(bench, task) == []


async def check_an_edit_of_the_priority_keeps_the_slot(bench: Bench) -> None:
    task = await a_task(bench, plan=hourly(spread_seconds=600))
    old = await bench.next_row(task.id)
    await bench.tasks.edit(task.tenant_id, task.id, replanned(priority=Priority.CRITICAL))
    new = await bench.next_row(task.id)
    assert (new.slot, new.due_at, new.priority) == (old.slot, old.due_at, Priority.CRITICAL)
    assert (new.run_id != old.run_id, new.plan_version) == (True, 2)


async def check_an_edit_that_the_plan_does_not_read_leaves_the_row(bench: Bench) -> None:
    task = await a_task(bench)
    old = await bench.next_row(task.id)
    edited = await bench.tasks.edit(task.tenant_id, task.id, lambda task, _: replace(task, body=b"new"))
    assert (edited.version, edited.plan_version, edited.body) == (2, 1, b"new")
    assert await bench.next_row(task.id) == old
    same = await bench.tasks.edit(task.tenant_id, task.id, lambda task, _: task)
    assert same.version == 2


async def check_a_refused_edit_changes_nothing(bench: Bench) -> None:
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    end = datetime(1980, 1, 1, tzinfo=row.due_at.tzinfo)
    schedule = AtSchedule(at=end + HOUR)
    with pytest.raises(FieldError):
        await bench.tasks.edit(task.tenant_id, task.id, replanned(schedule=schedule, end=end))
    assert await the_task(bench, task.id) == task
    assert await bench.next_row(task.id) == row


async def check_an_edit_keeps_the_run_of_a_slot_already_past(bench: Bench) -> None:
    task = await a_task(bench)
    await bench.shift(task.id, 2 * 3600)
    old = await bench.next_row(task.id)
    await bench.tasks.edit(task.tenant_id, task.id, half_hourly)
    kept, new = await bench.pending(task.id)
    assert (kept.kind, kept.slot, kept.last_slot) == (Kind.SLOT, old.slot, old.last_slot)
    assert (kept.run_id != old.run_id, new.kind) == (True, Kind.NEXT)
    assert await faults(bench, task) == []


async def check_a_pause_parks_and_withdraws(bench: Bench) -> None:
    task = await a_task(bench)
    now_run = await bench.tasks.run_now(task.tenant_id, task.id)
    paused = await bench.tasks.pause(task.tenant_id, task.id)
    assert (paused.state, paused.version) == (TaskState.PAUSED, 2)
    row = await bench.next_row(task.id)
    assert (row.due_at, row.slot, row.last_slot) == (PARKED, None, None)
    (withdrawn,) = await bench.history(task.id)
    assert (withdrawn.run_id, withdrawn.state, withdrawn.reason) == (now_run, RunState.SKIPPED, "paused")
    assert await bench.tasks.pause(task.tenant_id, task.id) == paused
    with pytest.raises(ConflictError):
        await bench.tasks.run_now(task.tenant_id, task.id)
    with pytest.raises(ConflictError):
        await bench.tasks.skip_next(task.tenant_id, task.id)
    view = await bench.store.tasks.get(task.tenant_id, task.id)
    assert view is not None
    assert (view.next_slot, view.next_due_at) == (None, PARKED)


async def check_a_resume_records_the_slots_of_the_pause(bench: Bench) -> None:
    task = await a_task(bench)
    await bench.tasks.pause(task.tenant_id, task.id)
    await bench.shift(task.id, 3 * 3600)
    resumed = await bench.tasks.resume(task.tenant_id, task.id)
    assert (resumed.state, resumed.version) == (TaskState.ACTIVE, 3)
    (skip,) = await bench.history(task.id)
    row = await bench.next_row(task.id)
    assert (skip.reason, skip.skip_count, skip.skip_exact) == ("paused", 3, True)
    assert (row.last_slot, row.slot) == (skip.until_slot, skip.until_slot and skip.until_slot + HOUR)
    assert await faults(bench, task) == []
    assert await bench.tasks.resume(task.tenant_id, task.id) == resumed


async def check_an_edit_of_a_paused_task_leaves_it_parked(bench: Bench) -> None:
    task = await a_task(bench)
    await bench.tasks.pause(task.tenant_id, task.id)
    edited = await bench.tasks.edit(task.tenant_id, task.id, half_hourly)
    row = await bench.next_row(task.id)
    assert (edited.state, row.due_at, row.plan_version) == (TaskState.PAUSED, PARKED, 2)


async def check_an_edit_heals_a_faulty_task(bench: Bench) -> None:
    task = await a_task(bench)
    other = await a_task(bench)
    await bench.tasks.pause(other.tenant_id, other.id)
    faulty_ids = [(task.id, "why"), (other.id, "no"), (bench.ids.new(), "none")]
    await bench.store.tasks.mark_faulty([TaskFault(task.id, 2, "of a plan to come")])
    assert (await the_task(bench, task.id)).state is TaskState.ACTIVE
    await bench.store.tasks.mark_faulty([TaskFault(task_id, 1, why) for task_id, why in faulty_ids])
    faulty = await the_task(bench, task.id)
    assert (faulty.state, faulty.fault, faulty.version) == (TaskState.FAULTY, "why", 1)
    assert (await the_task(bench, other.id)).state is TaskState.PAUSED
    edited = await bench.tasks.edit(task.tenant_id, task.id, half_hourly)
    assert (edited.state, edited.fault) == (TaskState.ACTIVE, None)
    assert await faults(bench, task) == []


async def check_a_definition_that_cannot_be_read_hides_no_other(bench: Bench) -> None:
    tenant = await a_tenant(bench)
    good, bad = await a_task(bench, tenant), await a_task(bench, tenant)
    await bench.spoil(bad.id)
    tasks, faulty = await bench.store.tasks.definitions([bad.id, good.id, bench.ids.new()])
    assert [task.id for task in tasks] == [good.id]
    assert [error.task_id for error in faulty] == [bad.id]
    views = {view.id: view for view in await bench.store.tasks.listing(tenant, None, 10)}
    assert (views[bad.id].task, views[bad.id].fault is None) == (None, False)
    assert views[good.id].task == good
    with pytest.raises(FaultyDefinitionError):
        await bench.tasks.pause(tenant, bad.id)
    await bench.tasks.delete(tenant, bad.id)
    assert await bench.pending(bad.id) == []


async def check_a_definition_that_cannot_be_read_is_mended(bench: Bench) -> None:
    """What is known of the old schedule's slots is nothing: the new one goes on from the last slot accounted for."""
    task = await a_task(bench)
    lease = await a_lease(bench)
    run = await begin_one(bench, lease, await bench.next_row(task.id))
    await bench.spoil(task.id)
    with pytest.raises(FaultyDefinitionError):
        await bench.tasks.edit(task.tenant_id, task.id, half_hourly)

    def mend(faulty: FaultyTask, _now: datetime) -> Task:
        assert list(faulty.faults) == ["schedule"]
        assert (faulty.task.call, faulty.task.body) == (task.call, task.body)
        return half_hourly(replace(task, version=faulty.task.version), _now)

    mended = await bench.tasks.edit(task.tenant_id, task.id, half_hourly, mend)
    assert (mended.state, mended.version, mended.plan_version) == (TaskState.ACTIVE, 2, 2)
    assert await the_task(bench, task.id) == mended
    row = await bench.next_row(task.id)
    assert (row.plan_version, row.last_slot) == (2, run.slot)
    assert [ended.reason for ended in await bench.history(task.id)] == []
    assert await faults(bench, task) == []
    # who had found it unreadable marks nothing now
    await bench.store.tasks.mark_faulty([TaskFault(task.id, 1, "as it was")])
    assert (await the_task(bench, task.id)).state is TaskState.ACTIVE


async def check_a_deletion_ends_what_waits(bench: Bench) -> None:
    task = await a_task(bench)
    lease = await a_lease(bench)
    run = await begin_one(bench, lease, await bench.next_row(task.id))
    await bench.tasks.run_now(task.tenant_id, task.id)
    await bench.tasks.delete(task.tenant_id, task.id)
    assert await bench.pending(task.id) == []
    assert [row.run_id for row in await bench.running(task.id)] == [run.run_id]
    assert [row.reason for row in await bench.history(task.id)] == ["deleted"]
    assert await bench.store.tasks.get(task.tenant_id, task.id) is None
    assert await bench.store.tasks.listing(task.tenant_id, None, 10) == []
    with pytest.raises(NotFoundError):
        await bench.tasks.delete(task.tenant_id, task.id)
    row = await fail_once(bench, lease, run)
    assert (await bench.store.runs.begin(lease, [BeginItem(row)])).skipped == (run.run_id,)


async def check_a_deletion_records_a_slot_already_past(bench: Bench) -> None:
    task = await a_task(bench)
    await bench.shift(task.id, 3600)
    row = await bench.next_row(task.id)
    await bench.tasks.delete(task.tenant_id, task.id)
    (skip,) = await bench.history(task.id)
    assert (skip.slot, skip.reason) == (row.slot, "deleted")


async def check_the_next_slot_can_be_skipped(bench: Bench) -> None:
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    assert await bench.tasks.skip_next(task.tenant_id, task.id) == row.slot
    assert row.slot is not None
    (skip,) = await bench.history(task.id)
    assert (skip.slot, skip.until_slot, skip.skip_count, skip.reason) == (row.slot, row.slot, 1, "skipped_by_user")
    new = await bench.next_row(task.id)
    assert (new.slot, new.last_slot) == (row.slot + HOUR, row.slot)
    assert await faults(bench, task) == []


async def check_the_last_slot_can_be_skipped(bench: Bench) -> None:
    task = await a_task(bench, plan=_once)
    slot = await bench.tasks.skip_next(task.tenant_id, task.id)
    assert await bench.pending(task.id) == []
    with pytest.raises(ConflictError):
        await bench.tasks.skip_next(task.tenant_id, task.id)
    edited = await bench.tasks.edit(task.tenant_id, task.id, _every_hour_after(slot))
    assert edited.plan_version == 2
    row = await bench.next_row(task.id)
    assert (row.slot, row.last_slot) == (slot + HOUR, slot)


async def check_a_run_now_is_due_at_once(bench: Bench) -> None:
    task = await a_task(bench)
    before = await bench.now()
    for force, kind in ((False, Kind.NOW), (True, Kind.FORCED)):
        run_id = await bench.tasks.run_now(task.tenant_id, task.id, force=force)
        (row,) = [row for row in await bench.pending(task.id) if row.run_id == run_id]
        assert (row.kind, row.slot, row.last_slot) == (kind, None, None)
        assert before <= row.due_at <= await bench.now()
    assert await faults(bench, task) == []


async def check_a_write_is_seen_whole_or_not_at_all(bench: Bench) -> None:
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    extra = waiting(bench, task, row.due_at)
    async with rolled_back(bench.store) as tx:
        await tx.lock(task.tenant_id, task.id)
        await tx.update(replace(task, version=9))
        assert await tx.delete_next(row.run_id)
        assert not await tx.delete_next(row.run_id)
        assert await tx.find_next(task.id) is None
        await tx.plant([extra])
        assert await tx.find_run(task.tenant_id, extra.run_id) == (task.id, RunState.PENDING)
        assert await tx.find_run(task.tenant_id, row.run_id) is None
        assert await bench.pending(task.id) == [row]
        assert await the_task(bench, task.id) == task
    assert await bench.pending(task.id) == [row]
    assert await the_task(bench, task.id) == task


async def check_a_retry_is_not_deleted_as_the_next_row_it_was(bench: Bench) -> None:
    """Begun, called and back between a write's look and its delete, under the id that the write has seen."""
    lease_id = await a_lease(bench)
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    retry = await fail_once(bench, lease_id, await begin_one(bench, lease_id, row))
    async with rolled_back(bench.store) as tx:
        await tx.lock(task.tenant_id, task.id)
        assert not await tx.delete_next(row.run_id)
        assert await tx.delete_next((await bench.next_row(task.id)).run_id)
    assert retry in await bench.pending(task.id)


async def check_writes_on_a_task_wait_for_each_other(bench: Bench) -> None:
    task = await a_task(bench)

    async def rename() -> None:
        await bench.tasks.edit(task.tenant_id, task.id, lambda task, _: replace(task, name=task.name + "x"))

    await asyncio.gather(*(rename() for _ in range(30)))  # that many, so that without a lock some do meet
    renamed = await the_task(bench, task.id)
    assert (renamed.name, renamed.version) == ("task" + 30 * "x", 31)


async def check_the_greatest_slot_is_found_in_every_table(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    run = await begin_one(bench, lease, row, plants=())
    async with bench.store.tasks.write() as tx:
        assert await tx.greatest_slot(task.id) == row.slot
    await bench.store.runs.complete(lease, [await ended(bench, run)])
    async with bench.store.tasks.write() as tx:
        assert await tx.greatest_slot(task.id) == row.slot
        assert await tx.greatest_slot(bench.ids.new()) is None


async def check_withdrawing_leaves_the_next_row(bench: Bench) -> None:
    task = await a_task(bench)
    runs = [await bench.tasks.run_now(task.tenant_id, task.id) for _ in range(2)]
    async with bench.store.tasks.write() as tx:
        await tx.lock(task.tenant_id, task.id)
        assert sorted(await tx.withdraw_waiting(task.id, SkipReason.PAUSED)) == sorted(runs)
    assert [row.kind for row in await bench.pending(task.id)] == [Kind.NEXT]


def _once(now: datetime) -> PlanSpec:
    return PlanSpec(schedule=AtSchedule(at=(now + HOUR).replace(microsecond=0)))


def _every_hour_after(slot: datetime) -> Change:
    return replanned(schedule=EverySchedule(every_seconds=3600, anchor=slot))
