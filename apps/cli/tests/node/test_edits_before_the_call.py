"""Rule 3: an edit, a pause or a delete between the begin of a run and its call.

The begin's answer is held back by the network for as long as what it read may be trusted; meanwhile the task
changes. No call of the old version may come later than 250 ms after the API's answer.
"""

import asyncio
from uuid import UUID

import pytest

from faulty_network import Line, Network
from node_bench import NodeBench
from tocsin.common.models import AtSchedule
from tocsin.common.store.rows import Task
from tocsin.executor import pool

CHANGES = ["edit", "pause", "delete", "cancel"]


async def change(bench: NodeBench, task: Task, run_id: UUID, what: str) -> None:
    if what == "edit":
        await bench.edit_url(task, "/new")
    elif what == "pause":
        await bench.tasks.pause(task.tenant_id, task.id)
    elif what == "delete":
        await bench.tasks.delete(task.tenant_id, task.id)
    else:
        await bench.tasks.cancel(task.tenant_id, run_id)


async def changed_while_begun(bench: NodeBench, network: Network, url: str, what: str) -> UUID:
    """A run whose begin has committed and is not yet answered, when its task changes."""
    task = await bench.an_idle_task(await bench.a_tenant(), "/old")
    node = bench.start(url=url)
    await bench.until_ended(await bench.run_now(task))  # statements are prepared, connections open
    bench.endpoint.seen.clear()
    held: asyncio.Future[Line] = asyncio.get_running_loop().create_future()

    def hold(line: Line) -> None:
        line.hold()
        held.set_result(line)

    run_id = bench.ids.new()
    network.trap = (run_id.bytes, hold)
    await bench.run_now_as(run_id, task)
    line = await asyncio.wait_for(held, 5)
    await bench.until(lambda: bench.fetch("select from running where run_id = $1", run_id), "the begin has committed")
    await change(bench, task, run_id, what)
    answered = bench.clock.monotonic()
    await bench.until(lambda: bench.clock.monotonic() - answered > pool.VOUCHED_SECONDS, "what it read is old")
    line.release()
    await bench.until(lambda: node.executor.status.in_flight == 0 and landed(bench, run_id), "the run has landed")
    return run_id


async def landed(bench: NodeBench, run_id: UUID) -> bool:
    return not await bench.fetch("select from running where run_id = $1", run_id)


@pytest.mark.parametrize("what", CHANGES)
async def test_rule_3_no_call_of_an_old_version(bench: NodeBench, network: Network, faulty_url: str, what: str) -> None:
    run_id = await changed_while_begun(bench, network, faulty_url, what)
    (row,) = await bench.until_ended(run_id)
    expected = {
        "edit": ("succeeded", None),
        "pause": ("skipped", "paused"),
        "delete": ("skipped", "deleted"),
        "cancel": ("cancelled", None),
    }
    assert (row["state"], row["reason"]) == expected[what]
    assert [request.path for request in bench.endpoint.seen] == (["/new"] if what == "edit" else [])


async def test_rule_3_a_call_that_does_not_check_again_is_caught(
    bench: NodeBench, network: Network, faulty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def vouched(_gate: pool._Gate) -> None:
        return None

    monkeypatch.setattr(pool._Gate, "ready", vouched)
    await changed_while_begun(bench, network, faulty_url, "edit")
    assert [request.path for request in bench.endpoint.seen] == ["/old"]


@pytest.mark.parametrize("what", ["edit", "pause"])
async def test_rule_3_in_the_last_100_ms_the_old_call_comes_at_its_instant_or_not_at_all(
    bench: NodeBench, what: str
) -> None:
    """A begin in good time: the change comes between it and the instant, and 250 ms after it nothing old is called."""
    tenant = await bench.a_tenant()
    begun = asyncio.Event()
    bench.points.at("a", "begin.after", begun.set)
    bench.start()
    task = await bench.a_task(tenant, "/old", schedule=AtSchedule(at=await bench.soon()))
    run_id = (await bench.next_row(task))["run_id"]
    await asyncio.wait_for(begun.wait(), 5)
    await change(bench, task, run_id, what)
    answered = bench.clock.monotonic()
    await bench.until_ended(run_id)
    on_its_way = 0.1
    assert all(request.at - answered <= pool.VOUCHED_SECONDS + on_its_way for request in bench.endpoint.of("/old"))
