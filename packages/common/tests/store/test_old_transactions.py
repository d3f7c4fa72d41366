"""B64: a transaction that is left open keeps every dead row; what finds and begins work does not get slower by them."""

import json
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from store_bench import PostgresBench
from store_builders import a_task
from tocsin.common.store.postgres.database import PLANNING
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.rows import Task

DEAD = 20_000
DUE = 100
FEW_PAGES = 200


@pytest.fixture
async def old_transaction(postgres_bench: PostgresBench) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """Somebody's session that has read something, and sits there."""
    connection = await asyncpg.connect(postgres_bench.url)
    await connection.execute("begin isolation level repeatable read; select count(*) from pending")
    yield connection
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
