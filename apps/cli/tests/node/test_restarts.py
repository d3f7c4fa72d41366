"""B29, B31 and B37 where executors come and go: no slot is lost or has two runs, and nobody forgets what still runs."""

import asyncio
from collections import Counter
from functools import partial

import pytest

from node_bench import Node, NodeBench
from tocsin.common.models import Misfire, Overlap
from tocsin.common.store.postgres import database
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.rows import Task
from tocsin.engine import plan as plan_module

RESTARTS = 5


async def five_restarts(bench: NodeBench, *, by_kill: bool) -> list[Task]:
    """Tasks of every second, served by one executor that is started anew five times within some seconds."""
    tenant = await bench.a_tenant()
    tasks = [await bench.a_task(tenant, f"/{n}", misfire=Misfire.FIRE_ALL, grace_seconds=1) for n in range(5)]
    for number in range(RESTARTS + 1):
        node = bench.start(f"life {number}", ttl=1)
        await bench.all_called(tasks, 1)
        if number < RESTARTS:
            await (node.kill() if by_kill else node.drain())
    await bench.quiet(*tasks)
    return tasks


@pytest.mark.parametrize("by_kill", [False, True], ids=["drained", "killed"])
async def test_b29_five_restarts_within_a_minute_add_no_run(bench: NodeBench, *, by_kill: bool) -> None:
    tasks = await five_restarts(bench, by_kill=by_kill)
    await bench.check_slots()
    await bench.check(*tasks, after_failure=by_kill)


async def test_b29_a_begin_that_leaves_its_row_behind_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: a slot goes in again under another id when it is begun, as by one who plants what he has not
    deleted."""
    broken = query("begin").replace(
        "skipped as (",
        """again as (
            insert into pending (run_id, tenant_id, task_id, due_at, slot, last_slot, plan_version, priority, lane,
                                 kind)
            select gen_random_uuid(), tenant_id, task_id, due_at, slot, last_slot, plan_version, priority, lane, 'slot'
              from v where kind = 'next' and slot = (select min(slot) from v)
        ),
        skipped as (""",
    )
    monkeypatch.setattr(database, "query", lambda name: broken if name == "begin" else query(name))
    task = await bench.a_task(await bench.a_tenant(), "/ticking")
    bench.start()

    def doubled() -> bool:
        slots = Counter(request.scheduled_for for request in bench.endpoint.seen)
        return max(slots.values(), default=0) > 1

    await bench.endpoint.until(doubled, "a slot was called twice")
    await bench.quiet(task)
    with pytest.raises(AssertionError):
        await bench.check_slots()


POINTS = ["begin.before", "begin.after", "call.before", "call.after", "complete.before", "complete.after"]


def die(node: Node, in_flight: list[int]) -> None:
    in_flight.append(node.executor.status.in_flight)
    node.fall()
    raise asyncio.CancelledError


async def deaths_with_a_slot(bench: NodeBench) -> tuple[list[Task], int]:
    """One executor for each point, which dies there with a slot of a task that runs every second; and one that lives.

    The tasks, and how many calls were in flight where one died.
    """
    in_flight: list[int] = []
    victims = {point: bench.start(point, ttl=2) for point in POINTS}  # less would be lost on a busy machine
    survivor = bench.start("survivor", ttl=2)
    await bench.ready(*victims.values(), survivor)
    tasks = [await bench.a_task(await bench.a_tenant(served_by=n), f"/{point}") for point, n in victims.items()]
    await bench.all_called(tasks, 1)
    for point, node in victims.items():
        bench.points.at(point, point, partial(die, node, in_flight))
    await bench.until(lambda: all(node.running.done() for node in victims.values()), "all have died")
    await bench.all_called(tasks, 2)
    await bench.quiet(*tasks)
    return tasks, sum(in_flight)


async def test_b31_c_no_slot_is_lost_or_doubled_wherever_its_executor_dies(bench: NodeBench) -> None:
    """Each slot has one run, the next one follows, and what was called again was in flight as its executor died."""
    tasks, in_flight = await deaths_with_a_slot(bench)
    await bench.check_slots()
    await bench.check(*tasks, after_failure=True)
    calls = Counter(request.run_id for request in bench.endpoint.seen)
    assert 2 <= sum(calls.values()) - len(calls) <= in_flight


async def test_b31_c_a_successor_that_comes_with_the_completion_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: begin takes the slot, and the next one is planted in a statement of its own, later."""
    begin = query("begin")
    start = begin.index("planted as (")
    broken = begin[:start] + begin[begin.index("skipped as (") :]
    broken = broken.replace("skipped as (", "unplanted as (select $12::int[], $13::uuid[], $14::text[], $15::float8[],"
                            " $16::float8[], $17::timestamptz[]), skipped as (", 1)  # fmt: skip
    monkeypatch.setattr(database, "query", lambda name: broken if name == "begin" else query(name))
    task = await bench.a_task(await bench.a_tenant(), "/ticking")
    node = bench.start(ttl=1)
    bench.points.at("a", "begin.after", partial(die, node, []))
    await bench.until(node.running.done, "it has died")
    with pytest.raises(AssertionError, match="0 next rows"):
        await bench.check(task, after_failure=True)


async def most_at_once(bench: NodeBench, overlap: Overlap) -> int:
    """The calls of a task that are open at once, where its executor drains and another takes over."""
    old, new = bench.start("old"), bench.start("new")
    await bench.ready(old, new)
    task = await bench.a_task(await bench.a_tenant(served_by=old), "/held", overlap=overlap)
    release = bench.endpoint.hold("/held")
    await bench.endpoint.until_seen("/held")
    draining = asyncio.create_task(old.drain())
    await bench.ready(new, tenants=1)
    await asyncio.gather(*(bench.run_now(task) for _ in range(5)))
    looked = bench.points.reached["new", "begin.after"]
    await bench.until(lambda: bench.points.reached["new", "begin.after"] > looked + 1, "the new owner has tried")
    most = bench.endpoint.most["/held"]
    release.set()
    await draining
    await bench.quiet(task)
    await bench.check(task)
    return max(most, bench.endpoint.most["/held"])


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.BUFFER_ONE])
async def test_b37_a_new_owner_sees_what_the_old_one_still_calls(bench: NodeBench, overlap: Overlap) -> None:
    assert await most_at_once(bench, overlap) == 1


async def test_b37_a_new_owner_that_goes_by_its_own_memory_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "is_exclusive", lambda _row, _spec: False)
    assert await most_at_once(bench, Overlap.SKIP) > 1
