"""B65: whoever claims rows gets at most as many as he asked for, whatever the plan and however many ask at once."""

import asyncio
from uuid import UUID

import asyncpg
import pytest

from store_bench import PostgresBench
from store_builders import a_lease, a_run, a_tenant
from tocsin.common.store.postgres.queries import query

NESTED_LOOPS = {
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "enable_hashagg": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""The plan under which a limited subquery runs once for each row. Statistics are stale: nothing is analyzed."""


async def test_b65_twenty_takers_of_one_get_one_each(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    leases = [await a_lease(bench) for _ in range(20)]
    taken = await asyncio.gather(*(bench.store.leases.take_shards(lease, "shared", 1) for lease in leases))
    assert [len(shards) for shards in taken] == [1] * 20
    assert len({shards[0].shard for shards in taken}) == 20


async def check_a_take_keeps_to_its_limit(bench: PostgresBench, text: str) -> None:
    lease: UUID = await a_lease(bench)
    connection = await asyncpg.connect(bench.url, server_settings=NESTED_LOOPS)
    try:
        assert len(await connection.fetch(text, lease, "shared", 3)) == 3
    finally:
        await connection.close()
    owned = await bench.admin.fetchval("select count(*) from shards where owner = $1", lease)
    assert owned == 3


async def test_b65_a_take_keeps_to_its_limit_in_a_nested_loop(postgres_bench: PostgresBench) -> None:
    await check_a_take_keeps_to_its_limit(postgres_bench, query("shard_take"))


async def test_b65_a_limited_subquery_is_caught(postgres_bench: PostgresBench) -> None:
    broken = """
    update shards s set owner = $1 from shards o
     where o.shard = s.shard and s.shard in (
           select f.shard from shards f where f.cell = $2 and f.owner is null and f.shard >= s.shard - s.shard
            order by f.shard limit $3 for update skip locked)
    returning s.shard"""
    with pytest.raises(AssertionError):
        await check_a_take_keeps_to_its_limit(postgres_bench, broken)


async def test_b65_giving_back_keeps_to_its_limit_in_a_nested_loop(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    lease, tenant = await a_lease(bench), await a_tenant(bench)
    runs = [await a_run(bench, lease, tenant_id=tenant) for _ in range(10)]
    await bench.store.leases.expire([lease])
    connection = await asyncpg.connect(bench.url, server_settings=NESTED_LOOPS)
    try:
        assert len(await connection.fetch(query("give_back"), [tenant], 4, 5)) == 4
    finally:
        await connection.close()
    assert await bench.admin.fetchval("select count(*) from running") == len(runs) - 4
