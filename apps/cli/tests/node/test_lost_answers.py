"""Rule 4 and promise 7: answers of the database that do not come, for a moment or for seconds."""

import asyncio
import logging
from uuid import UUID

import pytest

from faulty_network import Line, Network
from node_bench import Node, NodeBench
from tocsin.common.store.rows import Task
from tocsin.engine.begin import BeginConfig, Beginner


async def a_settled_node(bench: NodeBench, url: str) -> tuple[Node, Task]:
    """A node whose connections are open, and a task that it has called once."""
    node = bench.start(url=url)
    task = await bench.an_idle_task(await bench.a_tenant(), "/hook")
    await bench.until_ended(await bench.run_now(task))
    return node, task


async def check_settled(bench: NodeBench, task: Task, run_id: UUID) -> list[tuple[int, int, str]]:
    """Once called, once ended: fence, losses and state of its history."""
    await bench.until_ended(run_id)
    assert len(bench.endpoint.of_run(run_id)) == 1
    await bench.check(task)
    return [(row["fence"], row["losses"], row["state"]) for row in await bench.history_of(run_id)]


async def test_rule_4_a_begin_whose_answer_is_cut_is_adopted(
    bench: NodeBench, network: Network, faulty_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tocsin.engine.begin")
    _, task = await a_settled_node(bench, faulty_url)
    run_id = bench.ids.new()
    network.trap = (run_id.bytes, Line.cut)
    await bench.run_now_as(run_id, task)
    assert await check_settled(bench, task, run_id) == [(1, 0, "succeeded")]
    assert any("had taken 1 runs; 0 of them are put back" in record.getMessage() for record in caplog.records)


async def test_rule_4_a_begin_whose_answer_is_cut_late_is_put_back_and_begun_again(
    bench: NodeBench, network: Network, faulty_url: str
) -> None:
    _, task = await a_settled_node(bench, faulty_url)
    run_id = bench.ids.new()
    late = BeginConfig().adopt_within + 0.1

    def hold_then_cut(line: Line) -> None:
        line.hold()
        asyncio.get_running_loop().call_later(late, line.cut)

    network.trap = (run_id.bytes, hold_then_cut)
    await bench.run_now_as(run_id, task)
    assert await check_settled(bench, task, run_id) == [(2, 1, "succeeded")]


async def test_rule_4_a_begin_that_never_arrived_is_sent_again(
    bench: NodeBench, network: Network, faulty_url: str
) -> None:
    _, task = await a_settled_node(bench, faulty_url)
    run_id = bench.ids.new()
    network.trap, network.before = (run_id.bytes, Line.cut), True
    await bench.run_now_as(run_id, task)
    assert await check_settled(bench, task, run_id) == [(1, 0, "succeeded")]


async def test_rule_4_the_successor_of_an_adopted_slot_follows(
    bench: NodeBench, network: Network, faulty_url: str
) -> None:
    """Of a task that runs every second, begins lose their answers."""
    await a_settled_node(bench, faulty_url)
    task = await bench.a_task(await bench.a_tenant(), "/ticking")
    cut = []
    for count in (1, 2, 3):
        row = await bench.next_row(task)
        network.trap = (row["run_id"].bytes, Line.cut)
        await bench.endpoint.until_seen("/ticking", count)
        cut.append(network.sprung)
    assert any(cut)
    await bench.quiet(task)
    await bench.check(task)
    assert {row["outcome"] for row in (await bench.rows(task)).history if row["reason"] != "paused"} == {"success"}


async def test_rule_4_a_begin_of_unknown_outcome_that_is_dropped_is_caught(
    bench: NodeBench, network: Network, faulty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: nobody asks what became of it, so nobody calls what it took."""

    async def shrug(_beginner: Beginner, *_: object) -> None:
        return None

    monkeypatch.setattr(Beginner, "_resolve", shrug)
    _, task = await a_settled_node(bench, faulty_url)
    run_id = bench.ids.new()
    network.trap = (run_id.bytes, Line.cut)
    await bench.run_now_as(run_id, task)
    with pytest.raises(AssertionError):
        await bench.until_ended(run_id, within=1.0)


async def test_rule_4_a_completion_whose_answer_is_cut_is_sent_again(
    bench: NodeBench, network: Network, faulty_url: str
) -> None:
    node, task = await a_settled_node(bench, faulty_url)
    release = bench.endpoint.hold("/hook")
    run_id = await bench.run_now(task)
    await bench.endpoint.until_seen("/hook")
    await bench.until(lambda: node.executor.status.in_flight == 1, "it is in flight")
    network.trap = (run_id.bytes, Line.cut)
    release.set()
    assert await check_settled(bench, task, run_id) == [(1, 0, "succeeded")]
    assert network.sprung
    await bench.until(lambda: node.executor.status.in_flight == 0, "its end is known")


OUTAGE = 3.0


async def test_promise_7_a_silent_database_is_not_a_dead_executor(
    bench: NodeBench, network: Network, faulty_url: str
) -> None:
    """Two nodes with a ttl of a second lose the database for three; a call ends meanwhile."""
    first, second = bench.start("a", ttl=1, url=faulty_url), bench.start("b", ttl=1, url=faulty_url)
    await bench.ready(first, second)
    tenants = [await bench.a_tenant(served_by=node) for node in (first, second)]
    ticking = [await bench.a_task(tenant, f"/{n}") for n, tenant in enumerate(tenants)]
    held = await bench.an_idle_task(tenants[0], "/held")
    release = bench.endpoint.hold("/held")
    run_id = await bench.run_now(held)
    for path in ("/0", "/1", "/held"):
        await bench.endpoint.until_seen(path)
    leases = {first.lease_id, second.lease_id}
    network.swallow()
    swallowed = bench.clock.monotonic()
    await bench.until(lambda: bench.clock.monotonic() - swallowed > OUTAGE / 2, "the trust in both leases is over")
    release.set()
    silent = len(bench.endpoint.seen)
    await bench.until(lambda: bench.clock.monotonic() - swallowed > OUTAGE, "the outage is over")
    assert len(bench.endpoint.seen) == silent, "a call started in the trust window's last part, or after it"
    assert not await bench.history_of(run_id)
    network.heal()
    (row,) = await bench.until_ended(run_id)
    assert (row["state"], row["fence"]) == ("succeeded", 1)
    for path in ("/0", "/1"):
        await bench.endpoint.until_seen(path, len(bench.endpoint.of(path)) + 2)
    assert {first.lease_id, second.lease_id} == leases
    assert not await bench.fetch("select from leases where expired_at is not null")
    await bench.quiet(*ticking)
    await bench.check(*ticking, held)
    for task in ticking:
        history = (await bench.rows(task)).history
        assert {row["outcome"] for row in history if row["reason"] != "paused"} == {"success"}
