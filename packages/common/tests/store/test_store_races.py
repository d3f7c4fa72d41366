"""Races on PostgreSQL: one side holds its locks in an open transaction until the other is seen waiting for them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from store_bench import PostgresBench
from store_builders import a_lease, a_run, a_task, ended, pairs, plain, the_task, waiting
from store_chain import chain_faults
from tocsin.common import tasks as tasks_module
from tocsin.common.errors import ConflictError
from tocsin.common.models import Kind, TaskState
from tocsin.common.states import RunState
from tocsin.common.store.ports import TaskTransaction
from tocsin.common.store.postgres import database
from tocsin.common.store.postgres.database import Database
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.postgres.runs import PostgresRuns
from tocsin.common.store.rows import Backend, Pending, Task
from tocsin.common.tasks import Tasks


class HeldDatabase(Database):
    """Runs statements on one connection, within the transaction that a test holds open on it."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        super().__init__("", "held", size=1)
        self._held = connection

    async def fetch_on(
        self, name: str, *args: object, note: Callable[[Backend], None] | None = None
    ) -> tuple[list[asyncpg.Record], Backend]:
        return await self._held.fetch(query(name), *args), Backend(0, self.name)


@asynccontextmanager
async def held_runs(bench: PostgresBench) -> AsyncIterator[PostgresRuns]:
    """Statements whose transaction commits at the end of the block."""
    connection = await asyncpg.connect(bench.url)
    try:
        async with connection.transaction():
            yield PostgresRuns(HeldDatabase(connection))
    finally:
        await connection.close()


@asynccontextmanager
async def opened(rival: Database) -> AsyncIterator[Database]:
    """A pool of another process."""
    await rival.open()
    try:
        yield rival
    finally:
        await rival.close()


async def until_blocked(bench: PostgresBench, task: "asyncio.Task[Any]") -> None:
    """Returns when some session waits for a lock, which `task` is the only one to ask for."""
    blocked = (
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"
    )
    while not await bench.watcher.fetchval(blocked):
        assert not task.done(), "it should have waited"


async def race(bench: PostgresBench, write: Coroutine[Any, Any, Any], lease: UUID, row: Pending) -> Any:
    """A write that meets a begin under way, which then commits."""
    async with held_runs(bench) as runs:
        (run,) = (await runs.begin(lease, [plain(bench, row)])).begun
        writing = asyncio.create_task(write)
        await until_blocked(bench, writing)
    await writing
    return run


def half_hourly(task: Task, _: object) -> Task:
    schedule = task.plan.schedule.model_copy(update={"every_seconds": 1800})
    return replace(task, plan=task.plan.model_copy(update={"schedule": schedule}))


async def edit_meets_a_begin(bench: PostgresBench) -> None:
    lease, task = await a_lease(bench), await a_task(bench)
    row = await bench.next_row(task.id)
    run = await race(bench, bench.tasks.edit(task.tenant_id, task.id, half_hourly), lease, row)
    assert [running.run_id for running in await bench.running(task.id)] == [run.run_id]
    planted = await bench.next_row(task.id)
    assert (planted.plan_version, planted.last_slot) == (2, run.slot)
    assert await chain_faults(bench, task.id, TaskState.ACTIVE) == []


async def test_an_edit_meets_a_begin(postgres_bench: PostgresBench) -> None:
    await edit_meets_a_begin(postgres_bench)


async def test_an_edit_that_ignores_the_deletes_count_is_caught(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take_next(tx: TaskTransaction, task_id: UUID) -> Pending | None:
        row = await tx.find_next(task_id)
        if row is not None:
            await tx.delete_next(row.run_id)
        return row

    monkeypatch.setattr(tasks_module, "take_next", take_next)
    with pytest.raises(ValueError, match="unpack"):
        await edit_meets_a_begin(postgres_bench)


async def test_a_pause_meets_a_begin(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease, task = await a_lease(bench), await a_task(bench)
    row = await bench.next_row(task.id)
    run = await race(bench, bench.tasks.pause(task.tenant_id, task.id), lease, row)
    assert [running.run_id for running in await bench.running(task.id)] == [run.run_id]
    parked = await bench.next_row(task.id)
    assert (parked.slot, parked.last_slot) == (None, run.slot)
    assert await chain_faults(bench, task.id, TaskState.PAUSED) == []


async def test_a_skip_meets_a_begin(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease, task = await a_lease(bench), await a_task(bench)
    row = await bench.next_row(task.id)
    run = await race(bench, bench.tasks.skip_next(task.tenant_id, task.id), lease, row)
    (skip,) = await bench.history(task.id)
    assert skip.last_slot == run.slot
    assert await chain_faults(bench, task.id, TaskState.ACTIVE) == []


async def test_a_deletion_meets_a_begin(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease, task = await a_lease(bench), await a_task(bench)
    row = await bench.next_row(task.id)
    await race(bench, bench.tasks.delete(task.tenant_id, task.id), lease, row)
    assert await bench.pending(task.id) == []
    assert len(await bench.running(task.id)) == 1


async def test_a_cancel_meets_a_begin(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease, task = await a_lease(bench), await a_task(bench)
    row = await bench.next_row(task.id)
    await race(bench, bench.tasks.cancel(task.tenant_id, row.run_id), lease, row)
    (running,) = await bench.running(task.id)
    assert running.cancelled
    assert await chain_faults(bench, task.id, TaskState.ACTIVE) == []


async def test_a_cancel_meets_a_put_back(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    async with held_runs(bench) as runs:
        await runs.put_back(lease, pairs([run]))
        cancelling = asyncio.create_task(bench.tasks.cancel(run.tenant_id, run.run_id))
        await until_blocked(bench, cancelling)
    assert await cancelling is RunState.PENDING
    assert await bench.running(run.task_id) == []
    assert [row.state for row in await bench.history(run.task_id)] == [RunState.CANCELLED]
    assert [row.kind for row in await bench.pending(run.task_id)] == [Kind.NEXT]


async def mark_meets(bench: PostgresBench, then: Callable[[UUID, Any], Coroutine[Any, Any, Any]]) -> list[Any]:
    """A cancel mark that commits while another statement waits for the row; the run's history."""
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    async with bench.other.tasks.write() as tx:
        await tx.lock(run.tenant_id, run.task_id)
        assert await tx.cancel_running(run.run_id)
        meeting = asyncio.create_task(then(lease, run))
        await until_blocked(bench, meeting)
    await meeting
    assert await bench.running(run.task_id) == []
    assert [row.kind for row in await bench.pending(run.task_id)] == [Kind.NEXT]
    return await bench.history(run.task_id)


@pytest.mark.parametrize("state", [None, RunState.SUCCEEDED])
async def test_b46_b_a_completion_waits_for_a_mark_and_honours_it(
    postgres_bench: PostgresBench, state: RunState | None
) -> None:
    async def complete(lease: UUID, run: Any) -> None:
        result = await postgres_bench.store.runs.complete(lease, [await ended(postgres_bench, run, state)])
        assert result.applied == ((run.run_id, run.fence),)

    (row,) = await mark_meets(postgres_bench, complete)
    assert row.state is RunState.CANCELLED


async def test_b46_b_a_cancel_waits_for_a_completion_and_finds_it_ended(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    async with held_runs(bench) as runs:
        await runs.complete(lease, [await ended(bench, run)])
        cancelling = asyncio.create_task(bench.tasks.cancel(run.tenant_id, run.run_id))
        await until_blocked(bench, cancelling)
    with pytest.raises(ConflictError, match="has ended"):
        await cancelling
    assert [row.state for row in await bench.history(run.task_id)] == [RunState.SUCCEEDED]


async def test_b46_b_a_cancel_waits_for_a_failed_attempt_and_ends_its_retry(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    async with held_runs(bench) as runs:
        await runs.complete(lease, [await ended(bench, run, None)])
        cancelling = asyncio.create_task(bench.tasks.cancel(run.tenant_id, run.run_id))
        await until_blocked(bench, cancelling)
    assert await cancelling is RunState.PENDING
    assert [row.state for row in await bench.history(run.task_id)] == [None, RunState.CANCELLED]
    assert [row.kind for row in await bench.pending(run.task_id)] == [Kind.NEXT]


async def test_a_put_back_waits_for_a_mark_and_honours_it(postgres_bench: PostgresBench) -> None:
    async def put_back(lease: UUID, run: Any) -> None:
        assert await postgres_bench.store.runs.put_back(lease, pairs([run])) == [run.run_id]

    (row,) = await mark_meets(postgres_bench, put_back)
    assert row.state is RunState.CANCELLED


async def test_giving_back_leaves_a_completion_under_way_alone(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    await bench.store.leases.expire([lease])
    async with held_runs(bench) as runs:
        assert (await runs.complete(lease, [await ended(bench, run)])).applied
        assert await bench.store.runs.give_back([run.tenant_id]) == []
    assert await bench.store.runs.give_back([run.tenant_id]) == []
    assert [row.state for row in await bench.history(run.task_id)] == [RunState.SUCCEEDED]


async def test_a_begin_that_commits_after_its_lease_ended_is_given_back(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease, task = await a_lease(bench), await a_task(bench)
    row = await bench.next_row(task.id)
    async with held_runs(bench) as runs:
        (run,) = (await runs.begin(lease, [plain(bench, row)])).begun
        await bench.store.leases.expire([lease])
        assert await bench.store.runs.give_back([task.tenant_id]) == []
    (back,) = await bench.store.runs.give_back([task.tenant_id])
    assert back.run_id == run.run_id


async def test_crossed_completions_do_not_deadlock(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease = await a_lease(bench)
    first, second = await a_run(bench, lease), await a_run(bench, lease)
    batch = [await ended(bench, run) for run in (first, second)]
    async with bench.other.tasks.write() as tx:
        await tx.lock(first.tenant_id, first.task_id)
        await tx.cancel_running(first.run_id)
        completing = asyncio.create_task(bench.store.runs.complete(lease, batch))
        crossed = asyncio.create_task(bench.other.runs.put_back(lease, pairs([second, first])))
        await until_blocked(bench, completing)
    result, put_back = await asyncio.gather(completing, crossed)
    assert len(result.applied) + len(put_back) == 2


async def test_two_edits_of_a_task_take_turns(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    task = await a_task(bench)
    other = Tasks(bench.other.tasks, bench.ids, lambda *_: None)
    async with bench.store.tasks.write() as tx:
        locked = await tx.lock(task.tenant_id, task.id)
        assert locked is not None
        editing = asyncio.create_task(other.edit(task.tenant_id, task.id, half_hourly))
        await until_blocked(bench, editing)
        await tx.update(replace(task, version=7))
    assert (await editing).version == 8
    assert (await the_task(bench, task.id)).plan_version == 2


async def check_rows_are_locked_in_the_order_of_their_ids(bench: PostgresBench, statement: str) -> None:
    """While somebody else holds the row of the lower id, that of the higher id is not locked.

    The rows lie in the table the other way round, which is the order in which an unordered delete meets them.
    """
    task = await a_task(bench)
    low, high = [waiting(bench, task, await bench.now(), kind=Kind.SLOT, fence=1) for _ in range(2)]
    await bench.put_pending([high, low])
    arguments: dict[str, tuple[Any, ...]] = {
        "cancel_of_tasks": ([task.id],),
        "withdraw_waiting": (task.id, "paused"),
    }
    lock = "select from pending where run_id = $1 for update"
    async with opened(Database(bench.url, "rival", size=1)) as rival:
        async with bench.admin.transaction():
            await bench.admin.execute(lock, low.run_id)
            ending = asyncio.create_task(rival.fetch(statement, *arguments[statement]))
            await until_blocked(bench, ending)
            taken = await bench.admin.fetch(f"{lock} skip locked", high.run_id)
        await ending
    assert taken, "the higher id was locked before the lower one"
    assert [row.kind for row in await bench.pending(task.id)] == [Kind.NEXT]


LOCKING_SEVERAL = ("cancel_of_tasks", "withdraw_waiting")


@pytest.mark.parametrize("statement", LOCKING_SEVERAL)
async def test_several_pending_rows_are_locked_in_the_order_of_their_ids(
    postgres_bench: PostgresBench, statement: str
) -> None:
    await check_rows_are_locked_in_the_order_of_their_ids(postgres_bench, statement)


@pytest.mark.parametrize("statement", LOCKING_SEVERAL)
async def test_locks_in_the_order_of_the_table_are_caught(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    broken = query(statement).replace("order by run_id for update", "for update")
    assert broken != query(statement)
    monkeypatch.setattr(database, "query", lambda name: broken if name == statement else query(name))
    with pytest.raises(AssertionError, match="locked before the lower one"):
        await check_rows_are_locked_in_the_order_of_their_ids(postgres_bench, statement)
