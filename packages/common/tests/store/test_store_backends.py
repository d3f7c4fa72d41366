"""What PostgreSQL alone has: server processes that are ended, answers that are lost, refusals."""

import asyncio
from uuid import RFC_4122, UUID

import asyncpg
import pytest

from store_bench import PostgresBench
from store_builders import a_lease, a_run, a_task, ended, plain
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
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


async def tried_sessions(bench: PostgresBench, statement: str) -> set[str]:
    """The sessions that a statement would end, by name: a stand-in of the same cost takes the ending's place."""
    await bench.admin.execute(
        "create table if not exists tried (name text);"
        " create or replace function try(session int) returns bool language plpgsql cost 1 as $$ begin"
        " insert into tried select application_name from pg_stat_activity where pid = session;"
        " return true; end $$; truncate tried; set plan_cache_mode = force_generic_plan"
    )
    await bench.admin.fetch(statement.replace("pg_terminate_backend", "try"))
    return {row["name"] for row in await bench.admin.fetch("select name from tried")}


async def test_ending_sessions_in_one_condition_is_caught(postgres_bench: PostgresBench) -> None:
    """The broken twin: PostgreSQL tries the cheapest condition first, and that one ends everybody's sessions."""
    broken = (
        "select pid from pg_stat_activity where datname = current_database() and pg_terminate_backend(pid)"
        " and application_name in (select 'tocsin ' || id from leases where expired_at is not null)"
    )
    bench = postgres_bench
    lease = await a_lease(bench)
    ended = await open_store(bench, lease)
    try:
        await bench.admin.execute("update leases set expired_at = now() where id = $1", lease)
        assert await tried_sessions(bench, query("lease_end_backends")) == {ended.name}
        assert await tried_sessions(bench, broken) > {ended.name}
    finally:
        await ended.close()


async def test_a_judge_ends_what_one_before_it_left(postgres_bench: PostgresBench) -> None:
    """It died between its judgement and the ending of the sessions."""
    bench = postgres_bench
    judge, judged = await a_lease(bench), await a_lease(bench)
    frozen = await open_store(bench, judged)
    try:
        await bench.admin.execute("update leases set expired_at = now() where id = $1", judged)
        assert await bench.store.leases.judge(judge) == []
        while await bench.admin.fetchval(SESSIONS, frozen.name):
            pass
    finally:
        await frozen.close()


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


async def test_a_begin_of_unknown_outcome_is_closed_and_then_read(postgres_bench: PostgresBench) -> None:
    """Rule 4: the session that was noted is ended first, and only then is asked what the lease holds."""
    bench = postgres_bench
    lease, task = await a_lease(bench), await a_task(bench)
    noted: list[Backend] = []
    await bench.store.runs.begin(lease, [plain(bench, await bench.next_row(task.id))], noted.append)
    (backend,) = noted
    assert await bench.other.leases.end_backend(backend, 5.0)
    (held,) = await bench.other.runs.held(lease)
    assert (held.fence, held.version) == (1, 1)
    assert await bench.store.runs.put_back(lease, [(held.run_id, held.fence)]) == [held.run_id]


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

    async def write() -> None:
        async with bench.store.tasks.write() as tx:
            await tx.lock(task.tenant_id, task.id)
            await bench.admin.fetchval(session)
            await tx.update(task)

    with pytest.raises(StoreUnavailableError):
        await write()
    assert (await bench.tasks.pause(task.tenant_id, task.id)).version == 2


async def test_no_database_is_unavailable(postgres_bench: PostgresBench) -> None:
    missing = postgres_bench.url.rpartition("/")[0] + "/nowhere"
    with pytest.raises(StoreUnavailableError):
        await open_store(postgres_bench, url=missing)
    closed = PostgresStore(postgres_bench.url)
    with pytest.raises(StoreUnavailableError):
        await closed.tenants.placements()
    await closed.close()


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
@pytest.mark.parametrize(
    "change",
    [
        "plan || jsonb_build_object('start', $1::text)",
        "plan || jsonb_build_object('end', $1::text)",
        "jsonb_set(plan, '{schedule}', jsonb_build_object('kind', 'at', 'at', $1::text))",
        "jsonb_set(plan, '{schedule}', jsonb_build_object('kind', 'every', 'every_seconds', 60, 'anchor', $1::text))",
    ],
)
async def test_an_instant_that_no_datetime_holds_hides_no_other(
    postgres_bench: PostgresBench, change: str, instant: str
) -> None:
    bad, good = await a_task(postgres_bench), await a_task(postgres_bench)
    await postgres_bench.admin.execute(f"update tasks set plan = {change} where id = $2", instant, bad.id)
    tasks, faulty = await postgres_bench.store.tasks.definitions([bad.id, good.id])
    assert [task.id for task in tasks] == [good.id]
    assert [error.task_id for error in faulty] == [bad.id]
    assert "must lie between 1970 and 2200" in str(faulty[0])


async def check_audit_ids_come_in_order(bench: PostgresBench, statement: str) -> None:
    """Within one millisecond too: what one command writes after another is read back in that order."""
    tenant = bench.ids.new()
    for microsecond in range(5_500, 5_530):
        at = f"timestamptz '2026-01-01 00:00:00.{microsecond:06}+00'"
        await bench.admin.fetch(
            statement.replace("clock_timestamp()", at), tenant, "cli", str(microsecond), tenant, "{}"
        )
    ids = [row["id"] for row in await bench.admin.fetch("select id from audit order by action")]
    assert {(one.version, one.variant, one.int >> 80) for one in ids} == {(7, RFC_4122, 1_767_225_600_005)}
    assert ids == sorted(ids)


async def test_audit_ids_come_in_order(postgres_bench: PostgresBench) -> None:
    await check_audit_ids_come_in_order(postgres_bench, query("audit_insert"))


async def test_audit_ids_of_no_order_within_a_millisecond_are_caught(postgres_bench: PostgresBench) -> None:
    unordered = query("audit_insert").replace("us % 1000 * 4096 / 1000", "floor(random() * 4096)::int")
    assert unordered != query("audit_insert")
    with pytest.raises(AssertionError):
        await check_audit_ids_come_in_order(postgres_bench, unordered)
