"""What a begin promises, whoever keeps the store."""

import asyncio
from dataclasses import replace

import pytest

from store_bench import Bench
from store_builders import (
    HOUR,
    SECOND,
    a_lease,
    a_run,
    a_task,
    a_tenant,
    begin_one,
    cancel_mark,
    ended,
    fail_once,
    hourly,
    plain,
    planned,
    rolled_back,
    successor,
    the_task,
    waiting,
)
from tocsin.common.clock import PARKED
from tocsin.common.models import Kind, Priority, TaskState
from tocsin.common.states import RunState
from tocsin.common.store.rows import Backend, BeginItem, Outcome, Pending, Plant, QueuePage, Skip, SkipReason, TaskFault


async def check_begin_moves_a_next_row(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench, plan=hourly(priority=Priority.HIGH))
    row = await bench.next_row(task.id)
    plant = successor(bench, row)
    result = await bench.store.runs.begin(lease, [BeginItem(row, plants=(plant,))])
    (run,) = result.begun
    assert (result.skipped, result.busy) == ((), ())
    assert (run.run_id, run.fence, run.kind, run.slot) == (row.run_id, 1, Kind.SLOT, row.slot)
    assert (run.attempt, run.version, run.plan_version, run.due_at) == (1, 1, 1, row.due_at)
    (running,) = await bench.running(task.id)
    assert (running.run_id, running.fence, running.lease_id) == (row.run_id, 1, lease)
    assert (running.kind, running.slot, running.cancelled) == (Kind.SLOT, row.slot, False)
    (planted,) = await bench.pending(task.id)
    assert planted == replace(row, run_id=plant.run_id, due_at=plant.due_at, slot=plant.slot, last_slot=row.slot)
    assert await bench.history(task.id) == []


async def check_begin_grows_the_fence_by_one(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    again = await fail_once(bench, lease, run)
    assert (again.fence, again.kind, again.slot) == (1, Kind.SLOT, run.slot)
    second = await begin_one(bench, lease, again)
    assert (second.fence, second.attempt, second.losses) == (2, 2, 0)
    assert [row.fence for row in await bench.running(run.task_id)] == [2]
    assert second.last_slot == run.last_slot


async def check_begin_passes_by_what_is_gone_or_of_another_fence(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    for wrong in (replace(row, fence=1), replace(row, run_id=bench.ids.new())):
        result = await bench.store.runs.begin(lease, [plain(bench, wrong)])
        assert result.begun == result.skipped == result.busy == ()
    assert await bench.pending(task.id) == [row]
    await begin_one(bench, lease, row)
    again = await bench.store.runs.begin(lease, [plain(bench, row)])
    assert again.begun == ()
    assert len(await bench.pending(task.id)) == 1


async def check_begin_passes_by_what_a_write_holds(bench: Bench) -> None:
    lease = await a_lease(bench)
    task, free = await a_task(bench), await a_task(bench)
    row = await bench.next_row(task.id)
    other = await bench.next_row(free.id)
    async with rolled_back(bench.other) as tx:
        await tx.lock(task.tenant_id, task.id)
        assert await tx.delete_next(row.run_id)
        result = await bench.store.runs.begin(lease, [plain(bench, row), plain(bench, other)])
        assert [run.run_id for run in result.begun] == [other.run_id]
    assert await bench.pending(task.id) == [row]
    await begin_one(bench, lease, row)


async def check_nothing_is_begun_once_the_lease_has_ended(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    assert await bench.store.leases.expire([lease]) == [lease]
    for gone in (lease, bench.ids.new()):
        result = await bench.store.runs.begin(gone, [plain(bench, row)])
        assert result.begun == result.skipped == ()
        assert await bench.pending(task.id) == [row]
        assert await bench.running(task.id) == []


async def check_only_next_rows_are_planted_for(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    now = await bench.now()
    skip = Skip(bench.ids.new(), now, now, None, 1, True, SkipReason.MISFIRE)
    for kind in (Kind.NOW, Kind.CATCHUP, Kind.BACKFILL, Kind.REDRIVE, Kind.FORCED, Kind.SLOT):
        row = waiting(bench, task, now, kind=kind)
        await bench.put_pending([row])
        plant = Plant(bench.ids.new(), Kind.NEXT, now + HOUR, now + HOUR, now)
        run = await begin_one(bench, lease, row, plants=(plant,), skips=(skip,))
        assert run.kind is kind
    assert len(await bench.next_rows(task.id)) == 1
    assert len(await bench.pending(task.id)) == 1
    assert await bench.history(task.id) == []


async def check_a_parked_successor_stays_parked(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    assert row.slot is not None
    parked = Plant(bench.ids.new(), Kind.NEXT, PARKED, None, row.slot)
    await begin_one(bench, lease, row, plants=(parked,))
    planted = await bench.next_row(task.id)
    assert (planted.due_at, planted.slot, planted.last_slot) == (PARKED, None, row.slot)
    page = QueuePage(task.tenant_id, task.plan.priority, 0, 1024, 10)
    assert await bench.store.runs.heads([page], 1e9) == []


async def check_a_due_instant_already_past_becomes_now(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    before = await bench.now()
    assert row.slot is not None
    past = Plant(bench.ids.new(), Kind.CATCHUP, before - HOUR, before - HOUR, row.slot)
    await begin_one(bench, lease, row, plants=(past, successor(bench, row)))
    (catch_up,) = [row for row in await bench.pending(task.id) if row.kind is Kind.CATCHUP]
    assert before <= catch_up.due_at <= await bench.now()
    assert catch_up.slot == past.slot


async def check_a_waiting_run_of_a_task_that_does_not_run_is_skipped(bench: Bench) -> None:
    lease = await a_lease(bench)
    for state, reason in ((TaskState.PAUSED, "paused"), (TaskState.DELETED, "deleted")):
        task = await a_task(bench)
        row = waiting(bench, task, await bench.now())
        await bench.put_pending([row])
        async with bench.store.tasks.write() as tx:
            await tx.lock(task.tenant_id, task.id)
            await tx.update(replace(task, state=state))
        result = await bench.store.runs.begin(lease, [plain(bench, row)])
        assert (result.begun, result.skipped) == ((), (row.run_id,))
        (end,) = await bench.history(task.id)
        assert (end.run_id, end.state, end.outcome) == (row.run_id, RunState.SKIPPED, Outcome.SKIPPED)
        assert (end.reason, end.kind, end.sent, end.fence) == (reason, Kind.NOW, False, 0)


async def check_a_run_whose_task_is_missing_is_skipped(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    orphan = replace(row, run_id=bench.ids.new(), task_id=bench.ids.new())
    await bench.put_pending([orphan])
    result = await bench.store.runs.begin(lease, [plain(bench, orphan)])
    assert result.skipped == (orphan.run_id,)
    (end,) = await bench.history(orphan.task_id)
    assert end.reason == "deleted"
    assert await bench.pending(orphan.task_id) == []


async def check_catch_up_runs_yield_to_live_ones(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench, plan=hourly(priority=Priority.HIGH))
    row = await bench.next_row(task.id)
    assert row.slot is not None
    late = Plant(bench.ids.new(), Kind.CATCHUP, await bench.now(), row.slot, row.slot)
    await begin_one(bench, lease, row, plants=(late, successor(bench, row)))
    priorities = {row.kind: row.priority for row in await bench.pending(task.id)}
    assert priorities == {Kind.CATCHUP: Priority.LOW, Kind.NEXT: Priority.HIGH}


async def check_a_faulty_task_is_begun_all_the_same(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    await bench.store.tasks.mark_faulty([TaskFault(task.id, 1, "cannot be planned")])
    assert (await the_task(bench, task.id)).state is TaskState.FAULTY
    assert (await begin_one(bench, lease, await bench.next_row(task.id))).version == task.version


async def check_a_verdict_skips_and_plants(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    assert row.slot is not None
    verdict = Skip(row.run_id, row.slot, row.slot + HOUR, row.last_slot, 2, True, SkipReason.MISFIRE)
    extra = Skip(
        bench.ids.new(), row.slot + 2 * HOUR, row.slot + 4 * HOUR, row.slot + HOUR, 3, False, SkipReason.MISFIRE
    )
    plant = Plant(bench.ids.new(), Kind.NEXT, row.slot + 5 * HOUR, row.slot + 5 * HOUR, row.slot + 4 * HOUR)
    result = await bench.store.runs.begin(lease, [BeginItem(row, False, verdict, (plant,), (extra,))])
    assert (result.begun, result.skipped) == ((), (row.run_id,))
    first, second = await bench.history(task.id)
    assert (first.run_id, first.slot, first.until_slot) == (row.run_id, row.slot, row.slot + HOUR)
    assert (first.skip_count, first.skip_exact, first.kind, first.due_at) == (2, True, Kind.SLOT, row.due_at)
    assert first.last_slot == row.last_slot
    assert (second.run_id, second.slot, second.last_slot) == (extra.run_id, extra.first_slot, row.slot + HOUR)
    assert (second.until_slot, second.skip_count, second.skip_exact) == (extra.until_slot, 3, False)
    assert {first.reason, second.reason} == {"misfire"}
    assert (await bench.next_row(task.id)).last_slot == row.slot + 4 * HOUR
    assert await bench.running(task.id) == []


async def check_a_verdict_on_a_run_without_a_slot_needs_only_a_reason(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    row = waiting(bench, task, await bench.now())
    await bench.put_pending([row])
    verdict = Skip(row.run_id, None, None, None, 1, True, SkipReason.OVERLAP)
    result = await bench.store.runs.begin(lease, [plain(bench, row, skip=verdict)])
    assert result.skipped == (row.run_id,)
    (end,) = await bench.history(task.id)
    assert (end.reason, end.slot, end.until_slot) == ("overlap", None, None)


async def check_an_exclusive_run_waits_for_the_others_of_its_task(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    row = await bench.next_row(run.task_id)
    items = [plain(bench, row, exclusive=True)]
    assert (await bench.store.runs.begin(lease, items)).busy == (row.run_id,)
    back_off = await fail_once(bench, lease, run)
    assert (await bench.store.runs.begin(lease, items)).busy == (row.run_id,)
    assert await bench.next_row(run.task_id) == row
    second = await begin_one(bench, lease, back_off, exclusive=True)
    await bench.store.runs.complete(lease, [await ended(bench, second)])
    result = await bench.store.runs.begin(lease, items)
    assert ([begun.run_id for begun in result.begun], result.busy) == ([row.run_id], ())


async def check_an_exclusive_run_of_another_fence_is_not_called_busy(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    row = replace(await bench.next_row(run.task_id), fence=3)
    result = await bench.store.runs.begin(lease, [plain(bench, row, exclusive=True)])
    assert result.begun == result.busy == ()


async def check_a_begin_refuses_what_none_may_ask(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    other = waiting(bench, task, await bench.now())
    for items in (
        [BeginItem(row), BeginItem(row)],
        [BeginItem(row, exclusive=True), BeginItem(other, exclusive=True)],
        [BeginItem(replace(row, run_id=bench.ids.new())) for _ in range(1001)],
    ):
        with pytest.raises(ValueError):
            await bench.store.runs.begin(lease, items)


async def check_rival_begins_share_the_rows(bench: Bench) -> None:
    mine, theirs = await a_lease(bench), await a_lease(bench)
    tenant = await a_tenant(bench)
    tasks = [await a_task(bench, tenant) for _ in range(30)]
    rows = [await bench.next_row(task.id) for task in tasks]

    async def begin(store: object, lease: object, rows: list[Pending]) -> list[object]:
        runs = bench.store.runs if store == "mine" else bench.other.runs
        result = await runs.begin(mine if store == "mine" else theirs, [plain(bench, row) for row in rows])
        return [run.run_id for run in result.begun]

    first, second = await asyncio.gather(begin("mine", mine, rows), begin("theirs", theirs, rows[::-1]))
    assert sorted(map(str, [*first, *second])) == sorted(str(row.run_id) for row in rows)
    for task in tasks:
        assert len(await bench.running(task.id)) == 1
        assert len(await bench.next_rows(task.id)) == 1


async def check_note_is_told_before_the_begin(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    noted: list[Backend] = []
    row = await bench.next_row(task.id)
    await bench.store.runs.begin(lease, [plain(bench, row)], noted.append)
    assert [backend.name for backend in noted] == [bench.store.name]


async def check_planned_begins_make_a_chain(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    await bench.shift(task.id, 3 * 3600)
    row = await bench.next_row(task.id)
    assert row.slot is not None
    await bench.store.runs.begin(lease, [planned(bench, task, row, await bench.now())])
    (skip,) = await bench.history(task.id)
    planted = await bench.next_row(task.id)
    assert (skip.slot, skip.until_slot, skip.skip_count) == (row.slot + HOUR, row.slot + 2 * HOUR, 2)
    assert (planted.slot, planted.last_slot) == (row.slot + 3 * HOUR, skip.until_slot)


async def check_heads_come_in_queue_order(bench: Bench) -> None:
    task = await a_task(bench)
    now = await bench.now()
    rows = [waiting(bench, task, now + n * SECOND) for n in (3, -30, 1, -5, 9)]
    await bench.put_pending(rows)
    queue = QueuePage(task.tenant_id, task.plan.priority, 0, 1024, 10)
    by_due = sorted(rows, key=lambda row: row.due_at)
    heads = bench.store.runs.heads
    assert await heads([queue], 5.0) == by_due[1:4]
    everything = replace(queue, from_due=now - 24 * HOUR)
    assert await heads([everything], 5.0) == by_due[:4]
    assert await heads([replace(everything, limit=2)], 5.0) == by_due[:2]
    after = replace(everything, from_due=by_due[1].due_at, from_run=by_due[1].run_id)
    assert await heads([after], 5.0) == by_due[2:4]


async def check_hinted_rows_are_due_within_the_lead(bench: Bench) -> None:
    task = await a_task(bench)
    now = await bench.now()
    due, later = waiting(bench, task, now + SECOND), waiting(bench, task, now + HOUR)
    await bench.put_pending([due, later])
    asked = [later.run_id, due.run_id, due.run_id, bench.ids.new()]
    assert await bench.store.runs.hinted(asked, 5.0) == [due]


async def check_heads_keep_to_their_queue(bench: Bench) -> None:
    tenant = await a_tenant(bench)
    task = await a_task(bench, tenant)
    high = await a_task(bench, tenant, hourly(priority=Priority.HIGH))
    now = await bench.now()
    normal_row, high_row = waiting(bench, task, now), waiting(bench, high, now)
    foreign = waiting(bench, await a_task(bench), now)
    await bench.put_pending([normal_row, high_row, foreign])
    page = QueuePage(tenant, Priority.NORMAL, 0, 1024, 10)
    heads = bench.store.runs.heads
    assert await heads([page], 5.0) == [normal_row]
    assert await heads([page, replace(page, priority=Priority.HIGH)], 5.0) == [normal_row, high_row]
    lane = normal_row.lane
    assert await heads([replace(page, lane_first=lane, lane_last=lane + 1)], 5.0) == [normal_row]
    assert await heads([replace(page, lane_first=lane + 1)], 5.0) == []
    assert await heads([replace(page, lane_last=lane)], 5.0) == []
    assert await heads([], 5.0) == []


async def check_a_cancelled_retry_is_never_begun(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    row = await fail_once(bench, lease, run)
    assert await bench.tasks.cancel(run.tenant_id, run.run_id) is RunState.PENDING
    assert (await bench.store.runs.begin(lease, [plain(bench, row)])).begun == ()


async def check_overlap_cancels_what_runs_and_what_waits_for_a_retry(bench: Bench) -> None:
    lease = await a_lease(bench)
    running, failed, other = [await a_run(bench, lease) for _ in range(3)]
    await fail_once(bench, lease, failed)
    await cancel_mark(bench, other)
    asked = [running.task_id, failed.task_id, other.task_id]
    assert await bench.store.runs.cancel_of_tasks(asked) == [running.run_id]
    assert [row.cancelled for row in await bench.running(running.task_id)] == [True]
    assert (await bench.history(failed.task_id))[-1].state is RunState.CANCELLED
    assert [row.kind for row in await bench.pending(failed.task_id)] == [Kind.NEXT]
