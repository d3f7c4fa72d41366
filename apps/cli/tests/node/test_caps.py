"""Promise 10: a tenant's calls in flight never exceed its cap, over a hand-over of its shard either."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from node_bench import NodeBench
from tocsin.cli.tenants import set_limits
from tocsin.common.store.postgres.runs import PostgresRuns
from tocsin.common.store.tenants import OwnedTenant
from tocsin.engine.board import Board
from tocsin.engine.tenant import TenantScheduler

CAP = 5


async def most_of_60(bench: NodeBench) -> int:
    """60 run-nows at once of a tenant with a cap; the most that were open together."""
    task = await bench.an_idle_task(await bench.a_tenant(max_in_flight=CAP), "/capped")
    bench.endpoint.take("/capped", 0.05)
    bench.start()
    runs = await asyncio.gather(*(bench.run_now(task) for _ in range(60)))
    await bench.until_ended(*runs)
    await bench.check(task)
    assert len(bench.endpoint.seen) == 60
    return bench.endpoint.most["/capped"]


async def test_promise_10_never_more_than_the_cap(bench: NodeBench) -> None:
    assert await most_of_60(bench) == CAP


async def test_promise_10_an_owner_that_does_not_count_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TenantScheduler, "room", 1000)
    assert await most_of_60(bench) > CAP


async def most_after_the_cap_is_doubled(bench: NodeBench) -> int:
    """An executor with a full house, whose tenant gets a higher cap; it keeps its lease and its shards."""
    node = bench.start("a", ttl=1)
    await bench.ready(node)
    tenant = await bench.a_tenant(max_in_flight=CAP)
    task = await bench.an_idle_task(tenant, "/capped")
    release = bench.endpoint.hold("/capped")
    runs = [await bench.run_now(task) for _ in range(4 * CAP)]
    await bench.endpoint.until_seen("/capped", CAP)
    lease, rounds = node.lease_id, bench.points.reached["a", "beat.after"]
    await set_limits(bench.store, tenant.id, lambda old: replace(old, max_in_flight=2 * CAP))
    await bench.until(
        lambda: bench.endpoint.most["/capped"] >= 2 * CAP or bench.points.reached["a", "beat.after"] > rounds + 16,
        "the new cap is taken up, or two lives of a lease have gone by",
    )
    release.set()
    await bench.until_ended(*runs)
    await bench.check(task)
    assert node.lease_id == lease
    return bench.endpoint.most["/capped"]


async def test_promise_10_a_new_cap_is_taken_up_without_a_restart(bench: NodeBench) -> None:
    assert await most_after_the_cap_is_doubled(bench) == 2 * CAP


async def test_promise_10_an_owner_that_keeps_to_the_old_cap_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_up = Board.add_tenant

    def once(board: Board, owned: Sequence[OwnedTenant]) -> bool:
        return owned[0].tenant.id not in board.tenants and taken_up(board, owned)

    monkeypatch.setattr(Board, "add_tenant", once)
    assert await most_after_the_cap_is_doubled(bench) == CAP


async def most_over_a_hand_over(bench: NodeBench) -> int:
    """The old owner drains with a full house, and the new one finds more to do."""
    old, new = bench.start("a", ttl=1), bench.start("b", ttl=1)
    await bench.ready(old, new)
    tenant = await bench.a_tenant(served_by=old, max_in_flight=CAP)
    task = await bench.an_idle_task(tenant, "/capped")
    release = bench.endpoint.hold("/capped")
    runs = [await bench.run_now(task) for _ in range(4 * CAP)]
    await bench.endpoint.until_seen("/capped", CAP)
    draining = asyncio.create_task(old.drain())
    await bench.ready(new, tenants=1)
    rounds = bench.points.reached["b", "beat.after"]
    await bench.until(lambda: bench.points.reached["b", "beat.after"] > rounds + 3, "the heir has had time to begin")
    most = bench.endpoint.most["/capped"]
    release.set()
    assert await draining
    await bench.until_ended(*runs)
    await bench.check(task)
    return max(most, bench.endpoint.most["/capped"])


async def test_promise_10_a_new_owner_counts_what_the_old_one_still_holds(bench: NodeBench) -> None:
    assert await most_over_a_hand_over(bench) == CAP


async def test_promise_10_an_heir_that_counts_its_own_alone_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_runs: PostgresRuns, _tenants: Collection[UUID], _lease_id: UUID) -> dict[UUID, int]:
        return {}

    monkeypatch.setattr(PostgresRuns, "count_held", nothing)
    assert await most_over_a_hand_over(bench) == 2 * CAP
