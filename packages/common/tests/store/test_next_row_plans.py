"""Plans of the statements by which the Supervisor looks after next rows: a page costs a page, by the named indexes."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tocsin.common.store.postgres.database import PLANNING
from tocsin.common.store.postgres.queries import query

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

FIRST = "0" * 32
SEED = """
insert into tenants (id, name, shard) select md5('tenant' || i)::uuid, 'tenant ' || i, i from generate_series(0, 9) i;
insert into tasks (id, tenant_id, name, plan, call)
select md5('task' || i)::uuid, md5('tenant' || i % 10)::uuid, 'task',
       jsonb_build_object('schedule', jsonb_build_object('zone', case i % 10 when 0 then 'Asia/Tokyo' else 'UTC' end)),
       '{}'
  from generate_series(1, 20000) i;
insert into pending (run_id, tenant_id, task_id, due_at, slot, plan_version, priority, lane, kind)
select md5('pending' || i)::uuid, md5('tenant' || i % 10)::uuid, md5('task' || i)::uuid, now(), now(), 1, 2, 0, 'next'
  from generate_series(1, 20000) i;
insert into running (run_id, tenant_id, task_id, lease_id, due_at, fence, version, plan_version, priority, lane, losses,
                     kind)
select md5('running' || i)::uuid, md5('tenant' || i % 10)::uuid, md5('task' || i)::uuid, md5('lease')::uuid, now(), 1,
       1, 1, 2, 0, 0, 'slot'
  from generate_series(1, 10000) i;
insert into history (run_id, tenant_id, task_id, ended_at, fence, losses, sent, kind, state, outcome)
select md5('history' || i)::uuid, md5('tenant' || i % 10)::uuid, md5('task' || i)::uuid, now(), 1, 0, true, 'slot',
       'succeeded', 'success'
  from generate_series(1, 10000) i;
analyze
"""

ARGUMENTS = {
    "zoned_page": f"'{FIRST}', 100",
    "next_row_suspects": f"'{FIRST}', 100",
    "next_row_count": f"'{{{FIRST}}}'",
}
INDEXES = {
    "zoned_page": {"tasks_zoned", "pending_task"},
    "next_row_suspects": {"tasks_pkey", "pending_task"},
    "next_row_count": {"tasks_pkey", "pending_task", "running_task"},
}


@pytest.fixture(scope="module")
def seeded_url(databases: Any, migrated_template: str) -> Iterator[str]:
    name = databases.create(template=migrated_template)
    url = databases.url(name)

    async def seed() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(SEED)
        await connection.close()

    databases.run(seed())
    yield url
    databases.drop(name)


@pytest.fixture
async def seeded(seeded_url: str) -> "AsyncIterator[Connection]":
    """A connection that plans as the pool's do."""
    connection = await asyncpg.connect(seeded_url, server_settings=PLANNING)
    yield connection
    await connection.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def ran(connection: "Connection", name: str, text: str) -> list[dict[str, Any]]:
    """The nodes of a statement's generic plan, with what they met."""
    await connection.execute(f"prepare ran as {text}")
    (row,) = await connection.fetch(f"explain (analyze, format json) execute ran({ARGUMENTS[name]})")
    await connection.execute("deallocate ran")
    return list(nodes(json.loads(row[0])[0]["Plan"]))


def indexes(plan: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in plan if "Index Name" in node}


def tasks_met(plan: list[dict[str, Any]]) -> int:
    return sum(
        int(node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * int(node["Actual Loops"])
        for node in plan
        if node.get("Relation Name") == "tasks"
    )


@pytest.mark.parametrize("name", INDEXES)
async def test_a_page_of_tasks_is_read_by_its_indexes(seeded: "Connection", name: str) -> None:
    plan = await ran(seeded, name, query(name))
    assert INDEXES[name] <= indexes(plan)
    whole = {node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"}
    assert whole & {"tasks", "pending", "running"} == set()
    assert tasks_met(plan) <= 100


async def test_history_is_read_by_its_key(seeded: "Connection") -> None:
    plan = await ran(seeded, "next_row_count", query("next_row_count"))
    assert any(index.startswith("history_2") for index in indexes(plan))


async def test_pages_that_cost_more_than_a_page_are_caught(seeded: "Connection") -> None:
    """The broken twins: a condition that is not word for word the index's, and one that comes before the limit."""
    reworded = query("zoned_page").replace("t.plan -> 'schedule' ->> 'zone'", "t.plan #>> '{schedule,zone}'")
    plan = await ran(seeded, "zoned_page", reworded)
    assert "tasks_zoned" not in indexes(plan)
    assert tasks_met(plan) > 500
    filtered = query("next_row_suspects").replace("where id > $1 order", "where id > $1 and state = 'faulty' order")
    assert tasks_met(await ran(seeded, "next_row_suspects", filtered)) == 20_000
