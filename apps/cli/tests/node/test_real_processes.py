"""B29, B31, B34 and B35 with processes that are really stopped, killed by SIGKILL, or stand still."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from node_bench import NodeBench
from node_process import NodeProcess
from scripted_endpoint import Request

Start = Callable[[float, int], Awaitable[list[NodeProcess]]]

TTL = 2.0
LIVE = "select id from leases where pid = $1 and expired_at is null"
OWNED = "select owner, count(*) as shards from shards where owner is not null group by owner"


@pytest.fixture
async def start(bench: NodeBench) -> AsyncIterator[Start]:
    """Starts so many processes with a ttl, which have shared the shards among them."""
    started: list[NodeProcess] = []

    async def begin(ttl: float, count: int) -> list[NodeProcess]:
        made = [NodeProcess(bench.url, ttl) for _ in range(count)]
        started.extend(made)
        await asyncio.gather(*(process.start() for process in made))

        for process in made:
            await until_leased(bench, process)
        await until_shared(bench, made)
        return made

    yield begin
    await asyncio.gather(*(process.kill() for process in started))


async def until_leased(bench: NodeBench, process: NodeProcess) -> None:
    """Waits for its lease, and notes that."""
    (row,) = await bench.until(lambda: bench.fetch(LIVE, process.pid), "it has a lease", within=60)
    process.lease_id = row["id"]


async def until_shared(bench: NodeBench, processes: Sequence[NodeProcess]) -> None:
    """Waits until these, and no others, have the shards, each its fair part."""

    async def shared() -> bool:
        for process in processes:
            await until_leased(bench, process)
        owned = {row["owner"]: row["shards"] for row in await bench.fetch(OWNED)}
        return owned.keys() == {p.lease_id for p in processes} and max(owned.values()) == -(-64 // len(processes))

    await bench.until(shared, "the shards are shared", within=60)


async def test_b29_b35_a_process_that_was_stopped_comes_back_to_change_nothing(bench: NodeBench, start: Start) -> None:
    """It is stopped beyond its lease with a call open and slots to come; the heir calls again, and fails; then the
    first call turns out to have succeeded, and the process goes on."""
    stopped, heir = await start(TTL, 2)
    tenants = [await bench.a_tenant(served_by=process) for process in (stopped, heir)]
    ticking = [await bench.a_task(tenant, f"/{n}") for n, tenant in enumerate((*tenants, *tenants))]
    held = await bench.an_idle_task(tenants[0], "/held")
    release = asyncio.Event()

    async def answer(request: Request) -> int:
        if request.fence > 1:
            return 410
        await release.wait()
        return 200

    bench.endpoint.answers["/held"] = answer
    await bench.all_called(ticking, 1)
    run_id = await bench.run_now(held)
    await bench.endpoint.until_seen("/held")
    old = stopped.lease_id
    stopped.stop()
    (dead,) = await bench.until_ended(run_id)
    release.set()
    await bench.all_called(ticking, 2)
    stopped.go_on()
    await until_leased(bench, stopped)
    assert stopped.lease_id != old
    await bench.all_called(ticking, 2)
    await bench.quiet(*ticking)
    rows = await bench.history_of(run_id)
    assert [row for row in rows if row["state"] is not None] == [dead]
    assert (dead["state"], dead["fence"]) == ("dead", 2)
    assert [(row["fence"], row["outcome"]) for row in rows if not row["stale"]] == [(1, "lost"), (2, "http_error")]
    assert len(bench.endpoint.of_run(run_id)) == 2
    await bench.check_slots()
    await bench.check(*ticking, held, after_failure=True)


# Where a process is killed; how often the endpoint sees the run in all; whether the run was given back as lost.
# All points, with an executor in this process, are in `test_hand_over.py`.
DEATHS = {"call.before": (1, True), "complete.before": (2, True), "complete.after": (1, False)}


async def test_b31_a_run_survives_a_sigkill_before_its_call_and_around_its_completion(
    bench: NodeBench, start: Start
) -> None:
    """One dies at a time: nobody who takes over is about to die too, so that a run is lost once."""
    processes = await start(TTL, len(DEATHS) + 1)
    tasks = []
    for point, (calls, lost) in DEATHS.items():
        await until_shared(bench, processes)
        victim = processes.pop()
        task = await bench.an_idle_task(await bench.a_tenant(served_by=victim), f"/{point}")
        await bench.until_ended(await bench.run_now(task))  # it has read what it serves
        await victim.arm(point)
        run_id = await bench.run_now(task)
        await victim.died()
        (ended,) = await bench.until_ended(run_id, within=20)
        assert ended["state"] == "succeeded", point
        assert [row["outcome"] for row in await bench.history_of(run_id)] == ["lost"] * lost + ["success"], point
        requests = bench.endpoint.of_run(run_id)
        assert len(requests) == calls, point
        assert [request.attempt for request in requests] == [1] * calls, "a loss is no attempt"
        tasks.append(task)
    await bench.check(*tasks, after_failure=True)


async def calls_beside_a_loop_that_stands_still(bench: NodeBench, start: Start, seconds: float) -> Counter[str]:
    """How often an endpoint is called with a run whose executor's event loop stands still meanwhile; ttl 4 s."""
    blocked, _other = await start(4.0, 2)
    tenant = await bench.a_tenant(served_by=blocked)
    slow, other = await bench.an_idle_task(tenant, "/slow"), await bench.an_idle_task(tenant, "/other")
    release = bench.endpoint.hold("/slow")
    runs = [await bench.run_now(slow)]
    await bench.endpoint.until_seen("/slow")
    await blocked.arm("call.after", seconds)
    runs.append(await bench.run_now(other))
    await bench.endpoint.until_seen("/other")
    began = bench.clock.monotonic()
    await bench.until(lambda: bench.clock.monotonic() - began > seconds + 1.0, "it goes on")
    release.set()
    await bench.until_ended(*runs)
    await bench.check(slow, other, after_failure=True)
    return Counter(request.path for request in bench.endpoint.seen)


async def test_b34_a_loop_that_stands_still_for_two_seconds_costs_no_lease(bench: NodeBench, start: Start) -> None:
    assert await calls_beside_a_loop_that_stands_still(bench, start, 2.0) == {"/slow": 1, "/other": 1}
    assert not await bench.fetch("select from leases where expired_at is not null")


async def test_b34_one_that_stands_still_for_longer_than_its_lease_is_seen(bench: NodeBench, start: Start) -> None:
    """The broken twin: the check above would notice a lease that does not outlast the pause."""
    seen = await calls_beside_a_loop_that_stands_still(bench, start, 7.0)
    assert seen["/slow"] > 1
