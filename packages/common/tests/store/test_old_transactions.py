"""B64: a transaction that is left open keeps every dead row; what finds and begins work does not get slower by them."""

import json
from collections.abc import AsyncIterator, Callable
from uuid import UUID

import asyncpg
import pytest

from store_bench import PostgresBench
from store_builders import a_lease, a_task
from tocsin.common.store.postgres.database import PLANNING
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.rows import Task

DEAD = 20_000
DUE = 100
FEW_PAGES = 200


@pytest.fixture
async def old_transaction(postgres_bench: PostgresBench) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """Somebody's session that has read something, and sits there."""
    forever = {"idle_in_transaction_session_timeout": "0"}  # a slow test must not lose it to the server's own limit
    connection = await asyncpg.connect(postgres_bench.url, server_settings=forever)
    await connection.execute("begin isolation level repeatable read; select count(*) from pending")
    yield connection
    assert await connection.fetchval("select count(*) from pending") == 0, "it is still as old as it was"
    await connection.close()


async def put(bench: PostgresBench, task: Task, count: int, age: str) -> None:
    await bench.admin.execute(
        """insert into pending (run_id, tenant_id, task_id, due_at, plan_version, priority, lane, kind)
           select gen_random_uuid(), $1, $2, now() - $4::text::interval + i * interval '1 ms', 1, $5, 0, 'slot'
             from generate_series(1, $3) i""",
        task.tenant_id,
        task.id,
        count,
        age,
        int(task.plan.priority),
    )


async def pages_read(bench: PostgresBench, text: str, tenant_id: UUID, priority: int) -> int:
    """The pages that a read of one queue touches."""
    connection = await asyncpg.connect(bench.url, server_settings=PLANNING)
    values = f"array['{tenant_id}']::uuid[], array[{priority}]::smallint[], array[null]::timestamptz[]"
    bound = "array['00000000-0000-0000-0000-000000000000']::uuid[], array[0], array[1024], array[256], 10, 5"
    try:
        await connection.execute(f"prepare heads as {text}")
        plan = await connection.fetchval(f"explain (analyze, buffers, format json) execute heads({values}, {bound})")
    finally:
        await connection.close()
    top = json.loads(plan)[0]["Plan"]
    assert top["Actual Rows"] == DUE
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


async def check_dead_rows_cost_a_read_nothing(bench: PostgresBench, text: str) -> None:
    task = await a_task(bench)
    await put(bench, task, DEAD, "1 hour")
    await bench.admin.execute("delete from pending where kind = 'slot'")
    await put(bench, task, DUE, "1 second")
    assert await pages_read(bench, text, task.tenant_id, int(task.plan.priority)) < FEW_PAGES


async def test_b64_dead_rows_cost_a_read_nothing(
    postgres_bench: PostgresBench, old_transaction: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await check_dead_rows_cost_a_read_nothing(postgres_bench, query("heads"))


async def test_b64_a_read_from_the_start_is_caught(
    postgres_bench: PostgresBench, old_transaction: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    endless = query("heads").replace(
        "now() - $8::float8 * interval '1 second'", "now() - $8::float8 * interval '1 day'"
    )
    with pytest.raises(AssertionError):
        await check_dead_rows_cost_a_read_nothing(postgres_bench, endless)


_PUT_ONE_EACH = """
insert into pending (run_id, tenant_id, task_id, due_at, plan_version, priority, lane, kind)
select id, $1, $2, now(), 1, 2, 0, 'slot' from unnest($3::uuid[]) id
"""


async def pages_begun(bench: PostgresBench, task: Task, ids: list[UUID]) -> int:
    """The pages that a begin of these runs touches."""
    await bench.admin.execute(_PUT_ONE_EACH, task.tenant_id, task.id, ids)
    lease = await a_lease(bench)
    connection = await asyncpg.connect(bench.url, server_settings=PLANNING)
    runs = ", ".join(f"'{run_id}'" for run_id in ids)
    others = ", ".join(["'{}'"] * 23)
    try:
        await connection.execute(f"prepare begun as {query('begin')}")
        plan = await connection.fetchval(
            f"explain (analyze, buffers, format json) execute begun('{lease}', array[{runs}]::uuid[], {others})"
        )
    finally:
        await connection.close()
    assert await bench.admin.fetchval("select count(*) from running where lease_id = $1", lease) == len(ids)
    top = json.loads(plan)[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


async def check_dead_rows_cost_a_begin_nothing(bench: PostgresBench, new_ids: Callable[[], list[UUID]]) -> None:
    task = await a_task(bench)
    fresh = await pages_begun(bench, task, [bench.ids.new() for _ in range(DUE)])
    for _ in range(DEAD // DUE):
        await bench.admin.execute(_PUT_ONE_EACH, task.tenant_id, task.id, new_ids())
        await bench.admin.execute("delete from pending where kind = 'slot'")
    assert await pages_begun(bench, task, new_ids()) < 2 * fresh


async def test_b64_dead_rows_cost_a_begin_nothing(
    postgres_bench: PostgresBench, old_transaction: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    ids = postgres_bench.ids
    await check_dead_rows_cost_a_begin_nothing(postgres_bench, lambda: [ids.new() for _ in range(DUE)])


async def test_b64_ids_that_are_used_again_are_caught(
    postgres_bench: PostgresBench, old_transaction: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    ids = [postgres_bench.ids.new() for _ in range(DUE)]
    with pytest.raises(AssertionError):
        await check_dead_rows_cost_a_begin_nothing(postgres_bench, lambda: ids)
