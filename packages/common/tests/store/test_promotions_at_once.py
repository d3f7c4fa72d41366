"""Promotions and demotions under way, on PostgreSQL: what comes second waits, and sees what the first has done."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from store_bench import PostgresBench
from store_builders import a_tenant
from tocsin.common.errors import ConflictError
from tocsin.common.ids import shard_of
from tocsin.common.store.postgres import database
from tocsin.common.store.postgres.queries import query

BLOCKED = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"


async def while_another_promotes(bench: PostgresBench, other: UUID, work: Any) -> "asyncio.Task[Any]":
    """`work`, begun while another tenant is given two executors of its own, and ended after that."""
    async with bench.admin.transaction():
        await bench.admin.fetch(query("cells_lock"))
        await bench.admin.fetch(query("tenant_lock"), other)
        await bench.admin.fetch(query("cell_open"), other, 2)
        waiting = asyncio.create_task(work)
        while not await bench.watcher.fetchval(BLOCKED):
            assert not waiting.done(), "it should have waited"
    await asyncio.wait({waiting})
    return waiting


async def shards_of(bench: PostgresBench, cell: str) -> list[int]:
    return [shard for shard, _ in await bench.store.tenants.cell_shards(cell)]


async def check_two_tenants_get_shards_of_their_own(bench: PostgresBench) -> None:
    first, second = await a_tenant(bench), await a_tenant(bench)
    promoting = await while_another_promotes(bench, first, bench.store.tenants.open_cell(second, 3))
    assert await shards_of(bench, promoting.result()) == [66, 67, 68]
    assert await shards_of(bench, f"tenant-{first}") == [64, 65]


async def test_two_tenants_get_shards_of_their_own(postgres_bench: PostgresBench) -> None:
    await check_two_tenants_get_shards_of_their_own(postgres_bench)


async def test_cells_made_without_a_lock_are_caught(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked = query("cells_lock").replace("for no key update", "")
    monkeypatch.setattr(database, "query", lambda name: unlocked if name == "cells_lock" else query(name))
    with pytest.raises(asyncpg.UniqueViolationError):
        await check_two_tenants_get_shards_of_their_own(postgres_bench)


async def test_the_second_promotion_of_a_tenant_is_told_so(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    tenant = await a_tenant(bench)
    promoting = await while_another_promotes(bench, tenant, bench.store.tenants.open_cell(tenant, 5))
    with pytest.raises(ConflictError, match="demote it first"):
        promoting.result()
    assert await shards_of(bench, f"tenant-{tenant}") == [64, 65]
    assert [(p.cell, p.executors) for p in await bench.store.tenants.placements()] == [
        ("shared", 1),
        (f"tenant-{tenant}", 2),
    ]


async def check_a_new_generation_is_that_of_every_cell(bench: PostgresBench) -> None:
    tenant = await a_tenant(bench)
    raising = await while_another_promotes(bench, tenant, bench.store.tenants.next_generation())
    generations = {placement.cell: placement.generation for placement in await bench.store.tenants.placements()}
    assert generations == {"shared": raising.result(), f"tenant-{tenant}": raising.result()}


async def test_a_new_generation_is_that_of_every_cell(postgres_bench: PostgresBench) -> None:
    await check_a_new_generation_is_that_of_every_cell(postgres_bench)


async def test_a_generation_raised_without_a_lock_is_caught(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked = query("cells_lock").replace("for no key update", "")
    monkeypatch.setattr(database, "query", lambda name: unlocked if name == "cells_lock" else query(name))
    with pytest.raises(AssertionError):
        await check_a_new_generation_is_that_of_every_cell(postgres_bench)


async def test_generations_that_differ_become_one_again(postgres_bench: PostgresBench) -> None:
    tenants = postgres_bench.store.tenants
    cell = await tenants.open_cell(await a_tenant(postgres_bench), 1)
    await postgres_bench.admin.execute("update placements set generation = 7 where cell = $1", cell)
    assert await tenants.next_generation() == 8
    assert [placement.generation for placement in await tenants.placements()] == [8, 8]


async def check_a_move_asked_for_while_the_cell_closes_is_none(bench: PostgresBench) -> None:
    tenant = await a_tenant(bench)
    cell = await bench.store.tenants.open_cell(tenant, 1)
    async with bench.admin.transaction():
        await bench.admin.fetch(query("cell_close"), cell, shard_of(tenant))
        asking = asyncio.create_task(bench.store.tenants.ask_move(tenant, 64))
        while not await bench.watcher.fetchval(BLOCKED):
            assert not asking.done(), "it should have waited"
    await asking
    assert await bench.store.tenants.moving() == []
    assert await bench.store.tenants.remove_cell(cell)


async def test_a_move_asked_for_while_the_cell_closes_is_none(postgres_bench: PostgresBench) -> None:
    await check_a_move_asked_for_while_the_cell_closes_is_none(postgres_bench)


async def test_a_move_asked_for_without_a_lock_is_caught(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked = query("tenant_ask_move").replace("for share of p", "")
    assert unlocked != query("tenant_ask_move")
    monkeypatch.setattr(database, "query", lambda name: unlocked if name == "tenant_ask_move" else query(name))
    with pytest.raises(AssertionError):
        await check_a_move_asked_for_while_the_cell_closes_is_none(postgres_bench)


async def check_a_cap_is_not_lowered_below_a_promotion_under_way(bench: PostgresBench) -> None:
    tenant = await a_tenant(bench)
    lowering = bench.store.tenants.set_limits(tenant, lambda old: replace(old, max_in_flight=1))
    with pytest.raises(ConflictError, match="need a cap of 2"):
        (await while_another_promotes(bench, tenant, lowering)).result()


async def test_a_cap_is_not_lowered_below_a_promotion_under_way(postgres_bench: PostgresBench) -> None:
    await check_a_cap_is_not_lowered_below_a_promotion_under_way(postgres_bench)


async def test_limits_set_without_a_lock_are_caught(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked = query("tenant_lock").replace("for no key update", "")
    monkeypatch.setattr(database, "query", lambda name: unlocked if name == "tenant_lock" else query(name))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await check_a_cap_is_not_lowered_below_a_promotion_under_way(postgres_bench)
