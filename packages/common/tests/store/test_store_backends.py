"""What PostgreSQL alone has: server processes that are ended, answers that are lost, refusals."""

import asyncio
from uuid import UUID

import asyncpg
import pytest
from store_bench import PostgresBench
from store_builders import a_lease, a_run, a_task, ended, plain

from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.postgres import database
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import Backend

SESSIONS = "select count(*) from pg_stat_activity where datname = current_database() and application_name = $1"


async def open_store(bench: PostgresBench, lease: UUID | None = None, url: str | None = None) -> PostgresStore:
    store = PostgresStore(url or bench.url, lease_id=lease, size=2)
    await store.open()
    return store


async def check_only_the_ended_leases_sessions_end(bench: PostgresBench) -> None:
    judged, bystander = await a_lease(bench), await a_lease(bench)
    frozen, other = await open_store(bench, judged), await open_store(bench, bystander)
    try:
        assert await bench.admin.fetchval(SESSIONS, frozen.name) == 2
        assert await bench.store.leases.expire([judged]) == [judged]
        while await bench.admin.fetchval(SESSIONS, frozen.name):
            pass
        assert await bench.admin.fetchval(SESSIONS, other.name) == 2
    finally:
        await frozen.close()
        await other.close()


async def test_only_the_ended_leases_sessions_end(postgres_bench: PostgresBench) -> None:
    await check_only_the_ended_leases_sessions_end(postgres_bench)


async def test_ending_sessions_in_one_condition_is_caught(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: PostgreSQL tries the cheapest condition first, and that one ends everybody's sessions."""
    broken = (
        "select pid from pg_stat_activity where application_name = any ($1)"
        " and datname = current_database() and pg_terminate_backend(pid)"
    )
    monkeypatch.setattr(database, "query", lambda name: broken if name == "lease_end_backends" else query(name))
    with pytest.raises((AssertionError, OutcomeUnknownError, StoreUnavailableError, asyncpg.PostgresError, OSError)):
        await check_only_the_ended_leases_sessions_end(postgres_bench)


async def test_a_lease_that_leaves_keeps_its_sessions(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease = await a_lease(bench)
    store = await open_store(bench, lease)
    try:
        await store.leases.leave(lease)
        assert await store.leases.beat(lease, draining=True) is None
    finally:
        await store.close()


async def test_a_session_is_ended_by_pid_and_name(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    victim = await asyncpg.connect(bench.url, server_settings={"application_name": "victim"})
    pid = victim.get_server_pid()
    leases = bench.store.leases
    assert await leases.end_backend(Backend(pid, "somebody else"), 5.0)
    assert await bench.admin.fetchval(SESSIONS, "victim") == 1
    assert await leases.end_backend(Backend(pid, "victim"), 5.0)
    assert await bench.admin.fetchval(SESSIONS, "victim") == 0
    assert await leases.end_backend(Backend(pid, "victim"), 5.0)
    await victim.close()


async def test_a_begin_whose_answer_is_lost_can_be_closed_and_read(postgres_bench: PostgresBench) -> None:
    """Rule 4: the session that was noted is ended first, and only then is asked what the lease holds."""
    bench = postgres_bench
    lease, task = await a_lease(bench), await a_task(bench)
    row = await bench.next_row(task.id)
    noted: list[Backend] = []
    async with bench.other.tasks.write() as tx:
        assert await tx.delete_pending(row.run_id)
        # only the lock of the write keeps this statement from ending; a begin would pass the row by
        waiting = asyncio.create_task(bench.store.tasks.mark_faulty([]))
        await waiting
    result = await bench.store.runs.begin(lease, [plain(bench, row)], noted.append)
    assert result.begun == ()
    (backend,) = noted
    assert backend.name == bench.store.name
    assert await bench.other.leases.end_backend(backend, 5.0)
    assert await bench.store.runs.held(lease) == []


async def test_a_session_ended_in_mid_statement_leaves_the_outcome_unknown(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    async with bench.other.tasks.write() as tx:
        await tx.lock(run.tenant_id, run.task_id)
        await tx.cancel_running(run.run_id)
        completion = await ended(bench, run)
        completing = asyncio.create_task(bench.store.runs.complete(lease, [completion]))
        blocked = (
            "select pid from pg_stat_activity where datname = current_database()"
            " and wait_event_type = 'Lock' and application_name = $1"
        )
        while (pid := await bench.admin.fetchval(blocked, bench.store.name)) is None:
            assert not completing.done()
        assert await bench.other.leases.end_backend(Backend(pid, bench.store.name), 5.0)
        with pytest.raises(OutcomeUnknownError):
            await completing
    assert (await bench.store.runs.complete(lease, [completion])).applied == ((run.run_id, 1),)


async def test_a_write_whose_session_is_ended_fails_as_unavailable(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    task = await a_task(bench)
    session = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and state = 'idle in transaction'"
    )
    with pytest.raises(StoreUnavailableError):
        async with bench.store.tasks.write() as tx:
            await tx.lock(task.tenant_id, task.id)
            await bench.admin.fetchval(session)
            await tx.update(task)
    assert (await bench.tasks.pause(task.tenant_id, task.id)).version == 2


async def test_no_database_is_unavailable(postgres_bench: PostgresBench) -> None:
    missing = postgres_bench.url.rpartition("/")[0] + "/nowhere"
    with pytest.raises(StoreUnavailableError):
        await open_store(postgres_bench, url=missing)
    closed = PostgresStore(postgres_bench.url)
    with pytest.raises(StoreUnavailableError):
        await closed.tenants.placements()
    await closed.close()
