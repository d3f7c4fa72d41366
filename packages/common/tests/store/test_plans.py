"""Plans of the statements on the path and of the API's writes, over many rows: named indexes, and nothing read whole.

Statements are explained as production plans them: prepared, with a generic plan.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tocsin.common.store.postgres.database import PLANNING
from tocsin.common.store.postgres.queries import query

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

ROWS = 50_000
LEASES = 200
SEED = f"""
insert into tenants (id, name, shard)
select md5('tenant' || i)::uuid, 'tenant ' || i, i % 64 from generate_series(1, 200) i;
insert into tasks (id, tenant_id, name, plan, call)
select md5('task' || i)::uuid, md5('tenant' || i % 200 + 1)::uuid, 'task', '{{}}', '{{}}'
  from generate_series(1, {ROWS}) i;
insert into pending (run_id, tenant_id, task_id, due_at, slot, last_slot, fence, plan_version, priority, lane, losses,
                     kind)
select md5('pending' || i)::uuid, md5('tenant' || i % 200 + 1)::uuid, md5('task' || i)::uuid, due, due, null, 0, 1,
       i % 4, i % 1024, 0, 'next'
  from generate_series(1, {ROWS}) i, lateral (select now() + i * interval '100 milliseconds') as d (due);
insert into leases (id, cell, generation, node, boot, pid_namespace, pid, process_started, zone_data, ttl)
select md5('lease' || i)::uuid, 'shared', 0, 'node', 'boot', 'ns', i, 0, '2026a', interval '10 s'
  from generate_series(1, 200) i;
insert into running (run_id, tenant_id, task_id, lease_id, due_at, slot, fence, version, plan_version, priority, lane,
                     losses, kind)
select md5('running' || i)::uuid, md5('tenant' || i % 200 + 1)::uuid, md5('task' || i)::uuid,
       md5('lease' || i % 200 + 1)::uuid, now(), now(), 1, 1, 1, 2, i % 1024, 0, 'slot'
  from generate_series(1, 20000) i;
insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, fence, losses, sent, kind, state, outcome)
select md5('history' || i)::uuid, md5('tenant' || i % 200 + 1)::uuid, md5('task' || i)::uuid, now(), now(), now(), 1, 0,
       true, 'slot', 'succeeded', 'success'
  from generate_series(1, {ROWS}) i;
analyze
"""

PEAK = 3_000
SEED_PEAK = f"""
insert into running (run_id, tenant_id, task_id, lease_id, due_at, slot, fence, version, plan_version, priority, lane,
                     losses, kind)
select md5('running' || i)::uuid, md5('tenant')::uuid, md5('task' || i)::uuid, md5('lease')::uuid, now(), now(), 1, 1,
       1, 2, i % 1024, 0, 'slot'
  from generate_series(1, {PEAK}) i
"""
"""What an executor held whose lease is gone."""

EXPECTED = {
    "heads": {"pending_queue"},
    "pending_by_id": {"pending_pkey"},
    "begin": {"pending_pkey", "running_task", "pending_task", "tasks_pkey"},
    "complete": {"running_pkey"},
    "put_back": {"running_pkey"},
    "held": {"running_pkey"},
    "recheck": {"tasks_pkey"},
    "count_held": {"running_pkey", "tenants_pkey"},
    "cancel_of_tasks": {"running_task", "pending_task"},
    "definitions": {"tasks_pkey"},
    "mark_faulty": {"tasks_pkey"},
    "task_lock": set(),  # by either key of tasks, as the planner likes
    "task_lock_any": {"tasks_pkey"},
    "task_update": {"tasks_pkey"},
    "task_delete": {"tasks_pkey"},
    "next_find": {"pending_task"},
    "next_delete": {"pending_pkey"},
    "withdraw_waiting": {"pending_task"},
    "cancel_pending": {"pending_pkey"},
    "cancel_running": {"running_pkey"},
    "greatest_slot": {"pending_task", "running_task"},
    "run_find": {"pending_pkey", "running_pkey"},
    "run_get": {"pending_pkey", "running_pkey"},
    "run_list": {"pending_task", "running_task"},
    "task_get": {"pending_task"},
    "task_list": {"tasks_tenant", "pending_task"},
}
LARGE = {"pending", "running", "tasks", "history_full"}
"""`history_full` is the partition that holds the rows."""
LEADING = {"running_pkey": "lease_id", "pending_queue": "tenant_id"}
"""First columns of indexes of several: a scan without a condition on it reads the index from end to end."""


@pytest.fixture(scope="module")
def seeded_url(databases: Any, migrated_template: str) -> Iterator[str]:
    """A database as a busy platform has it."""
    name = databases.create(template=migrated_template)
    url = databases.url(name)

    async def seed() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(SEED)
        full = await connection.fetchval("select tableoid::regclass::text from history limit 1")
        await connection.execute(f"alter table {full} rename to history_full")
        await connection.close()

    databases.run(seed())
    yield url
    databases.drop(name)


@pytest.fixture
async def seeded(seeded_url: str) -> "AsyncIterator[Connection]":
    """A connection to it that plans as the pool's do."""
    connection = await asyncpg.connect(seeded_url, server_settings=PLANNING)
    yield connection
    await connection.close()


def nodes(plan: dict[str, Any], parent: str = "") -> Iterator[dict[str, Any]]:
    yield {**plan, "Parent": parent}
    for child in plan.get("Plans", ()):
        yield from nodes(child, plan["Node Type"])


async def explained(connection: "Connection", text: str) -> list[dict[str, Any]]:
    """The nodes of a statement's generic plan."""
    count = max(map(int, re.findall(r"\$(\d+)", text)), default=0)
    await connection.execute(f"prepare explained as {text}")
    nulls = f"({', '.join(['null'] * count)})" if count else ""
    (row,) = await connection.fetch(f"explain (format json) execute explained{nulls}")
    await connection.execute("deallocate explained")
    return list(nodes(json.loads(row[0])[0]["Plan"]))


def read_whole(plan: list[dict[str, Any]]) -> set[str]:
    """The large tables that a plan reads from end to end, be it through an index without a condition on it."""
    whole = {node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"}
    whole |= {
        node["Relation Name"]
        for node in plan
        if node["Node Type"].startswith("Index")
        and ("Index Cond" not in node or LEADING.get(node["Index Name"], "") not in node["Index Cond"])
        and node["Parent"] != "Limit"
    }
    return whole & LARGE


def indexes(plan: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in plan if "Index Name" in node}


async def test_statements_use_their_indexes(seeded: "Connection") -> None:
    faults = {}
    for name, expected in EXPECTED.items():
        plan = await explained(seeded, query(name))
        if read_whole(plan) or not expected <= indexes(plan):
            faults[name] = (read_whole(plan), expected - indexes(plan))
    assert faults == {}


async def test_history_is_read_by_its_keys(seeded: "Connection") -> None:
    for name in ("run_get", "run_find", "run_list", "greatest_slot", "give_back"):
        used = indexes(await explained(seeded, query(name)))
        assert any(index.startswith("history_2") for index in used), name


async def test_a_plan_without_an_index_is_caught(seeded: "Connection") -> None:
    """The broken twins: a condition that no index serves, and a give back in one step."""
    by_text = query("complete").replace("lease_id = $20", "lease_id::text = $20::uuid::text")
    assert read_whole(await explained(seeded, by_text)) == {"running"}


async def running_rows_touched(connection: "Connection", text: str, meanwhile: str = "") -> float:
    """Rows of `running` that a give back looks at, planned before `meanwhile` happens."""
    tenants = await connection.fetchval("select quote_literal(array_agg(id)::text) from tenants")
    await connection.execute(f"prepare give_back as {text}")
    if meanwhile:
        await connection.execute(f"execute give_back({tenants}, 1000, 5)")
        await connection.execute(meanwhile)
    (row,) = await connection.fetch(f"explain (analyze, format json) execute give_back({tenants}, 1000, 5)")
    await connection.execute("deallocate give_back")
    touched = sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(json.loads(row[0])[0]["Plan"])
        if node.get("Relation Name") == "running"
    )
    return float(touched)


async def test_giving_back_costs_a_probe_a_live_lease(seeded: "Connection") -> None:
    text = query("give_back")
    assert await running_rows_touched(seeded, text) <= LEASES + 1
    one_step = text.replace(
        "select k.id as lease_id from known k where k.dead",
        "select distinct lease_id from running where lease_id not in (select id from known where not dead)",
    )
    assert await running_rows_touched(seeded, one_step) > 10_000, "the broken twin reads all that runs"


async def test_giving_back_looks_at_what_the_dead_hold_alone(seeded: "Connection") -> None:
    transaction = seeded.transaction()
    await transaction.start()
    await seeded.execute("update leases set expired_at = now() where id = md5('lease7')::uuid")
    held = await seeded.fetchval("select count(*) from running where lease_id = md5('lease7')::uuid")
    assert await running_rows_touched(seeded, query("give_back")) <= LEASES + 1 + 4 * held
    await transaction.rollback()


async def rows_touched(connection: "Connection") -> list[float]:
    """What a read of the first five rows of one queue touches, beside a backlog of 250."""
    tenant = await connection.fetchval("select tenant_id from pending order by due_at limit 1")
    arguments = f"array['{tenant}']::uuid[], '{{1}}', array[null]::timestamptz[], array['{'0' * 32}']::uuid[]"
    await connection.execute(f"prepare heads as {query('heads')}")
    (row,) = await connection.fetch(
        f"explain (analyze, format json) execute heads({arguments}, '{{0}}', '{{1024}}', '{{5}}', 10, 1e6)"
    )
    await connection.execute("deallocate heads")
    plan = list(nodes(json.loads(row[0])[0]["Plan"]))
    return [node["Actual Rows"] for node in plan if node.get("Index Name") == "pending_queue"]


async def test_a_head_costs_the_same_beside_a_backlog(seeded: "Connection") -> None:
    assert await rows_touched(seeded) == [5]
    await seeded.execute("set enable_bitmapscan = on")
    (touched,) = await rows_touched(seeded)
    assert touched > 200, "the broken twin: with bitmap scans the whole queue is read"


@pytest.mark.parametrize("before", ["", "vacuum analyze running"], ids=["new", "quiet"])
async def test_giving_back_after_a_peak_does_not_hang_on_what_was_known_before_it(
    databases: Any, migrated_template: str, before: str
) -> None:
    """A plan made while `running` is empty outlives it: it must not compare every row with every other then."""
    name = databases.create(template=migrated_template)
    connection = await asyncpg.connect(databases.url(name), server_settings=PLANNING)
    await connection.execute("alter table running set (autovacuum_enabled = off)")
    await connection.execute("insert into tenants (id, name, shard) values (md5('tenant')::uuid, 'tenant', 0)")
    if before:
        await connection.execute(before)
    touched = await running_rows_touched(connection, query("give_back"), meanwhile=SEED_PEAK)
    await connection.execute("truncate running, pending, history; set enable_seqscan = on")
    if before:
        await connection.execute(before)
    by_scans = await running_rows_touched(connection, query("give_back"), meanwhile=SEED_PEAK)
    await connection.close()
    databases.drop(name)
    assert PEAK < touched <= 5 * PEAK
    assert not before or by_scans > 100 * PEAK, "the broken twin: an empty table is cheapest to scan"
