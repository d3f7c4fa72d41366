"""Leases, shards and moves of tenants, whoever keeps the store."""

import asyncio
from dataclasses import replace
from uuid import UUID

from store_bench import Bench
from store_builders import a_lease, a_run, a_tenant
from tocsin.common.ids import shard_of
from tocsin.common.store.tenants import FairPart, OwnedShard, Process

TTL = 10.0


async def a_judge(bench: Bench, *, steady: float = 60.0) -> UUID:
    """A lease that has been steady for so many seconds, with a fresh heartbeat."""
    lease = await a_lease(bench, ttl=TTL)
    await bench.age_lease(lease, steady=steady)
    return lease


async def overdue(bench: Bench, seconds: float = TTL + 5, ttl: float = TTL) -> UUID:
    lease = await a_lease(bench, ttl=ttl)
    await bench.age_lease(lease, heartbeat=seconds)
    return lease


async def check_a_beat_renews_a_lease(bench: Bench) -> None:
    lease = await a_lease(bench)
    await bench.age_lease(lease, heartbeat=2, steady=100)
    before = await bench.lease(lease)
    now = await bench.store.leases.beat(lease, draining=True)
    after = await bench.lease(lease)
    assert now is not None
    assert before.heartbeat_at < after.heartbeat_at <= now
    assert after.steady_since == before.steady_since
    assert after.draining


async def check_a_late_beat_starts_the_steady_time_anew(bench: Bench) -> None:
    lease = await a_lease(bench, ttl=TTL)
    await bench.age_lease(lease, heartbeat=TTL / 4 + 1, steady=100)
    now = await bench.store.leases.beat(lease, draining=False)
    after = await bench.lease(lease)
    assert now is not None
    assert (now - after.steady_since).total_seconds() < 1


async def check_an_ended_lease_cannot_beat(bench: Bench) -> None:
    lease, left = await a_lease(bench), await a_lease(bench)
    assert await bench.store.leases.expire([lease, bench.ids.new()]) == [lease]
    assert await bench.store.leases.expire([lease]) == []
    await bench.store.leases.leave(left)
    for gone in (lease, left, bench.ids.new()):
        assert await bench.store.leases.beat(gone, draining=False) is None


async def check_an_overdue_lease_is_ended(bench: Bench) -> None:
    judge, fresh, late = await a_judge(bench), await a_lease(bench), await overdue(bench)
    assert await bench.store.leases.judge(judge) == [late]
    assert (await bench.lease(late)).expired_at is not None
    assert (await bench.lease(fresh)).expired_at is None
    assert await bench.store.leases.judge(judge) == []


async def check_only_a_steady_lease_may_judge(bench: Bench) -> None:
    await a_lease(bench)
    young = await a_judge(bench, steady=TTL - 2)
    slow = await a_judge(bench)
    await bench.age_lease(slow, heartbeat=TTL / 4 + 1)
    ended = await a_judge(bench)
    await bench.store.leases.expire([ended])
    await overdue(bench)
    for judge in (young, slow, ended, bench.ids.new()):
        assert await bench.store.leases.judge(judge) == []


async def check_the_steady_time_is_that_of_the_lease_judged(bench: Bench) -> None:
    await a_lease(bench)
    judge = await a_judge(bench, steady=TTL + 2)
    await overdue(bench, seconds=4 * TTL, ttl=3 * TTL)
    short = await overdue(bench)
    assert await bench.store.leases.judge(judge) == [short]


async def check_a_heartbeat_recent_or_from_the_future_is_not_overdue(bench: Bench) -> None:
    judge = await a_judge(bench)
    await overdue(bench, seconds=TTL - 2)
    await overdue(bench, seconds=-3600)
    assert await bench.store.leases.judge(judge) == []


async def check_more_than_half_overdue_get_one_more_ttl(bench: Bench) -> None:
    judge = await a_judge(bench)
    late = [await overdue(bench), await overdue(bench)]
    assert await bench.store.leases.judge(judge) == []
    for lease in late:
        await bench.age_lease(lease, heartbeat=TTL)
    assert sorted(await bench.store.leases.judge(judge)) == sorted(late)


async def check_nobody_judges_himself(bench: Bench) -> None:
    judge = await a_judge(bench)
    for _ in range(3):
        await a_lease(bench)
    await bench.age_lease(judge, heartbeat=TTL + 1)
    assert await bench.store.leases.judge(judge) == []


async def check_live_executors_are_counted_by_their_heartbeats(bench: Bench) -> None:
    """Of those that a Supervisor has placed, whether or not somebody has judged the others."""
    leases = bench.store.leases
    assert await leases.live_executors() == {}
    placed: dict[str, UUID] = {}
    for who in ("one", "two", "drains", "ended", "overdue"):
        placed[who] = await a_lease(bench, ttl=TTL, generation=2)
    await a_lease(bench, ttl=TTL, generation=0)
    await a_lease(bench, ttl=TTL, cell="own", generation=1)
    await leases.beat(placed["drains"], draining=True)
    await leases.expire([placed["ended"]])
    await bench.age_lease(placed["overdue"], heartbeat=TTL + 1)
    await bench.age_lease(placed["two"], heartbeat=TTL - 2)
    assert await leases.live_executors() == {"shared": 2, "own": 1}


async def check_neighbours_share_boot_and_namespace(bench: Bench) -> None:
    here, ended, elsewhere = [await a_lease(bench, boot=boot) for boot in ("b1", "b1", "b2")]
    await bench.store.leases.expire([ended])
    (neighbour,) = await bench.store.leases.neighbours("b1", "pid:1")
    assert neighbour.lease_id == here != elsewhere
    assert neighbour.started == 1.0
    assert await bench.store.leases.neighbours("b1", "pid:2") == []


async def check_a_lease_is_removed_when_nothing_hangs_on_it(bench: Bench) -> None:
    leases = bench.store.leases
    live, with_run, with_shard, young, old = [await a_lease(bench) for _ in range(5)]
    run = await a_run(bench, with_run)
    await leases.take_shards(with_shard, "shared", 1)
    await leases.expire([with_run, with_shard, young, old])
    for lease in (with_run, with_shard, old):
        await bench.age_lease(lease, expired=100)
    assert await leases.remove(60) == 1
    assert {info.id for info in await leases.listing()} == {live, with_run, with_shard, young}
    await bench.store.runs.give_back([run.tenant_id])
    assert await leases.remove(60) == 1


async def check_leases_are_listed_the_live_ones_first(bench: Bench) -> None:
    leases = bench.store.leases
    ended, live, private = await a_lease(bench), await a_lease(bench), await a_lease(bench, cell="own")
    await leases.take_shards(live, "shared", 2)
    await a_run(bench, live)
    await leases.expire([ended])
    found = await leases.listing()
    assert [info.id for info in found] == [live, private, ended]
    assert (found[0].shards, found[0].running, found[0].cell) == (2, 1, "shared")
    assert (found[2].expired_at is None, found[0].zone_data) == (False, "2026a")
    assert [info.id for info in await leases.listing("own")] == [private]


async def check_shards_without_a_live_owner_are_taken(bench: Bench) -> None:
    leases = bench.store.leases
    first, second = await a_lease(bench), await a_lease(bench)
    taken = await leases.take_shards(first, "shared", 40)
    assert sorted(shard.shard for shard in taken) == list(range(40))
    rest = await leases.take_shards(second, "shared", 64)
    assert sorted(shard.shard for shard in rest) == list(range(40, 64))
    assert await leases.take_shards(second, "shared", 64) == []
    await leases.expire([first])
    assert len(await leases.take_shards(second, "shared", 64)) == 40
    assert await leases.owned_shards(first) == []
    assert await leases.take_shards(second, "no such cell", 1) == []


async def check_a_lease_that_drains_or_has_ended_takes_nothing(bench: Bench) -> None:
    leases = bench.store.leases
    draining, ended = await a_lease(bench), await a_lease(bench)
    await leases.beat(draining, draining=True)
    await leases.expire([ended])
    for lease in (draining, ended, bench.ids.new()):
        assert await leases.take_shards(lease, "shared", 64) == []


async def check_rivals_take_different_shards(bench: Bench) -> None:
    first, second = await a_lease(bench), await a_lease(bench)
    await asyncio.gather(
        bench.store.leases.take_shards(first, "shared", 40), bench.other.leases.take_shards(second, "shared", 40)
    )
    mine = await bench.store.leases.owned_shards(first)
    theirs = await bench.store.leases.owned_shards(second)
    assert not {s.shard for s in mine} & {s.shard for s in theirs}
    assert len(mine) <= 40 >= len(theirs)


async def check_only_the_owner_gives_a_shard(bench: Bench) -> None:
    leases = bench.store.leases
    owner, stranger = await a_lease(bench), await a_lease(bench)
    await leases.take_shards(owner, "shared", 3)
    assert await leases.give_shards(stranger, [0, 1, 2]) == []
    assert sorted(await leases.give_shards(owner, [0, 1, 40])) == [0, 1]
    assert await leases.owned_shards(owner) == [OwnedShard(2, closing=False)]
    cells = await bench.store.tenants.cell_shards("shared")
    assert cells[:4] == [(0, None), (1, None), (2, owner), (3, None)]


async def check_the_fair_part(bench: Bench) -> None:
    leases = bench.store.leases
    me, other, draining, ended = [await a_lease(bench) for _ in range(4)]
    await a_lease(bench, cell="own")
    await leases.beat(draining, draining=True)
    await leases.expire([ended])
    await leases.take_shards(me, "shared", 5)
    part = await leases.fair_part(me, "shared")
    assert part == FairPart(shards=64, executors=2, mine=5)
    assert part.fair == 32
    assert (await leases.fair_part(other, "no such cell")).shards == 0


async def check_a_tenant_is_served_by_its_shard(bench: Bench) -> None:
    lease = await a_lease(bench)
    tenant = await a_tenant(bench)
    assert await bench.store.leases.owned_tenants(lease) == []
    await bench.store.leases.take_shards(lease, "shared", 64)
    (owned,) = await bench.store.leases.owned_tenants(lease)
    assert (owned.tenant.id, owned.shard, owned.parts) == (tenant, shard_of(tenant), 1)
    assert (owned.lane_first, owned.lane_last, owned.tenant.move_to) == (0, 1024, None)


async def check_the_owner_moves_a_tenant_into_a_cell_of_its_own(bench: Bench) -> None:
    leases, tenants = bench.store.leases, bench.store.tenants
    owner, stranger = await a_lease(bench), await a_lease(bench)
    tenant = await a_tenant(bench)
    await leases.take_shards(owner, "shared", 64)
    cell = await tenants.open_cell(tenant, 3)
    shards = [shard for shard, _ in await tenants.cell_shards(cell)]
    assert shards == [64, 65, 66]
    assert await leases.move_tenants([tenant], owner) == []
    await tenants.ask_move(tenant, shards[0])
    assert await tenants.moving() == [tenant]
    assert (await leases.owned_tenants(owner))[0].tenant.move_to == shards[0]
    for who in (stranger, None):
        assert await leases.move_tenants([tenant], who) == []
    assert await leases.move_tenants([tenant], owner) == [tenant]
    assert await tenants.moving() == []
    assert await leases.owned_tenants(owner) == []
    private = await a_lease(bench, cell=cell)
    assert len(await leases.take_shards(private, cell, 3)) == 3
    served = sorted(await leases.owned_tenants(private), key=lambda owned: owned.shard)
    assert [(o.tenant.id, o.shard, o.parts) for o in served] == [(tenant, shard, 3) for shard in shards]
    assert [(o.lane_first, o.lane_last) for o in served] == [(0, 341), (341, 682), (682, 1024)]


async def check_what_is_held_beyond_a_part_of_the_cap_is_counted(bench: Bench) -> None:
    """Of a cap of eight: all of it at the shared shard; of three shards of its own, five for two and two for one."""
    leases, tenants, count = bench.store.leases, bench.store.tenants, bench.store.runs.count_held
    shared, two, one, me = [await a_lease(bench) for _ in range(4)]
    tenant, other = await a_tenant(bench), await a_tenant(bench)
    await tenants.set_limits(tenant, lambda old: replace(old, max_in_flight=8))
    await leases.take_shards(shared, "shared", 64)
    await hold(bench, shared, tenant, 2)
    await hold(bench, shared, other, 1)
    assert await count([tenant, other], me) == {}
    cell = await tenants.open_cell(tenant, 3)
    assert len(await leases.take_shards(two, cell, 2)) == 2
    await hold(bench, two, tenant, 1)
    assert await count([tenant, other], me) == {tenant: 1}, "its own shards do not serve it yet"
    await tenants.ask_move(tenant, 64)
    assert await leases.move_tenants([tenant], shared) == [tenant]
    assert await count([tenant, other], me) == {tenant: 2}, "the shared shard serves it no more"
    assert len(await leases.take_shards(one, cell, 1)) == 1
    await hold(bench, one, tenant, 3)
    assert await count([tenant, other], me) == {tenant: 2 + 1}, "what one leaves is not another's"
    await hold(bench, two, tenant, 5)
    assert await count([tenant], me) == {tenant: 2 + 1 + 1}
    assert await count([tenant], two) == {tenant: 2 + 1}
    assert await count([tenant], shared) == {tenant: 1 + 1}
    assert await count([other], me) == {}
    assert await leases.give_shards(two, [64]) == [64]
    assert await count([tenant], me) == {tenant: 2 + 1 + 4}
    await leases.expire([two])
    assert await count([tenant], me) == {tenant: 2 + 1}
    await tenants.set_limits(tenant, lambda old: replace(old, max_in_flight=100))
    assert await count([tenant], me) == {tenant: 2}


async def hold(bench: Bench, lease: UUID, tenant: UUID, runs: int) -> None:
    for _ in range(runs):
        await a_run(bench, lease, tenant_id=tenant)


async def check_a_cell_is_closed_through_zero_owners(bench: Bench) -> None:
    leases, tenants = bench.store.leases, bench.store.tenants
    tenant = await a_tenant(bench)
    cell = await tenants.open_cell(tenant, 2)
    await tenants.ask_move(tenant, 64)
    assert await leases.move_tenants([tenant], None) == [tenant]
    owners = [await a_lease(bench, cell=cell) for _ in range(2)]
    for owner in owners:
        await leases.take_shards(owner, cell, 1)
    idle = await tenants.open_cell(await a_tenant(bench), 1)
    assert not await tenants.remove_cell(idle)
    assert await tenants.close_cell(cell, tenant)
    assert not await tenants.close_cell("shared", tenant)
    assert await leases.owned_shards(owners[0]) == [OwnedShard(64, closing=True)]
    assert (await leases.fair_part(owners[0], cell)).shards == 0
    for who in (*owners, None):
        assert await leases.move_tenants([tenant], who) == []
    assert await leases.give_shards(owners[0], [64]) == [64]
    assert await leases.take_shards(owners[0], cell, 2) == []
    assert await leases.move_tenants([tenant], None) == []
    await leases.expire([owners[1]])
    assert await leases.move_tenants([tenant], None) == [tenant]
    found = await tenants.find(tenant_id=tenant)
    assert found is not None
    assert found.shard == shard_of(tenant)
    assert not await tenants.remove_cell(cell)
    await leases.leave(owners[0])
    assert await tenants.remove_cell(cell)
    assert [placement.cell for placement in await tenants.placements()] == ["shared", idle]


async def check_a_move_to_where_it_is_asks_nothing(bench: Bench) -> None:
    tenant = await a_tenant(bench)
    await bench.store.tenants.ask_move(tenant, shard_of(tenant))
    assert await bench.store.tenants.moving() == []


async def check_nobody_moves_into_a_closing_cell(bench: Bench) -> None:
    """Not even if asked to by a Supervisor that has not yet seen it close; nor into one that is gone."""
    tenants = bench.store.tenants
    tenant = await a_tenant(bench)
    cell = await tenants.open_cell(tenant, 1)
    await tenants.close_cell(cell, tenant)
    await tenants.ask_move(tenant, 64)
    assert await tenants.moving() == []
    assert await tenants.remove_cell(cell)
    await tenants.ask_move(tenant, 64)
    assert await tenants.moving() == []


async def check_a_lease_names_its_process(bench: Bench) -> None:
    lease = bench.ids.new()
    process = Process("node-a", "boot-a", "pid:7", 4711, 123.5)
    now = await bench.store.leases.register(lease, "shared", 3, process, "2026a", TTL)
    (info,) = await bench.store.leases.listing()
    assert (info.id, info.generation, info.node, info.pid) == (lease, 3, "node-a", 4711)
    assert info.heartbeat_at <= now
