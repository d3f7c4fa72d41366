"""What is counted while measuring is what is there: each count meets a database where something is amiss."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from itertools import chain, repeat

import pytest

from bench.completion import RunningDatabase
from bench.create import in_one_transaction, unplanned
from bench.fairness import chooser, picks
from bench.heads import DUE, DUE_EACH, START, Backlog, reads
from bench.idle import IdleDatabase, beginning, seed_idle
from bench.load import is_over, seed_tenants
from bench.retention import Aging, longest_wait, removals
from bench.system import Connection, connected, opened
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.tenants import Process

IDS = Ids(SystemClock(), random.Random(1))
OLD = date(2026, 1, 1)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(database_url) as made:
        yield made


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    async with connected(database_url) as made:
        yield made


@pytest.fixture
async def crowd(database_url: str, store: PostgresStore, connection: Connection) -> Backlog:
    """Three queues with a few runs due, and one with 50."""
    tenants, crowded = [IDS.new() for _ in range(3)], IDS.new()
    await connection.execute(DUE, tenants, DUE_EACH)
    await connection.execute(DUE, [crowded], 50)
    return Backlog(database_url, store, connection, tenants, crowded)


async def test_a_read_that_misses_a_row_is_seen(crowd: Backlog) -> None:
    _, right = await reads({50: crowd}, [4], START, 1)
    assert right == {True}
    await crowd.connection.execute("delete from pending where tenant_id = $1", crowd.tenants[0])
    _, right = await reads({50: crowd}, [4], START, 1)
    assert right == {False}


async def test_due_rows_are_replaced_by_as_many_that_are_due_later(crowd: Backlog) -> None:
    before = await crowd.read(4)
    due = await crowd.churn(3)
    assert (await crowd.read(4))[1] == (await crowd.read(4, due - timedelta(seconds=1)))[1] == before[1]
    assert (await crowd.read(4, due))[1] == before[1]
    assert (await crowd.read(4, due + timedelta(seconds=1)))[1] == 0


async def test_picks_that_run_short_are_seen(crowd: Backlog) -> None:
    assert (await picks({50: chooser(crowd)}, 2, 1)).missed == 0
    await crowd.connection.execute("delete from pending where tenant_id = $1", crowd.crowded)
    assert (await picks({50: chooser(crowd)}, 3, 1)).missed > 0


async def test_no_run_is_picked_twice(crowd: Backlog) -> None:
    each = chooser(crowd)
    await each.fill()
    for _ in range(100):
        await each.pick(2)
    assert each.chosen.total() == 3 * DUE_EACH + 50
    assert each.chosen[crowd.crowded] == 50


@pytest.fixture
async def idle(database_url: str, store: PostgresStore, connection: Connection) -> IdleDatabase:
    await seed_idle(connection, await seed_tenants(store, IDS, 2), 10)
    return await beginning(database_url, connection, store, IDS, 10)


async def test_idle_tasks_are_as_many_as_asked_for_with_a_slot_each(
    store: PostgresStore, connection: Connection
) -> None:
    tenants = await seed_tenants(store, IDS, 3)
    await seed_idle(connection, tenants, 7)
    rows = await connection.fetch(
        "select t.name, t.tenant_id, p.tenant_id as owner from tasks t join pending p on p.task_id = t.id"
    )
    assert sorted(row["name"] for row in rows) == [f"idle {number}" for number in range(1, 8)]
    assert {row["tenant_id"] for row in rows} == set(tenants)
    assert all(row["tenant_id"] == row["owner"] for row in rows)
    assert await connection.fetchval("select min(due_at) > now() from pending")


async def test_idle_tasks_are_begun_and_planted_again(idle: IdleDatabase) -> None:
    for _ in range(3):
        await idle.begin(10)
    assert (idle.asked, idle.begun) == (30, 30)
    assert await idle.connection.fetchval("select count(*) from pending where kind = 'next'") == 10


async def test_a_begin_that_takes_nothing_is_seen(idle: IdleDatabase) -> None:
    await idle.store.leases.leave(idle.lease_id)
    await idle.begin(10)
    assert (idle.asked, idle.begun) == (10, 0)


async def test_a_load_is_over_beside_idle_tasks_and_not_while_something_is_due(idle: IdleDatabase) -> None:
    assert await is_over(idle.connection)
    await idle.connection.execute("update pending set due_at = now() where run_id = $1", idle.rows[0].run_id)
    assert not await is_over(idle.connection)


@pytest.fixture
async def running(database_url: str, store: PostgresStore, connection: Connection) -> RunningDatabase:
    lease_id = IDS.new()
    await store.history.keep(datetime.now(UTC).date(), 1)
    await store.leases.register(lease_id, "bench", 0, Process("bench", "", "", 0, 0.0), "", 3600.0)
    return RunningDatabase(database_url, connection, store, lease_id, IDS, [IDS.new()])


async def test_completions_end_runs_or_bring_them_back(running: RunningDatabase) -> None:
    await running.complete("terminal", 5)
    await running.complete("retry", 5)
    await running.complete("mixed", 5)
    await running.complete_singly(5)
    assert (running.asked, running.applied) == (20, 20)
    assert await running.connection.fetchval("select count(*) from running") == 0
    assert await running.connection.fetchval("select count(*) from pending") == 6
    assert await running.connection.fetchval("select count(*) from history where state = 'succeeded'") == 14


async def test_completions_that_change_nothing_are_seen(running: RunningDatabase) -> None:
    await running.connection.execute(
        "create function kept() returns trigger language plpgsql as 'begin return null; end';"
        "create trigger kept before delete on running for each row execute function kept()"
    )
    await running.complete("terminal", 5)
    assert (running.asked, running.applied) == (5, 0)


async def test_rows_that_a_removal_leaves_are_seen(
    running: RunningDatabase, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(database_url) as second:
        aging = Aging(running, second, OLD)
        found = await removals(aging, 20, 1, 0.0)
        assert (found.left, found.dropped[0].dead_rows, found.deleted[0].dead_rows) == (0, 0, 20)

        async def nothing(aging: Aging) -> None:
            """Drops nothing."""

        monkeypatch.setattr(Aging, "drop", nothing)
        assert (await removals(aging, 20, 1, 0.0)).left == 40


async def test_a_completion_that_waits_until_a_removal_ends_is_the_longest(
    running: RunningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = asyncio.Event()
    waits = chain([0.01, 0.02, 0.5], repeat(0.03))

    async def complete(self: RunningDatabase, ending: str, count: int) -> float:
        await asyncio.sleep(0)
        seconds = next(waits)
        if seconds == 0.5:
            removed.set()
        return seconds

    async def removal() -> None:
        await removed.wait()

    monkeypatch.setattr(RunningDatabase, "complete", complete)
    assert await longest_wait(running, removal()) == 0.5


async def test_a_task_without_its_next_row_is_seen(store: PostgresStore, connection: Connection) -> None:
    (tenant_id,) = await seed_tenants(store, IDS, 1)
    await in_one_transaction(store, tenant_id, IDS, 5)
    assert await unplanned(connection, 5) == 0
    assert await unplanned(connection, 6) == 1
    await connection.execute("delete from pending where run_id = (select run_id from pending limit 1)")
    assert await unplanned(connection, 5) == 1
