"""A tenant moves to a cell of its own and back, while its tasks run every second: nothing lost, nothing twice."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from node_bench import NodeBench
from node_cells import NodeCells
from tocsin.common.clock import SystemClock
from tocsin.common.ids import lane_of
from tocsin.common.service import Service
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.common.time.zones import zone_data_version
from tocsin.engine.supervisor import Supervisor
from tocsin.engine.zone_data import ZoneDataConfig, ZoneDataUpgrade


@asynccontextmanager
async def supervised(bench: NodeBench) -> AsyncIterator[NodeCells]:
    cells = NodeCells(bench)
    zone_data = ZoneDataUpgrade(bench.store.next_rows, bench.tasks, ZoneDataConfig(zone_data_version()))
    supervisor = Supervisor(bench.store, cells, SystemClock(), MemoryMeter(), zone_data)
    service = Service("supervisor", supervisor.run_once, 0.05)
    running = asyncio.create_task(service.run())
    try:
        yield cells
    finally:
        service.stop()
        await running


@pytest.mark.parametrize("executors", [1, 2])
async def test_rule_1_promotion_and_demotion_under_load(bench: NodeBench, executors: int) -> None:
    tenant, neighbour = await bench.a_tenant(), await bench.a_tenant()
    async with supervised(bench) as cells:
        tasks = [await bench.a_task(tenant, f"/{n}") for n in range(8)]
        tasks.append(await bench.a_task(neighbour, "/neighbour"))
        assert executors == 1 or len({lane_of(task.id) * 2 // 1024 for task in tasks[:8]}) == 2

        async def more(count: int) -> None:
            wanted = {task.name: len(bench.endpoint.of(task.name)) + count for task in tasks}
            for path, number in wanted.items():
                await bench.endpoint.until_seen(path, number)

        async def shard_is_shared() -> bool:
            found = await bench.store.tenants.find(tenant_id=tenant.id)
            return found is not None and found.shard == tenant.shard and found.move_to is None

        async def shard_is_own() -> bool:
            return not await shard_is_shared() and not await bench.store.tenants.moving()

        await more(1)
        cell = await bench.store.tenants.open_cell(tenant.id, executors)
        await bench.until(shard_is_own, "the tenant has moved to its own cell")
        await bench.until(
            lambda: sum(n.executor.status.tenants for n in bench.nodes if n.name.startswith(cell)) == executors,
            "its own executors serve it",
        )
        await more(1)
        assert await bench.store.tenants.close_cell(cell, tenant.id)
        await bench.store.tasks.notify("tenants")
        await bench.until(shard_is_shared, "the tenant is back")
        await more(1)
        await bench.until(lambda: cell_is_gone(bench, cell), "its cell is gone")
        assert await asyncio.gather(*cells.drained) == [True] * executors
        await bench.quiet(*tasks)
    await bench.check(*tasks)
    for task in tasks:
        history = (await bench.rows(task)).history
        assert {row["outcome"] for row in history if row["reason"] != "paused"} == {"success"}
    slots = Counter((request.task_id, request.scheduled_for) for request in bench.endpoint.seen)
    assert set(slots.values()) == {1}


async def cell_is_gone(bench: NodeBench, cell: str) -> bool:
    return not await bench.fetch("select from placements where cell = $1", cell)
