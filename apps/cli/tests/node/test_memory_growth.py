"""B76, of a whole node: neither rows, results, exceptions nor asyncio tasks add up with the runs that it has called.

Ray's part in it is small: no run travels through an actor's calls. Bytes are not compared, since an allocator keeps
what it likes; what is alive is counted.
"""

import asyncio
import gc
from collections import Counter
from types import TracebackType

import pytest

from node_bench import Node, NodeBench
from scripted_endpoint import Request
from tocsin.common.ids import lane_of
from tocsin.common.store.postgres.wakeups import queue_payload
from tocsin.common.store.rows import Begun, Task
from tocsin.executor.completer import Completer

RUNS = 400
CYCLES = 3
_PLANT = """
insert into pending (run_id, tenant_id, task_id, due_at, plan_version, priority, lane, kind)
select id, $1, $2, clock_timestamp(), $3, $4, $5, 'now' from unnest($6::uuid[]) id
"""
_LEFT = "select (select count(*) from running) + (select count(*) from pending where kind <> 'next')"


async def failing(_request: Request) -> int:
    return 500


async def cycle(bench: NodeBench, tasks: list[Task], runs: int) -> None:
    """So many runs of each task, to their end."""
    for task in tasks:
        ids = [bench.ids.new() for _ in range(runs)]
        priority = int(task.plan.priority)
        await bench.execute(_PLANT, task.tenant_id, task.id, task.plan_version, priority, lane_of(task.id), ids)
        await bench.store.tasks.notify(queue_payload([(task.tenant_id, priority)]))

    async def over() -> bool:
        (row,) = await bench.fetch(_LEFT)
        return not row[0]

    await bench.until(over, "all have ended", within=60)
    bench.endpoint.seen.clear()


def alive(node: Node) -> Counter[str]:
    """What is alive of our own kinds, of tracebacks, and of our asyncio tasks."""
    gc.collect()
    found: Counter[str] = Counter()
    for thing in gc.get_objects():
        if type(thing).__module__.startswith("tocsin.") or isinstance(thing, TracebackType):
            found[type(thing).__name__] += 1
    codes = (getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks())
    found["asyncio tasks"] = sum(code is not None and "/src/tocsin/" in code.co_filename for code in codes)
    found["in flight"] = node.executor.status.in_flight
    return found


async def grown(bench: NodeBench, runs: int = RUNS) -> dict[str, tuple[int, int]]:
    """What there is more of, by more than a few, after some thousand runs than after some hundred."""
    bench.endpoint.answers["/failing"] = failing
    node = bench.start()
    tenant = await bench.a_tenant(max_in_flight=50)
    tasks = [
        await bench.an_idle_task(tenant, "/"),
        await bench.an_idle_task(tenant, "/failing", call={"retry": {"max_attempts": 1}}),
        await bench.an_idle_task(tenant, call={"url": "http://127.0.0.1:9/", "retry": {"max_attempts": 1}}),
    ]
    await bench.ready(node, tenants=1)
    await cycle(bench, tasks, runs)
    before = alive(node)
    for _ in range(CYCLES):
        await cycle(bench, tasks, runs)
    return {name: (before[name], count) for name, count in alive(node).items() if count > before[name] + 20}


async def test_b76_nothing_adds_up_with_the_runs_that_a_node_has_called(bench: NodeBench) -> None:
    assert await grown(bench) == {}


async def test_b76_the_check_catches_a_completer_that_keeps_its_runs(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Begun] = []
    add = Completer.add

    def keeping(self: Completer, run: Begun, completion: object) -> None:
        kept.append(run)
        add(self, run, completion)  # type: ignore[arg-type]

    monkeypatch.setattr(Completer, "add", keeping)
    assert "Begun" in await grown(bench, runs=50)  # it keeps every one
