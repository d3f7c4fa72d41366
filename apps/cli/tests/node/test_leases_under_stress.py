"""B34 and B35: a lease is kept while its process has work to the full, and is judged by no clock but the database's."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from node_bench import Node, NodeBench, WrongClock
from tocsin.common.store.postgres import database
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.engine.lease import LeaseConfig

TTL = 1.0
LONG = 3.2
"""Seconds that a call takes: more than three leases last."""

Stress = Callable[[NodeBench, Node], Awaitable[None]]


async def no_stress(_bench: NodeBench, _node: Node) -> None: ...


async def all_connections_taken(bench: NodeBench, node: Node) -> None:
    """Other work has every connection that the node has for work, for most of the call."""
    store = node.executor._store
    assert store is not None
    pool = store._work._pool
    assert pool is not None
    async with AsyncExitStack() as stack:
        for _ in range(pool.get_max_size()):
            await stack.enter_async_context(pool.acquire())
        taken = bench.clock.monotonic()
        await bench.until(lambda: bench.clock.monotonic() - taken > LONG - 1.0, "it has had them long enough")


async def calls_of_a_long_run(bench: NodeBench, stress: Stress) -> int:
    """How often an endpoint that takes three leases' time sees a run, beside somebody who may judge."""
    first, second = bench.start("a", ttl=TTL), bench.start("b", ttl=TTL + 0.1)
    await bench.ready(first, second)
    bench.endpoint.take("/slow", LONG)
    task = await bench.an_idle_task(await bench.a_tenant(served_by=first), "/slow")
    run_id = await bench.run_now(task)
    await bench.endpoint.until_seen("/slow")
    await stress(bench, first)
    await bench.until_ended(run_id)
    await bench.check(task, after_failure=True)
    return len(bench.endpoint.of_run(run_id))


@pytest.mark.parametrize("stress", [no_stress, all_connections_taken])
async def test_b34_a_slow_call_is_made_once(bench: NodeBench, stress: Stress) -> None:
    assert await calls_of_a_long_run(bench, stress) == 1
    assert not await bench.fetch("select from leases where expired_at is not null")


async def test_b34_a_beat_among_the_other_work_is_caught(bench: NodeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = PostgresStore.open

    async def shared(store: PostgresStore) -> None:
        await opened(store)
        store.leases._beat = store._work

    monkeypatch.setattr(PostgresStore, "open", shared)
    assert await calls_of_a_long_run(bench, all_connections_taken) > 1


async def test_b34_a_beat_as_rare_as_the_lease_is_long_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = property(lambda config: 1.5 * config.ttl if config.ttl == TTL else config.ttl / 8)
    monkeypatch.setattr(LeaseConfig, "every", rare)
    assert await calls_of_a_long_run(bench, no_stress) > 1


async def expired_early_and_late(bench: NodeBench) -> tuple[int, float]:
    """Two nodes whose wall clocks are ten minutes ahead and ten behind, one of which then dies.

    How many leases end while both live for three ttls, and the seconds from the death to the call by the other.
    """
    ahead, behind = bench.start("a", ttl=TTL, clock=WrongClock(600)), bench.start("b", ttl=TTL, clock=WrongClock(-600))
    await bench.ready(ahead, behind)
    bench.endpoint.hold("/held")
    task = await bench.an_idle_task(await bench.a_tenant(served_by=ahead), "/held")
    await bench.run_now(task)
    await bench.endpoint.until_seen("/held")
    began = bench.clock.monotonic()
    await bench.until(lambda: bench.clock.monotonic() - began > 3 * TTL, "both have lived for three ttls")
    early = len(await bench.fetch("select from leases where expired_at is not null"))
    await ahead.kill()
    killed = bench.clock.monotonic()
    requests = await bench.endpoint.until_seen("/held", 2)
    return early, requests[1].at - killed


async def test_b35_wrong_clocks_end_no_lease_early_and_none_late(bench: NodeBench) -> None:
    early, late = await expired_early_and_late(bench)
    assert early == 0
    assert late < TTL + 3


async def test_b35_a_judge_that_goes_by_a_workers_clock_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: heartbeats are compared with a clock that is ten minutes ahead."""
    broken = query("lease_judge").replace(
        "clock_timestamp() - l.heartbeat_at", "clock_timestamp() + interval '10 min' - l.heartbeat_at"
    )
    monkeypatch.setattr(database, "query", lambda name: broken if name == "lease_judge" else query(name))
    with pytest.raises(AssertionError):
        await test_b35_wrong_clocks_end_no_lease_early_and_none_late(bench)
