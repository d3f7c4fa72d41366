"""Demotion under load: a tenant on k shards of its own goes home while runs come due on every lane, and the owners
let go of its shards one by one."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import pytest

from engine_bench import SECOND, EngineBench, Executor
from tocsin.common.ids import LANES, shard_of
from tocsin.common.states import RunState
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.rows import BeginItem, BeginResult, Begun, Task
from tocsin.common.store.tenants import Tenant
from tocsin.engine.owner import OwnerConfig
from tocsin.engine.ownership import Ownership

STEP = 0.05
SUPERVISED_EVERY = 1.0
SHARDS = 3
ALLOWED = SUPERVISED_EVERY + OwnerConfig().read_every + STEP
"""Seconds that a run may be late: until the Supervisor's round, and the new owner's read. Less than a sweep's two."""


class Demotion:
    """Owners of a tenant's own cell, that of its shared shard, and a Supervisor's moves, each at its own pace."""

    def __init__(self, bench: EngineBench) -> None:
        self.bench = bench
        self.tenant: Tenant
        self.cell = ""
        self.owners: list[Executor] = []
        self.task: Task
        self.due: dict[UUID, datetime] = {}
        self.begun: Counter[UUID] = Counter()
        self.latest = 0.0
        self.steps = 0
        self.heard = 0
        self.deaf = False

    async def set(self) -> None:
        self.tenant = await self.bench.a_tenant()
        self.cell = await self.bench.store.tenants.open_cell(self.tenant.id, SHARDS)
        first = min(number for number, shard in self.bench.database.shards.items() if shard.cell == self.cell)
        self.bench.replace_tenant(self.tenant, shard=first)
        self.task = await self.bench.a_task(self.tenant, schedule=self.bench.every(7200))
        for _ in range(SHARDS):
            owner = self.bench.executor()
            owner.owner.ownership._cell = self.cell
            await owner.start(self.cell)
            self.owners.append(owner)
        for _ in range(3):
            for owner in self.owners:
                await owner.own()
        assert [len(owner.owner.ownership.shards) for owner in self.owners] == [1] * SHARDS
        self.owners.append(self.bench.first)
        self.heard = len(self.bench.database.notified)

    def load(self, seconds: float) -> None:
        """A run on some lane every ten milliseconds."""
        now = self.bench.clock.now()
        for n in range(round(seconds * 100)):
            row = self.bench.put(self.task, now + (1 + n / 100) * SECOND, lane=n * 137 % LANES)
            self.due[row.run_id] = row.due_at

    async def step(self) -> None:
        """All that is due in the next 50 ms: begins, every fourth time reads, and the rounds of shards and moves."""
        self.bench.clock.advance(STEP)
        self.steps += 1
        told = not self.deaf and self.heard < len(self.bench.database.notified)
        self.heard = len(self.bench.database.notified)
        for number, owner in enumerate(self.owners):
            # each at its own moment within the interval, and at once when told
            own_every = round(OwnerConfig().lease.every / STEP)
            if told or (self.steps + number * own_every // len(self.owners)) % own_every == 0:
                await owner.beat()
                await owner.own()
            if self.steps % round(OwnerConfig().read_every / STEP) == 0:
                await owner.owner.reader.run_once()
            self.count(await self._ended(owner, await owner.begin()))
        if self.steps % round(SUPERVISED_EVERY / STEP) == 0:
            moving = await self.bench.store.tenants.moving()
            if moving and await self.bench.store.leases.move_tenants(moving, None):
                await self.bench.store.tasks.notify("tenants")

    async def _ended(self, owner: Executor, begun: list[Begun]) -> list[Begun]:
        for run in begun:
            await owner.end(run, RunState.SUCCEEDED)
        return begun

    def count(self, begun: list[Begun]) -> None:
        for run in begun:
            self.begun[run.run_id] += 1
            self.latest = max(self.latest, (self.bench.clock.now() - self.due[run.run_id]).total_seconds())

    async def run(self, moment: float) -> None:
        """Eight seconds of load; the cell is closed at `moment`."""
        await self.set()
        self.load(8)
        for step in range(round(10 / STEP)):
            if step == round(moment / STEP):
                await self.bench.store.tenants.close_cell(self.cell, self.tenant.id)
            await self.step()


async def check_nothing_is_lost_doubled_or_late(*, deaf: bool = False) -> None:
    """Whatever the moment within the owners' and the Supervisor's rounds. `deaf`: nobody hears what others do."""
    for moment in (3.0, 3.3, 3.6, 3.9, 4.2, 4.5):
        bench = EngineBench()
        await bench.start()
        demotion = Demotion(bench)
        demotion.deaf = deaf
        await demotion.run(moment)
        assert bench.database.tenants[demotion.tenant.id].shard == shard_of(demotion.tenant.id)
        assert demotion.tenant.id in bench.owner.board.tenants
        assert set(demotion.begun) == set(demotion.due), "none is lost"
        assert set(demotion.begun.values()) == {1}, "none is begun twice"
        assert demotion.latest <= ALLOWED


async def test_a_demotion_under_load_loses_doubles_and_delays_nothing() -> None:
    await check_nothing_is_lost_doubled_or_late()


async def test_the_check_catches_owners_that_hear_nothing_of_each_other() -> None:
    with pytest.raises(AssertionError):
        await check_nothing_is_lost_doubled_or_late(deaf=True)


async def test_the_check_catches_an_owner_that_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def kept(_self: Ownership, _shards: Sequence[int]) -> list[int]:
        return []

    monkeypatch.setattr(Ownership, "_give", kept)
    with pytest.raises(AssertionError):
        await check_nothing_is_lost_doubled_or_late()


async def test_the_check_catches_a_store_that_lets_a_run_begin_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = MemoryRuns._begin

    def again(self: MemoryRuns, lease_id: UUID, items: Sequence[BeginItem]) -> BeginResult:
        result = begin(self, lease_id, items)
        begun = {run.run_id for run in result.begun}
        for item in items:
            if item.row.run_id in begun:
                self._db.pending.add(item.row)
        return result

    monkeypatch.setattr(MemoryRuns, "_begin", again)
    with pytest.raises(AssertionError, match="twice"):
        await check_nothing_is_lost_doubled_or_late()
