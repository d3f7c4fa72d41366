"""Ownership: each shard has one owner, changes hands between two begins only, and brings its tenants whole."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from engine_bench import EngineBench, Executor
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.ids import LANES
from tocsin.common.store.tenants import OwnedTenant, Tenant
from tocsin.engine.board import Board
from tocsin.engine.ownership import Ownership
from tocsin.engine.tenant import TenantScheduler


def owners(bench: EngineBench) -> dict[int, UUID | None]:
    return {number: shard.owner for number, shard in bench.database.shards.items()}


async def end_lease(bench: EngineBench, executor: Executor) -> None:
    """Its process dies, and somebody has judged it."""
    bench.database.leases[executor.lease_id].expired_at = bench.clock.now()


async def settle(*executors: Executor) -> None:
    for _ in range(4):
        for executor in executors:
            await executor.own()


async def a_dedicated_tenant(bench: EngineBench, executors: int, **changes: Any) -> tuple[Tenant, str]:
    """A tenant on shards of its own."""
    tenant = await bench.a_tenant(**changes)
    cell = await bench.store.tenants.open_cell(tenant.id, executors)
    first = min(number for number, shard in bench.database.shards.items() if shard.cell == cell)
    bench.replace_tenant(tenant, shard=first)
    return tenant, cell


def served_lanes(executor: Executor, tenant: Tenant) -> set[int]:
    scheduler = executor.owner.board.tenants.get(tenant.id)
    if scheduler is None:
        return set()
    return {lane for part in scheduler.owned for lane in range(part.lane_first, part.lane_last)}


async def test_the_first_takes_all_and_a_second_gets_its_half(bench: EngineBench) -> None:
    assert set(owners(bench).values()) == {bench.first.lease_id}
    second = bench.executor()
    await second.start()
    await settle(bench.first, second)
    counts = list(owners(bench).values())
    assert counts.count(bench.first.lease_id) == counts.count(second.lease_id) == 32
    assert bench.owner.ownership.shards.isdisjoint(second.owner.ownership.shards)


async def test_tenants_follow_their_shard(bench: EngineBench) -> None:
    tenants = [await bench.a_tenant() for _ in range(40)]
    second = bench.executor()
    await second.start()
    await settle(bench.first, second)
    here, there = set(bench.owner.board.tenants), set(second.owner.board.tenants)
    assert here.isdisjoint(there)
    assert here | there == {tenant.id for tenant in tenants}


async def taken_in_one_round(bench: EngineBench) -> bool:
    """An owner that has tenants takes more shards: are their tenants served after that very round?"""
    second = bench.executor()
    await second.start()
    for _ in range(40):
        await bench.a_tenant()
    await settle(bench.first, second)
    await end_lease(bench, bench.first)
    await second.own()
    return len(second.owner.board.tenants) == 40


async def test_what_is_taken_is_served_at_once(bench: EngineBench) -> None:
    assert await taken_in_one_round(bench)


async def test_the_check_catches_an_owner_that_goes_by_what_it_read_before_it_took(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Ownership._take

    async def silent(self: Ownership, wanted: int) -> int:
        await take(self, wanted)
        return 0

    monkeypatch.setattr(Ownership, "_take", silent)
    assert not await taken_in_one_round(bench)


async def given_between_begins(bench: EngineBench) -> bool:
    """A shard is asked to be given while a begin is under way: is it given before the begin has its answer?"""
    await bench.a_task(schedule=bench.every(60))
    await bench.advance(60)
    await bench.first.own()
    await bench.first.read()
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        inside.set()
        await go_on.wait()

    bench.runs.before_begin = wait
    begin = asyncio.create_task(bench.first.begin())
    await inside.wait()
    give = asyncio.create_task(bench.owner.ownership.give_all())
    for _ in range(20):
        await asyncio.sleep(0)
    early = None in owners(bench).values()
    go_on.set()
    await asyncio.gather(begin, give)
    assert set(owners(bench).values()) == {None}
    return early


async def test_a_shard_is_given_only_between_two_begins(bench: EngineBench) -> None:
    assert not await given_between_begins(bench)


class NoLock:
    """Broken: anybody may enter."""

    async def __aenter__(self) -> None:
        """Nobody waits."""

    async def __aexit__(self, *_: object) -> None:
        """Nobody waited."""


async def test_the_check_catches_a_give_in_the_middle_of_a_begin(bench: EngineBench) -> None:
    bench.owner.beginner.between_begins = NoLock()  # type: ignore[assignment]
    assert await given_between_begins(bench)


async def test_what_is_given_is_forgotten_and_begun_by_nobody_here(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(60))
    await bench.advance(60)
    await bench.first.own()
    await bench.first.read()
    assert bench.owner.board.known_of(task.tenant_id, 2) == 1
    await bench.owner.ownership.give_all()
    assert bench.owner.board.tenants == {}
    assert await bench.first.begin() == []
    second = bench.executor()
    await second.start()
    assert len(await second.go()) == 1


async def test_an_owner_that_drains_takes_nothing_and_keeps_nothing(bench: EngineBench) -> None:
    """Even what a take brought that was under way when everything was given."""
    bench.owner.lease.draining = True
    await bench.first.own()
    assert set(owners(bench).values()) == {None}
    await bench.first.beat()
    await bench.first.own()
    assert set(owners(bench).values()) == {None}
    assert bench.owner.board.tenants == {}


async def test_before_anything_is_begun_dead_leases_runs_come_back_and_live_ones_are_counted(
    bench: EngineBench,
) -> None:
    tenant = await bench.a_tenant(max_in_flight=5)
    task = await bench.a_task(tenant, schedule=bench.every(3600))
    for _ in range(3):
        bench.put(task, bench.clock.now())
    lost = await bench.go()
    assert len(lost) == 3
    await end_lease(bench, bench.first)
    second = bench.executor()
    await second.start()
    assert second.owner.board.tenants[tenant.id].held_elsewhere == 0
    assert {row.run_id for row in bench.pending(task)} >= {run.run_id for run in lost}
    again = await second.go()
    assert {(run.run_id, run.fence, run.losses) for run in again} == {(run.run_id, 2, 1) for run in lost}


async def test_a_tenant_on_two_shards_of_one_owner_is_served_whole(bench: EngineBench) -> None:
    tenant, cell = await a_dedicated_tenant(bench, 2)
    one, two = bench.executor(), bench.executor()
    await one.start(cell)
    one.owner.ownership._cell = two.owner.ownership._cell = cell
    await settle(one)
    assert served_lanes(one, tenant) == set(range(LANES))
    await two.start(cell)
    await settle(one, two)
    assert served_lanes(one, tenant) | served_lanes(two, tenant) == set(range(LANES))
    assert served_lanes(one, tenant).isdisjoint(served_lanes(two, tenant))
    await end_lease(bench, two)
    await settle(one)
    assert served_lanes(one, tenant) == set(range(LANES))
    before = one.owner.board.tenants[tenant.id]
    await one.own()
    assert one.owner.board.tenants[tenant.id] is before  # and is not taken up anew each time


async def test_the_check_catches_an_owner_that_serves_one_shard_of_a_tenant(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Board.add_tenant

    def one_only(self: Board, owned: list[OwnedTenant]) -> bool:
        return add(self, owned[-1:])

    monkeypatch.setattr(Board, "add_tenant", one_only)
    with pytest.raises(AssertionError):
        await test_a_tenant_on_two_shards_of_one_owner_is_served_whole(bench)


async def test_the_shards_of_a_tenant_never_exceed_its_cap_together(bench: EngineBench) -> None:
    tenant, cell = await a_dedicated_tenant(bench, 2, max_in_flight=10)
    one, two = bench.executor(), bench.executor()
    for executor in (one, two):
        executor.owner.ownership._cell = cell
        await executor.start(cell)
    await settle(one, two)
    tasks = [await bench.a_task(tenant, schedule=bench.every(3600)) for _ in range(30)]
    for task in tasks:
        bench.put(task, bench.clock.now())
    begun = len(await one.go()) + len(await two.go())
    assert begun == 10
    assert len(bench.database.running) == 10


async def test_an_owner_that_starts_anew_begins_though_the_other_shards_of_its_tenants_are_full(
    bench: EngineBench,
) -> None:
    """What they hold within their part is theirs: counted against it, nothing would begin until they are idle."""
    tenant, cell = await a_dedicated_tenant(bench, 2, max_in_flight=10)
    one, two = bench.executor(), bench.executor()
    for executor in (one, two):
        executor.owner.ownership._cell = cell
        await executor.start(cell)
    await settle(one, two)
    tasks = [await bench.a_task(tenant, schedule=bench.every(3600)) for _ in range(60)]
    for task in tasks:
        bench.put(task, bench.clock.now())
    assert len(await one.go()) == 5
    await end_lease(bench, two)
    three = bench.executor()
    three.owner.ownership._cell = cell
    await three.start(cell)
    await settle(one, three)
    assert len(await three.go()) == 5
    assert len(bench.database.running) == 10


async def most_over_a_promotion(bench: EngineBench) -> int:
    """A tenant with a cap of four goes from its shared shard to two owners of its own while three of its calls are in
    flight, and more waits than may begin. The most in flight; when the old owner's have ended, the new ones have all.
    """
    tenant = await bench.a_tenant(max_in_flight=4)
    task = await bench.a_task(tenant, schedule=bench.every(7200))
    for _ in range(3):
        bench.put(task, bench.clock.now(), lane=400)
    flying = await bench.go()
    cell = await bench.store.tenants.open_cell(tenant.id, 2)
    first = min(number for number, shard in bench.database.shards.items() if shard.cell == cell)
    await bench.store.tenants.ask_move(tenant.id, first)
    await bench.first.own()
    owners = [bench.executor(), bench.executor()]
    for owner in owners:
        owner.owner.ownership._cell = cell
        await owner.start(cell)
    await settle(*owners)
    assert [owner.owner.ownership.shards for owner in owners] == [{first}, {first + 1}]
    for number in range(20):
        bench.put(task, bench.clock.now(), lane=number * 50)
    most = 0
    for _ in range(4):
        for owner in owners * 2:
            await owner.go()
            most = max(most, len(bench.database.running))
        if flying:
            await bench.first.end(flying.pop())
    assert {row.lease_id for row in bench.database.running.values()} == {owner.lease_id for owner in owners}
    assert len(bench.database.running) == 4
    return most


async def test_promise_10_two_new_owners_keep_to_the_cap_while_the_old_one_holds_runs(bench: EngineBench) -> None:
    assert await most_over_a_promotion(bench) == 4


async def test_promise_10_owners_that_each_take_what_is_held_to_lie_in_the_others_part_are_caught(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def room(self: TenantScheduler) -> int:
        return self.cap - self.in_flight - max(0, self.held_elsewhere - (self.tenant.max_in_flight - self.cap))

    monkeypatch.setattr(TenantScheduler, "room", property(room))
    assert await most_over_a_promotion(bench) == 6


async def test_a_move_is_one_step_between_begins_and_whoever_owns_the_new_shard_serves_it(bench: EngineBench) -> None:
    tenant = await bench.a_tenant()
    await bench.first.own()
    await bench.store.tenants.ask_move(tenant.id, (tenant.shard + 1) % 64)
    await bench.first.own()
    scheduler = bench.owner.board.tenants[tenant.id]
    assert scheduler.shards == {(tenant.shard + 1) % 64}
    assert "tenants" in bench.database.notified


async def test_a_closing_cell_is_let_go_and_its_tenant_goes_home(bench: EngineBench) -> None:
    tenant, cell = await a_dedicated_tenant(bench, 2)
    one, two = bench.executor(), bench.executor()
    for executor in (one, two):
        executor.owner.ownership._cell = cell
        await executor.start(cell)
    await settle(one, two)
    await bench.store.tenants.close_cell(cell, tenant.id)
    await settle(one, two)
    assert one.owner.board.tenants == two.owner.board.tenants == {}
    assert await bench.store.leases.move_tenants([tenant.id], None) == [tenant.id]
    await bench.first.own()
    assert tenant.id in bench.owner.board.tenants


async def test_ownership_goes_on_after_an_outage(bench: EngineBench) -> None:
    await bench.a_tenant()
    bench.database.unavailable = True
    with pytest.raises(StoreUnavailableError):
        await bench.first.own()
    bench.database.unavailable = False
    assert (await bench.first.own())["tenants"] == 1
