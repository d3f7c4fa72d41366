"""Rule 12: an executor of an old generation, restarted by whom it may, takes no lease again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from node_bench import NodeBench
from tocsin.cli.node import ExecutorNode
from tocsin.common.settings import Settings
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.telemetry.meter import MemoryMeter


class TakesALeaseAnyway(ExecutorNode):
    """Broken: does not ask which generation there is before it takes a lease."""

    async def _superseded(self, store: PostgresStore) -> bool:
        return False


@asynccontextmanager
async def started(
    bench: NodeBench, generation: int, node_class: type[ExecutorNode] = ExecutorNode
) -> AsyncIterator[tuple[ExecutorNode, "asyncio.Task[None]"]]:
    settings = Settings(database_url=bench.url, lease_ttl_seconds=2)
    node = node_class(settings, "shared", generation, MemoryMeter())
    running = asyncio.create_task(node.run())
    yield node, running
    await node.drain(10)
    await asyncio.wait_for(running, 20)


async def takes_a_lease(bench: NodeBench, generation: int, node_class: type[ExecutorNode] = ExecutorNode) -> bool:
    """Whether it takes one, rather than ending by itself."""
    async with started(bench, generation, node_class) as (node, running):
        await bench.until(lambda: running.done() or node.status.shards, "it serves or has ended")
        served = not running.done()
        if not served:
            assert await node.outdated(), "its watch must learn of it"
    return served


async def leases(bench: NodeBench) -> int:
    return len(await bench.fetch("select from leases"))


async def test_rule_12_an_outdated_node_takes_no_lease(bench: NodeBench) -> None:
    old = await bench.store.tenants.next_generation()
    await bench.store.tenants.next_generation()
    assert not await takes_a_lease(bench, old)
    assert await leases(bench) == 0
    assert await takes_a_lease(bench, old, TakesALeaseAnyway)


@pytest.mark.parametrize("supervised", [True, False], ids=["the newest", "of no Supervisor"])
async def test_rule_12_others_take_one(bench: NodeBench, *, supervised: bool) -> None:
    newest = await bench.store.tenants.next_generation()
    async with started(bench, newest if supervised else 0) as (node, running):
        await bench.until(lambda: running.done() or node.status.shards, "it serves or has ended")
        assert not running.done()
        assert not await node.outdated()


async def test_rule_12_a_node_that_serves_learns_that_it_is_outdated(bench: NodeBench) -> None:
    async with started(bench, await bench.store.tenants.next_generation()) as (node, _):
        await bench.until(lambda: node.status.shards, "it serves")
        before = await node.outdated()
        await bench.store.tenants.next_generation()
        assert (before, await node.outdated()) == (False, True)
