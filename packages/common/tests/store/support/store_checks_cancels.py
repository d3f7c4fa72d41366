"""Rule 8, B46: cancelling a run in each of its states, whoever keeps the store. The answer and the state agree."""

import pytest

from store_bench import Bench
from store_builders import (
    HOUR,
    a_lease,
    a_run,
    a_task,
    ended,
    fail_once,
    pairs,
)
from store_chain import faults
from tocsin.common.clock import PARKED
from tocsin.common.errors import ConflictError, NotFoundError
from tocsin.common.models import Kind
from tocsin.common.states import RunState


async def check_a_run_of_an_unreadable_task_can_be_cancelled(bench: Bench) -> None:
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    await bench.spoil(task.id)
    assert await bench.tasks.cancel(task.tenant_id, row.run_id) is RunState.PENDING
    parked = await bench.next_row(task.id)
    assert (parked.due_at, parked.slot, parked.last_slot) == (PARKED, None, row.slot)


async def check_a_run_of_a_deleted_task_can_be_cancelled(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    await bench.tasks.delete(run.tenant_id, run.task_id)
    assert await bench.tasks.cancel(run.tenant_id, run.run_id) is RunState.RUNNING
    assert await bench.pending(run.task_id) == []


async def check_a_next_row_is_cancelled_and_replanted(bench: Bench) -> None:
    """B46 d: the second time it has ended."""
    task = await a_task(bench)
    row = await bench.next_row(task.id)
    assert await bench.tasks.cancel(task.tenant_id, row.run_id) is RunState.PENDING
    (end,) = await bench.history(task.id)
    assert (end.run_id, end.state, end.kind, end.slot) == (row.run_id, RunState.CANCELLED, Kind.SLOT, row.slot)
    assert row.slot is not None
    assert (await bench.next_row(task.id)).slot == row.slot + HOUR
    assert await faults(bench, task) == []
    with pytest.raises(ConflictError):
        await bench.tasks.cancel(task.tenant_id, row.run_id)


async def check_a_waiting_run_is_cancelled(bench: Bench) -> None:
    task = await a_task(bench)
    run_id = await bench.tasks.run_now(task.tenant_id, task.id)
    assert await bench.tasks.cancel(task.tenant_id, run_id) is RunState.PENDING
    assert [row.kind for row in await bench.pending(task.id)] == [Kind.NEXT]
    assert [row.state for row in await bench.history(task.id)] == [RunState.CANCELLED]


async def check_a_parked_row_is_no_run_to_cancel(bench: Bench) -> None:
    task = await a_task(bench)
    await bench.tasks.pause(task.tenant_id, task.id)
    row = await bench.next_row(task.id)
    with pytest.raises(ConflictError):
        await bench.tasks.cancel(task.tenant_id, row.run_id)
    assert await bench.next_row(task.id) == row


async def check_a_running_run_is_marked(bench: Bench) -> None:
    """B46 d and e: twice while it runs, and once more after its completion."""
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    for _ in range(2):
        assert await bench.tasks.cancel(run.tenant_id, run.run_id) is RunState.RUNNING
    (row,) = await bench.running(run.task_id)
    assert (row.cancelled, row.fence) == (True, 1)
    await bench.store.runs.complete(lease, [await ended(bench, run)])
    with pytest.raises(ConflictError):
        await bench.tasks.cancel(run.tenant_id, run.run_id)
    assert [row.state for row in await bench.history(run.task_id)] == [RunState.CANCELLED]


async def check_a_run_that_has_ended_stays_as_it_is(bench: Bench) -> None:
    """B46 e."""
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    await bench.store.runs.complete(lease, [await ended(bench, run)])
    for _ in range(2):
        with pytest.raises(ConflictError, match="has ended"):
            await bench.tasks.cancel(run.tenant_id, run.run_id)
    assert [row.state for row in await bench.history(run.task_id)] == [RunState.SUCCEEDED]


async def check_a_run_that_came_back_is_cancelled(bench: Bench) -> None:
    """B46 c: during its back-off, or after it was put back or given back; it is not tried again."""
    lease = await a_lease(bench)
    failed, put_back, given_back = [await a_run(bench, lease) for _ in range(3)]
    await fail_once(bench, lease, failed)
    await bench.store.runs.put_back(lease, pairs([put_back]))
    await bench.store.leases.expire([lease])
    await bench.store.runs.give_back([given_back.tenant_id])
    for run in (failed, put_back, given_back):
        assert await bench.tasks.cancel(run.tenant_id, run.run_id) is RunState.PENDING
        assert (await bench.history(run.task_id))[-1].state is RunState.CANCELLED
        assert [row.kind for row in await bench.pending(run.task_id)] == [Kind.NEXT]


async def check_nobody_cancels_what_is_not_his(bench: Bench) -> None:
    run = await a_run(bench, await a_lease(bench))
    for tenant, run_id in ((bench.ids.new(), run.run_id), (run.tenant_id, bench.ids.new())):
        with pytest.raises(NotFoundError, match="no such run"):
            await bench.tasks.cancel(tenant, run_id)
    for write in (bench.tasks.pause, bench.tasks.resume, bench.tasks.delete, bench.tasks.skip_next):
        with pytest.raises(NotFoundError):
            await write(bench.ids.new(), run.task_id)
