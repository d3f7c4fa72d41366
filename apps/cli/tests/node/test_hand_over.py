"""Nodes that come, drain, die and return: every slot once, every run accounted for."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

from node_bench import Node, NodeBench
from scripted_endpoint import Request
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.rows import Task
from tocsin.common.telemetry.metrics import STALE_WRITES


async def nothing_skipped_or_lost(bench: NodeBench, tasks: Sequence[Task]) -> None:
    """Each slot was one run and one call, exactly."""
    await bench.quiet(*tasks)
    await bench.check(*tasks)
    for task in tasks:
        history = (await bench.rows(task)).history
        assert {row["outcome"] for row in history if row["reason"] != "paused"} == {"success"}
    slots = Counter((request.task_id, request.scheduled_for) for request in bench.endpoint.seen)
    assert set(slots.values()) == {1}


async def test_rule_1_shards_are_shared_fairly_and_a_drained_node_is_followed_without_loss(bench: NodeBench) -> None:
    first = bench.start("a")
    second = bench.start("b")
    await bench.ready(first, second)
    tenants = [await bench.a_tenant(served_by=node) for node in (first, second) for _ in range(3)]
    tasks = [await bench.a_task(tenant, f"/{n}") for n, tenant in enumerate(tenants)]
    await bench.all_called(tasks, 1)
    assert await first.drain()
    await bench.ready(second, tenants=6)
    await bench.all_called(tasks, 1)
    third = bench.start("c")
    await bench.ready(second, third, tenants=6)
    await bench.all_called(tasks, 1)
    await nothing_skipped_or_lost(bench, tasks)


async def test_b29_rule_1_two_nodes_that_both_believe_they_own_a_shard_begin_each_slot_once(bench: NodeBench) -> None:
    """A shard changes its owner behind the back of a node that looks only every 7.5 s."""
    slow, quick = bench.start("slow", ttl=60), bench.start("quick", ttl=1)
    await bench.until(lambda: quick.executor.status.lease_id and slow.executor.status.shards, "both are there")
    await bench.store.tasks.notify("tenants")
    await bench.ready(slow, quick)
    tenant = await bench.a_tenant(served_by=slow)
    await bench.ready(slow, quick, tenants=1)
    tasks = [await bench.a_task(tenant, f"/{n}") for n in range(5)]
    await bench.all_called(tasks, 1)
    await bench.execute(
        """update shards set owner = case owner when $1 then $2 else $1 end
            where shard = $3 or shard = (select min(shard) from shards where owner = $2)""",
        slow.lease_id,
        quick.lease_id,
        tenant.shard,
    )
    begun = bench.points.reached.copy()
    await bench.all_called(tasks, 3)
    assert [node.executor.status.tenants for node in (slow, quick)] == [1, 1]
    begun = bench.points.reached - begun
    assert min(begun["slow", "begin.after"], begun["quick", "begin.after"]) > 1
    await nothing_skipped_or_lost(bench, tasks)


async def test_rule_13_a_drain_lets_what_is_in_flight_end(bench: NodeBench) -> None:
    node = bench.start("a")
    task = await bench.an_idle_task(await bench.a_tenant(), "/held")
    release = bench.endpoint.hold("/held")
    run_id = await bench.run_now(task)
    await bench.endpoint.until_seen("/held")
    draining = asyncio.create_task(node.drain())
    await bench.until(lambda: node.executor.status.shards == 0, "the shards are given away")
    assert not draining.done()
    lease_id = node.lease_id
    release.set()
    assert await draining
    (lease,) = await bench.fetch("select expired_at from leases where id = $1", lease_id)
    assert lease["expired_at"] is not None, "the lease was left to run out"
    (row,) = await bench.until_ended(run_id)
    assert (row["state"], row["fence"]) == ("succeeded", 1)
    assert len(bench.endpoint.seen) == 1


async def test_rules_5_to_7_the_runs_of_a_dead_node_come_back_as_lost(bench: NodeBench) -> None:
    first, second = bench.start("a", ttl=1), bench.start("b", ttl=1)
    await bench.ready(first, second)
    tenant = await bench.a_tenant(served_by=first)
    ticking = [await bench.a_task(tenant, "/ticking"), await bench.a_task(await bench.a_tenant(served_by=second), "/b")]
    held = await bench.an_idle_task(tenant, "/held")
    once = await bench.an_idle_task(tenant, "/once", call={"on_lease_lost": "dead"})
    release = bench.endpoint.hold("/held")
    bench.endpoint.hold("/once")
    run_id, dead_id = await bench.run_now(held), await bench.run_now(once)
    await bench.endpoint.until_seen("/held")
    await bench.endpoint.until_seen("/once")
    await bench.all_called(ticking, 1)
    lease_id = first.lease_id
    await first.kill()
    killed = bench.clock.monotonic()
    requests = await bench.endpoint.until_seen("/held", 2)
    assert requests[1].at - killed < 1 + 3
    release.set()
    await bench.until_ended(run_id)
    lost, succeeded = await bench.history_of(run_id)
    assert (lost["outcome"], lost["state"], lost["fence"], lost["sent"], lost["lease_id"]) == (
        "lost",
        None,
        1,
        True,
        lease_id,
    )
    assert (succeeded["state"], succeeded["fence"], succeeded["losses"]) == ("succeeded", 2, 1)
    assert [(request.fence, request.attempt, request.run_id) for request in requests] == [
        (1, 1, run_id),
        (2, 1, run_id),
    ]
    (dead,) = await bench.history_of(dead_id)
    assert (dead["state"], dead["outcome"], dead["reason"]) == ("dead", "lost", "on_lease_lost")
    await bench.all_called(ticking, 1)
    await bench.quiet(*ticking)
    await bench.check(*ticking, held, once, after_failure=True)


# Where a node dies; how often the endpoint sees the run in all; whether the run was given back as lost.
DEATHS = {
    "begin.before": (1, False),
    "begin.after": (1, True),
    "call.before": (1, True),
    "call.after": (2, True),
    "complete.before": (2, True),
    "complete.after": (1, False),
}


async def test_b31_promise_3_a_node_may_die_at_any_point(bench: NodeBench) -> None:
    """One node a point, all in one cell, and one that lives. Nobody's lease is ended before all of them are dead: who
    took a run over from the first could else be one that is about to die, and lose it once more."""
    victims = {point: bench.start(point, ttl=1) for point in DEATHS}
    survivor = bench.start("survivor", ttl=1)
    await bench.ready(*victims.values(), survivor)
    tasks = {
        point: await bench.an_idle_task(await bench.a_tenant(served_by=n), f"/{point}") for point, n in victims.items()
    }
    await bench.until(lambda: sum(n.executor.status.tenants for n in victims.values()) == len(DEATHS), "all are served")
    for point, node in victims.items():
        bench.points.at(point, point, partial(die, node))
    for name in (*victims, "survivor"):
        bench.points.at(name, "judge.before", silent)
    runs = {point: await bench.run_now(task) for point, task in tasks.items()}
    await bench.until(lambda: all(node.running.done() for node in victims.values()), "the dead nodes are gone")
    bench.points.clear("survivor", "judge.before")
    await bench.until_ended(*runs.values())
    for point, run_id in runs.items():
        calls, lost = DEATHS[point]
        rows = await bench.history_of(run_id)
        assert victims[point].running.cancelled(), point
        assert len(bench.endpoint.of_run(run_id)) == calls, point
        assert [row["outcome"] for row in rows] == (["lost"] if lost else []) + ["success"], point
    await bench.check(*tasks.values(), after_failure=True)


def die(node: Node) -> None:
    node.fall()
    raise asyncio.CancelledError  # nor does the step under way go on


async def test_b33_b35_a_zombie_changes_nothing(bench: NodeBench) -> None:
    """A node falls silent with a call open. Its run is called again elsewhere and dies; then the old call succeeds."""
    zombie, heir = bench.start("a", ttl=1), bench.start("b", ttl=1)
    await bench.ready(zombie, heir)
    task = await bench.an_idle_task(await bench.a_tenant(served_by=zombie), "/hook")
    release = asyncio.Event()

    async def answer(request: Request) -> int:
        if request.fence > 1:
            return 410
        await release.wait()
        return 200

    bench.endpoint.answers["/hook"] = answer
    run_id = await bench.run_now(task)
    await bench.endpoint.until_seen("/hook")
    old_lease = zombie.lease_id
    bench.points.at("a", "beat.before", silent)
    (dead,) = await bench.until_ended(run_id)
    assert (dead["state"], dead["fence"]) == ("dead", 2)
    release.set()
    await bench.until(lambda: zombie.meter.counters[STALE_WRITES.name,] == 1, "the late result is stale")
    rows = await bench.history_of(run_id)
    assert [(row["fence"], row["outcome"], row["state"], row["stale"]) for row in rows] == [
        (1, "lost", None, False),
        (1, "success", None, True),
        (2, "http_error", "dead", False),
    ]
    assert await bench.store.runs.put_back(old_lease, [(run_id, 1)]) == []
    assert await bench.store.runs.give_back([task.tenant_id]) == []
    assert len(bench.endpoint.of_run(run_id)) == 2
    bench.points.clear("a", "beat.before")
    await bench.ready(zombie, heir)
    assert zombie.lease_id != old_lease
    await bench.check(task, after_failure=True)


def silent() -> None:
    raise StoreUnavailableError("told to fall silent")


async def test_b34_a_call_that_outlasts_its_lease_three_times_is_one_call(bench: NodeBench) -> None:
    first, second = bench.start("a", ttl=1), bench.start("b", ttl=1)
    await bench.ready(first, second)
    bench.endpoint.take("/slow", 3.2)
    tasks = [await bench.an_idle_task(await bench.a_tenant(served_by=node), "/slow") for node in (first, second)]
    runs = [await bench.run_now(task) for task in tasks for _ in range(25)]
    rows = await bench.until_ended(*runs)
    assert {(row["state"], row["fence"]) for row in rows} == {("succeeded", 1)}
    assert len(bench.endpoint.seen) == 50
    assert not await bench.fetch("select from leases where expired_at is not null")
    await bench.check(*tasks)
