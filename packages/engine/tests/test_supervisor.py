"""The Supervisor over a store in memory: sizes of cells, promotion and demotion, generations, and its housekeeping."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import date
from uuid import UUID

import pytest

from supervisor_bench import RELEASE, SupervisorBench
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.ids import shard_of
from tocsin.common.store.memory.tenants import MemoryTenants
from tocsin.common.store.tenants import Placement, Tenant
from tocsin.common.tasks import Tasks
from tocsin.common.telemetry.metrics import TENANTS_DEDICATED
from tocsin.engine.supervisor import Supervisor
from tocsin.engine.zone_data import ZoneDataConfig, ZoneDataUpgrade

Check = Callable[[SupervisorBench], Awaitable[None]]


# --- sizes -------------------------------------------------------------------------------------------------------


async def check_a_cell_has_as_many_executors_as_its_placement_says(bench: SupervisorBench) -> None:
    assert (await bench.round())["started"] == 1
    assert await bench.cells.running() == {"shared": ["shared/1"]}
    assert (await bench.round())["started"] == 0, "there are enough"
    await bench.store.tenants.set_executors("shared", 3)
    assert (await bench.round())["started"] == 2
    bench.cells.cells["shared"].remove("shared/2")  # it died
    assert (await bench.round())["started"] == 1
    await bench.store.tenants.set_executors("shared", 1)
    counts = await bench.round()
    assert (counts["started"], counts["drained"]) == (0, 2)
    assert bench.cells.drained == ["shared/3", "shared/4"], "the oldest stays"
    await bench.store.tenants.set_executors("shared", 0)
    await bench.round()
    assert await bench.cells.running() == {}


async def check_executors_of_no_cell_are_drained(bench: SupervisorBench) -> None:
    bench.cells.cells["gone"] = ["gone/1", "gone/2"]
    assert (await bench.round())["drained"] == 2
    assert await bench.cells.running() == {"shared": ["shared/1"]}


async def check_executors_carry_the_generation(bench: SupervisorBench) -> None:
    assert await bench.supervisor.begin_generation() == 1
    await bench.round()
    assert await bench.supervisor.begin_generation() == 2
    bench.cells.cells.clear()
    await bench.round()
    assert bench.cells.started == [("shared", 1), ("shared", 2)]
    assert [placement.generation for placement in await bench.store.tenants.placements()] == [2]


# --- promotion and demotion --------------------------------------------------------------------------------------


async def check_a_promotion_is_carried_through(bench: SupervisorBench) -> None:
    tenant = await bench.a_tenant()
    shared = await bench.a_lease("shared")
    cell = await bench.store.tenants.open_cell(tenant.id, 2)
    counts = await bench.round()
    assert (counts["started"], counts["dedicated"]) == (3, 1)
    assert bench.meter.gauges[TENANTS_DEDICATED.name,] == 1
    assert sorted(name for name, _ in bench.cells.started) == ["shared", cell, cell]
    assert bench.database.moves == {}, "nobody serves its own shards yet"
    await bench.a_lease(cell, 1)
    await bench.round()
    assert bench.database.moves == {}, "one of two"
    await bench.a_lease(cell, 1)
    await bench.round()
    own = [shard for shard, _ in await bench.store.tenants.cell_shards(cell)]
    assert bench.database.moves == {tenant.id: own[0]}
    assert bench.database.notified == ["tenants"]
    assert bench.shard(tenant) == shard_of(tenant.id), "its owner is to move it, between two begins"
    await bench.round()
    assert bench.database.notified == ["tenants"], "it was asked for once"
    assert await bench.store.leases.move_tenants([tenant.id], shared) == [tenant.id]
    await bench.round()
    assert (bench.shard(tenant), bench.database.moves) == (own[0], {})


async def check_a_tenant_that_nobody_serves_is_moved(bench: SupervisorBench) -> None:
    tenant = await bench.a_tenant()
    cell = await bench.store.tenants.open_cell(tenant.id, 1)
    await bench.a_lease(cell)
    await bench.round()
    own = [shard for shard, _ in await bench.store.tenants.cell_shards(cell)]
    assert (bench.shard(tenant), bench.database.moves) == (own[0], {})


async def promoted(bench: SupervisorBench, executors: int) -> tuple[Tenant, str, list[UUID]]:
    tenant = await bench.a_tenant()
    cell = await bench.store.tenants.open_cell(tenant.id, executors)
    leases = [await bench.a_lease(cell, 1) for _ in range(executors)]
    await bench.round()
    assert bench.shard(tenant) != shard_of(tenant.id)
    return tenant, cell, leases


async def check_a_demotion_is_carried_through(bench: SupervisorBench) -> None:
    tenant, cell, leases = await promoted(bench, 2)
    assert await bench.store.tenants.close_cell(cell, tenant.id)
    counts = await bench.round()
    assert (counts["drained"], counts["dedicated"]) == (0, 0), "its executors still serve it"
    assert bench.shard(tenant) != shard_of(tenant.id)
    for lease in leases:
        owned = [shard.shard for shard in await bench.store.leases.owned_shards(lease)]
        await bench.store.leases.give_shards(lease, owned)
    await bench.round()
    assert (bench.shard(tenant), bench.database.moves) == (shard_of(tenant.id), {}), "through zero owners"
    assert (await bench.round())["drained"] == 2
    assert cell in bench.database.placements, "their leases live: calls are still in flight"
    for lease in leases:
        await bench.leave(lease)
    await bench.round()
    assert cell not in bench.database.placements
    assert await bench.cells.running() == {"shared": ["shared/1"]}
    assert not any(shard.cell == cell for shard in bench.database.shards.values())


async def check_a_supervisor_that_died_halfway_is_followed_by_one_that_goes_on(bench: SupervisorBench) -> None:
    tenant, cell, leases = await promoted(bench, 1)
    await bench.store.tenants.close_cell(cell, tenant.id)
    await bench.leave(leases[0])
    tasks = Tasks(bench.store.tasks, bench.ids, lambda _tenant, _priority: None)
    supervisor = Supervisor(
        bench.store,
        bench.cells,
        bench.clock,
        bench.meter,
        ZoneDataUpgrade(bench.store.next_rows, tasks, ZoneDataConfig(RELEASE)),
    )
    for _ in range(2):
        await supervisor.run_once()
    assert bench.shard(tenant) == shard_of(tenant.id)
    assert cell not in bench.database.placements


# --- housekeeping ------------------------------------------------------------------------------------------------

KEPT = ["keep None 9", "expire 40", "keys 86400", "audit"]


async def check_history_is_kept_every_ten_minutes_and_then_audited(bench: SupervisorBench) -> None:
    await bench.round()
    assert bench.said == [*KEPT, "zone data"]
    bench.said.clear()
    bench.clock.advance(599)
    await bench.round()
    assert bench.said == ["zone data"], "every round"
    bench.said.clear()
    bench.clock.advance(1)
    await bench.round()
    assert bench.said == [*KEPT, "zone data"]


async def check_a_keeper_that_fails_hinders_no_audit(bench: SupervisorBench) -> None:
    bench.history.away = True
    with pytest.raises(StoreUnavailableError):
        await bench.round()
    assert bench.said == ["audit"]
    assert await bench.cells.running() == {"shared": ["shared/1"]}, "cells come first"
    await bench.round()
    assert bench.said == ["audit", "zone data"]


async def check_strays_and_what_ages_out_are_logged(bench: SupervisorBench) -> None:
    bench.database.partitions.add(date(2026, 1, 1))
    bench.history.stray = 3
    await bench.round()
    assert date(2026, 1, 1) not in bench.database.partitions


CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}


@pytest.fixture
def supervised() -> SupervisorBench:
    return SupervisorBench(retention_days=40, partition_days_ahead=9)


@pytest.mark.parametrize("check", CHECKS)
async def test_supervisor(supervised: SupervisorBench, check: str) -> None:
    await CHECKS[check](supervised)


async def test_housekeeping_says_what_a_person_must_know(
    supervised: SupervisorBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await check_strays_and_what_ages_out_are_logged(supervised)
    assert "dropped history_20260101: older than 40 days" in caplog.text
    assert "history's DEFAULT partition holds 3 rows" in caplog.text


# --- broken twins ------------------------------------------------------------------------------------------------


async def always(_self: Supervisor, _placement: Placement) -> bool:
    return True


async def never(_self: Supervisor, _placement: Placement) -> bool:
    return False


async def all_owned(self: MemoryTenants, cell: str) -> list[tuple[int, UUID | None]]:
    return [(number, UUID(int=1)) for number, shard in self._db.shards.items() if shard.cell == cell]


async def keeps_its_number(self: Supervisor) -> int:
    return await self._store.tenants.next_generation()


async def moves_nobody(_tenants: Sequence[UUID], _lease: UUID | None) -> list[UUID]:
    return []


async def drains_the_oldest(self: Supervisor, placements: Sequence[Placement]) -> tuple[int, int]:
    running = await self._cells.running()
    drained = 0
    for placement in placements:
        have = sorted(running.get(placement.cell, []))
        surplus = have[: max(0, len(have) - placement.executors)]
        await self._cells.drain(surplus)
        drained += len(surplus)
        for _ in range(placement.executors - len(have)):
            await self._cells.start(placement.cell, self.generation)
    return max(0, sum(p.executors for p in placements) - sum(map(len, running.values()))), drained


async def does_nothing(_self: object) -> dict[str, int]:
    return {}


TWINS: tuple[tuple[str, object, str], ...] = (
    ("_needed", never, "a_demotion_is_carried_through"),
    ("_needed", always, "a_demotion_is_carried_through"),
    ("begin_generation", keeps_its_number, "executors_carry_the_generation"),
    ("_size", drains_the_oldest, "a_cell_has_as_many_executors_as_its_placement_says"),
    ("_size", drains_the_oldest, "executors_of_no_cell_are_drained"),
    ("_keep_history", does_nothing, "history_is_kept_every_ten_minutes_and_then_audited"),
)


@pytest.mark.parametrize(("name", "instead", "check"), TWINS)
async def test_a_broken_supervisor_is_caught(
    supervised: SupervisorBench, monkeypatch: pytest.MonkeyPatch, name: str, instead: object, check: str
) -> None:
    monkeypatch.setattr(Supervisor, name, instead)
    with pytest.raises(AssertionError):
        await CHECKS[check](supervised)


async def test_a_move_asked_for_too_early_is_caught(
    supervised: SupervisorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryTenants, "cell_shards", all_owned)
    with pytest.raises(AssertionError, match="nobody serves its own shards yet"):
        await check_a_promotion_is_carried_through(supervised)


async def test_a_supervisor_that_moves_nobody_is_caught(
    supervised: SupervisorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised.store.leases, "move_tenants", moves_nobody)
    with pytest.raises(AssertionError):
        await check_a_tenant_that_nobody_serves_is_moved(supervised)


async def test_a_keeper_without_a_pause_is_caught() -> None:
    hasty = SupervisorBench(retention_days=40, partition_days_ahead=9, keep_every=0.0)
    with pytest.raises(AssertionError):
        await check_history_is_kept_every_ten_minutes_and_then_audited(hasty)
