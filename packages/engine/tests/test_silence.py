"""Frozen executors: an actor that lives to Ray alone is ended and replaced, and nobody else ever is."""

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import pairwise
from uuid import UUID

import pytest

from engine_bench import EngineBench
from supervisor_bench import FakeCells, SupervisorBench
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.memory.leases import MemoryLeases
from tocsin.common.store.rows import Outcome
from tocsin.engine.silence import Silence, SilenceConfig

PATIENCE = SilenceConfig().patience
TTL = 10.0

Check = Callable[[SupervisorBench], Awaitable[None]]


class Town:
    """A shared cell and a tenant's own, of one executor each, and their leases by cell."""

    def __init__(self, bench: SupervisorBench) -> None:
        self.bench = bench
        self.leases: dict[str, UUID] = {}
        self.own = ""

    async def start(self) -> "Town":
        await self.bench.supervisor.begin_generation()
        tenant = await self.bench.a_tenant()
        self.own = await self.bench.store.tenants.open_cell(tenant.id, 1)
        await self.bench.round()
        for cell in ("shared", self.own):
            self.leases[cell] = await self.bench.a_lease(cell)
        return self

    def names(self, cell: str) -> list[str]:
        return self.bench.cells.cells.get(cell, [])

    async def beat(self, cell: str) -> None:
        await self.bench.store.leases.beat(self.leases[cell], draining=False)

    async def seconds(self, count: int, beating: Collection[str] = ()) -> int:
        """Rounds, one a second, with the heartbeats of these cells; how many executors were ended in them."""
        ended = 0
        for _ in range(count):
            self.bench.clock.advance(1)
            for cell in beating:
                await self.beat(cell)
            try:
                ended += (await self.bench.round())["ended"]
            except StoreUnavailableError:
                assert self.bench.database.unavailable
        return ended


async def check_a_frozen_executor_alone_in_its_cell_is_replaced(bench: SupervisorBench) -> None:
    """Though nobody judges its lease: the heartbeats tell."""
    town = await Town(bench).start()
    (frozen,) = town.names(town.own)
    bench.cells.silent.add(frozen)
    assert await town.seconds(int(TTL + PATIENCE), ["shared"]) == 0
    assert await town.seconds(2, ["shared"]) == 1
    assert bench.cells.ended == [frozen]
    assert town.names(town.own) != [frozen]
    assert len(town.names(town.own)) == len(town.names("shared")) == 1
    await bench.store.leases.expire([town.leases[town.own]])
    town.leases[town.own] = await bench.a_lease(town.own)
    assert await town.seconds(120, ["shared", town.own]) == 0
    assert [owner for _, owner in await bench.store.tenants.cell_shards(town.own)] == [town.leases[town.own]]


async def check_of_several_only_the_silent_one_is_ended(bench: SupervisorBench) -> None:
    town = await Town(bench).start()
    await bench.store.tenants.set_executors("shared", 3)
    await town.seconds(1, ["shared", town.own])
    second, frozen = town.names("shared")[1:]
    third = await bench.a_lease("shared")
    bench.cells.silent.add(frozen)
    for _ in range(60):
        await bench.store.leases.beat(third, draining=False)
        await town.seconds(1, ["shared", town.own])
    assert bench.cells.ended == [frozen]
    assert second in town.names("shared")


async def check_an_executor_that_starts_is_given_time(bench: SupervisorBench) -> None:
    """It has no lease yet, and answers nobody."""
    await bench.supervisor.begin_generation()
    await bench.round()
    town = Town(bench)
    bench.cells.silent.update(town.names("shared"))
    assert await town.seconds(int(PATIENCE) - 1) == 0
    town.leases["shared"] = await bench.a_lease("shared")
    assert await town.seconds(600, ["shared"]) == 0


async def check_one_that_answers_is_never_ended(bench: SupervisorBench) -> None:
    """As where it alone cannot reach the database: another in its place could not either."""
    town = await Town(bench).start()
    assert await town.seconds(3600) == 0


async def check_an_outage_ends_nobody(bench: SupervisorBench) -> None:
    """All leases are overdue when the database is back, and nobody would answer: each has its time to beat again."""
    town = await Town(bench).start()
    bench.cells.silent.update(town.names("shared"), town.names(town.own))
    await town.seconds(5, ["shared", town.own])
    await town.seconds(20)
    bench.database.unavailable = True
    await town.seconds(300)
    bench.database.unavailable = False
    assert await town.seconds(5) == 0
    assert await town.seconds(60, ["shared", town.own]) == 0


async def check_what_is_ended_in_vain_is_ended_ever_more_rarely(bench: SupervisorBench) -> None:
    """Where nothing starts, as on a machine without room, or slower than the first time that is given."""
    town = await Town(bench).start()
    ended = []
    for second in range(3600):
        bench.cells.silent.update(town.names(town.own))
        if await town.seconds(1, ["shared"]):
            ended.append(second)
    pauses = [after - before for before, after in pairwise(ended)]
    assert pauses == [60, 120, 240, 480, 600, 600, 600, 600]


async def check_a_long_round_is_no_outage(bench: SupervisorBench) -> None:
    """As while it replants, or asks many executors: what is frozen meanwhile is replaced for all that."""
    town = await Town(bench).start()
    bench.cells.silent.update(town.names(town.own))
    for _ in range(6):
        await town.beat("shared")
        bench.clock.advance(19)
        await town.seconds(1, ["shared"])
    assert len(bench.cells.ended) == 1


async def check_where_more_are_silent_than_lack_a_lease_nobody_is_ended(bench: SupervisorBench) -> None:
    """One of the two lives, and cannot be reached: once it can, the other is known."""
    town = await Town(bench).start()
    await bench.store.tenants.set_executors("shared", 2)
    await town.seconds(1, ["shared", town.own])
    well, frozen = town.names("shared")
    bench.cells.silent.update((well, frozen))
    assert await town.seconds(300, ["shared", town.own]) == 0
    bench.cells.silent.remove(well)
    await town.seconds(60, ["shared", town.own])
    assert bench.cells.ended == [frozen]


async def check_leases_of_others_stand_for_nobody(bench: SupervisorBench) -> None:
    """One that drains, and one that no Supervisor has placed, beside an executor that is frozen."""
    town = await Town(bench).start()
    (frozen,) = town.names("shared")
    bench.cells.silent.add(frozen)
    town.leases["plain"] = await bench.a_lease("shared")
    bench.database.leases[town.leases["plain"]].generation = 0
    draining = await bench.a_lease("shared")
    for _ in range(60):
        await bench.store.leases.beat(draining, draining=True)
        await town.seconds(1, [town.own, "plain"])
    assert bench.cells.ended == [frozen]


CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}


@pytest.mark.parametrize("check", CHECKS)
async def test_silence(check: str) -> None:
    await CHECKS[check](SupervisorBench())


# --- broken twins ------------------------------------------------------------------------------------------------


async def existing(self: MemoryLeases) -> dict[str, int]:
    """Counts the leases that nobody has judged."""
    found: dict[str, int] = {}
    for lease in self._db.leases.values():
        if lease.expired_at is None:
            found[lease.cell] = found.get(lease.cell, 0) + 1
    return found


async def beating(self: MemoryLeases) -> dict[str, int]:
    """Whoever placed them, and whether or not they drain."""
    now, found = self._db.now(), dict[str, int]()
    await self._db.round_trip()
    for lease in self._db.leases.values():
        if lease.expired_at is None and now - lease.heartbeat_at <= lease.ttl:
            found[lease.cell] = found.get(lease.cell, 0) + 1
    return found


async def without_asking(self: FakeCells, names: Sequence[str], most: int) -> list[str]:
    self.silent.update(names)
    return list(names[:most])


async def all_of_the_cell(self: FakeCells, names: Sequence[str], most: int) -> list[str]:
    self.ended += names
    self._go(names)
    return list(names)


async def the_first_silent(self: FakeCells, names: Sequence[str], most: int) -> list[str]:
    ended = [name for name in names if name in self.silent][:most]
    self.ended += ended
    self._go(ended)
    return ended


async def nobody(self: FakeCells, names: Sequence[str], most: int) -> list[str]:
    return []


TWINS: tuple[tuple[type, str, object, str], ...] = (
    (FakeCells, "end_silent", nobody, "a_frozen_executor_alone_in_its_cell_is_replaced"),
    (MemoryLeases, "live_executors", existing, "a_frozen_executor_alone_in_its_cell_is_replaced"),
    (MemoryLeases, "live_executors", beating, "leases_of_others_stand_for_nobody"),
    (FakeCells, "end_silent", all_of_the_cell, "of_several_only_the_silent_one_is_ended"),
    (FakeCells, "end_silent", the_first_silent, "where_more_are_silent_than_lack_a_lease_nobody_is_ended"),
    (FakeCells, "end_silent", without_asking, "one_that_answers_is_never_ended"),
    (Silence, "ended", lambda _self, _cell: None, "what_is_ended_in_vain_is_ended_ever_more_rarely"),
)


@pytest.mark.parametrize(("where", "name", "instead", "check"), TWINS)
async def test_a_broken_twin_is_caught(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, instead: object, check: str
) -> None:
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError):
        await CHECKS[check](SupervisorBench())


@pytest.mark.parametrize(
    ("config", "check"),
    [
        (SilenceConfig(gap=math.inf), "an_outage_ends_nobody"),
        (SilenceConfig(gap=10), "a_long_round_is_no_outage"),
        (SilenceConfig(patience=0), "an_executor_that_starts_is_given_time"),
    ],
)
async def test_one_without_its_patience_is_caught(config: SilenceConfig, check: str) -> None:
    with pytest.raises(AssertionError):
        await CHECKS[check](SupervisorBench(silence=config))


# --- what it held ------------------------------------------------------------------------------------------------


async def seconds_until_called_again(bench: EngineBench) -> float:
    """A frozen executor, alone in its cell, holds a run; another comes in its place. Nobody else lives to judge."""
    await bench.start()
    task = await bench.a_task(schedule=bench.every(3600))
    bench.put(task, bench.clock.now())
    (run,) = await bench.go()
    await bench.first.advance(1)
    bench.clock.advance(TTL + PATIENCE)
    second = bench.executor()
    await second.start()
    seconds = 0.0
    while seconds < 120:
        await second.owner._judge.run_once()
        if begun := await second.go():
            assert [(again.run_id, again.fence, again.losses) for again in begun] == [(run.run_id, 2, 1)]
            assert [row.outcome for row in bench.history(task)] == [Outcome.LOST]
            return seconds
        await second.advance(1.25)
        seconds += 1.25
    return math.inf


async def test_who_comes_in_its_place_judges_it_and_calls_again_what_it_held() -> None:
    """Once it has itself lived for a ttl: one of two is not more than half."""
    assert await seconds_until_called_again(EngineBench()) == TTL


async def test_the_check_catches_a_cell_where_nobody_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(_self: MemoryLeases, _lease_id: UUID) -> list[UUID]:
        return []

    monkeypatch.setattr(MemoryLeases, "judge", nobody)
    assert await seconds_until_called_again(EngineBench()) == math.inf
