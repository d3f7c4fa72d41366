"""B33: who gives runs back is held up between what he reads and what he locks. What happens meanwhile stays."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from store_bench import PostgresBench
from store_builders import a_lease, a_run, begin_one, cancel_mark, ended, pairs
from tocsin.common.models import Kind
from tocsin.common.states import RunState
from tocsin.common.store.postgres.database import PLANNING
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.rows import Begun

Meanwhile = Callable[[PostgresBench, UUID, Begun], Awaitable[None]]

HELD_UP = query("give_back").replace(
    "where r.tenant_id = any ($1)",
    "where r.tenant_id = any ($1) and (select true from pg_advisory_xact_lock(33))",
)
"""The statement, with a pause after its snapshot and before it locks anything."""

BELIEVES_ITS_LIST = HELD_UP.replace(
    "from gone g left join tasks",
    "from (select r.* from orphans o join running r on r.lease_id = o.lease_id and r.run_id = o.run_id) g"
    " left join tasks",
)
"""The broken twin: what it read is what it gives back, whatever its delete has found."""

WAITS = """select exists (select from pg_locks l join pg_database d on d.oid = l.database
                         where d.datname = current_database() and l.locktype = 'advisory' and not l.granted)"""


async def ends(bench: PostgresBench, lease: UUID, run: Begun) -> None:
    assert (await bench.other.runs.complete(lease, [await ended(bench, run)])).applied


async def fails(bench: PostgresBench, lease: UUID, run: Begun) -> None:
    assert (await bench.other.runs.complete(lease, [await ended(bench, run, None)])).applied


async def is_put_back(bench: PostgresBench, lease: UUID, run: Begun) -> None:
    assert await bench.other.runs.put_back(lease, pairs([run])) == [run.run_id]


async def is_begun_anew(bench: PostgresBench, _lease: UUID, run: Begun) -> None:
    """Somebody else has given it back, and another worker has it now."""
    assert len(await bench.other.runs.give_back([run.tenant_id])) == 1
    (again,) = [row for row in await bench.pending(run.task_id) if row.run_id == run.run_id]
    assert (await begin_one(bench, await a_lease(bench), again)).fence == run.fence + 1


async def is_begun_anew_and_ends(bench: PostgresBench, lease: UUID, run: Begun) -> None:
    await is_begun_anew(bench, lease, run)
    (again,) = await bench.running(run.task_id)
    result = await ended(bench, run, fence=again.fence)
    assert (await bench.other.runs.complete(again.lease_id, [result])).applied


MEANWHILE = [ends, fails, is_put_back, is_begun_anew, is_begun_anew_and_ends]


async def everything_of(bench: PostgresBench, run: Begun) -> tuple[Any, ...]:
    """Every row of a run, whole."""
    rows = [
        [tuple(row) for row in await bench.admin.fetch(f"select * from {table} where run_id = $1", run.run_id)]
        for table in ("pending", "running")
    ]
    history = await bench.admin.fetch("select * from history where run_id = $1 order by fence, ended_at", run.run_id)
    return (*rows, [tuple(row) for row in history])


async def given_back_late(bench: PostgresBench, text: str, meanwhile: Meanwhile) -> tuple[Begun, tuple[Any, ...]]:
    """A run of a dead lease, and all of its rows as they were before the late one went on."""
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    await bench.store.leases.expire([lease])
    late = await asyncpg.connect(bench.url, server_settings=PLANNING)
    await bench.admin.execute("select pg_advisory_lock(33)")
    try:
        giving = asyncio.create_task(late.fetch(text, [run.tenant_id], 100, 5))
        while not await bench.watcher.fetchval(WAITS):
            assert not giving.done(), "it should have been held up"
        await meanwhile(bench, lease, run)
        before = await everything_of(bench, run)
        await bench.admin.execute("select pg_advisory_unlock(33)")
        await giving
    finally:
        await late.close()
    return run, before


async def check_what_happened_stays(bench: PostgresBench, text: str, meanwhile: Meanwhile) -> None:
    run, before = await given_back_late(bench, text, meanwhile)
    assert await everything_of(bench, run) == before
    assert [row.kind for row in await bench.next_rows(run.task_id)] == [Kind.NEXT]


@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_b33_what_happened_while_the_reconciler_was_held_up_stays(
    postgres_bench: PostgresBench, meanwhile: Meanwhile
) -> None:
    await check_what_happened_stays(postgres_bench, HELD_UP, meanwhile)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_b33_a_reconciler_that_believes_its_list_is_caught(
    postgres_bench: PostgresBench, meanwhile: Meanwhile
) -> None:
    with pytest.raises((AssertionError, asyncpg.UniqueViolationError)):
        await check_what_happened_stays(postgres_bench, BELIEVES_ITS_LIST, meanwhile)


async def test_b33_a_cancel_mark_set_meanwhile_is_honoured(postgres_bench: PostgresBench) -> None:
    async def is_cancelled(bench: PostgresBench, _lease: UUID, run: Begun) -> None:
        await cancel_mark(bench, run)

    run, _ = await given_back_late(postgres_bench, HELD_UP, is_cancelled)
    (row,) = [row for row in await postgres_bench.history(run.task_id) if row.run_id == run.run_id]
    assert row.state is RunState.CANCELLED
    assert await postgres_bench.running(run.task_id) == []
    assert [row.kind for row in await postgres_bench.pending(run.task_id)] == [Kind.NEXT]


async def test_b33_nothing_is_done_with_an_old_fence(postgres_bench: PostgresBench) -> None:
    """Whatever the old worker writes once another has its run: its result is noted as stale, and that is all."""
    bench = postgres_bench
    old = await a_lease(bench)
    run = await a_run(bench, old)
    await bench.store.leases.expire([old])
    await is_begun_anew(bench, old, run)
    running = await bench.running(run.task_id)
    assert await bench.store.runs.put_back(old, pairs([run])) == []
    for state in (RunState.SUCCEEDED, RunState.DEAD, None):
        result = await bench.store.runs.complete(old, [await ended(bench, run, state)])
        assert (result.applied, await bench.running(run.task_id)) == ((), running)
    assert await bench.store.runs.give_back([run.tenant_id]) == []
    assert {row.state for row in await bench.history(run.task_id)} == {None}
    assert [row.kind for row in await bench.pending(run.task_id)] == [Kind.NEXT]
