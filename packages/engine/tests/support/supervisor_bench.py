"""A Supervisor over a store in memory, with executors that are names, and leases that a test takes for them."""

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from tocsin.common.clock import ManualClock
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.ids import Ids
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.history import MemoryHistory
from tocsin.common.store.memory.next_rows import MemoryNextRows
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.next_rows import SuspectPage, ZoneDataState
from tocsin.common.store.rows import KeepResult
from tocsin.common.store.tenants import Process, Tenant
from tocsin.common.tasks import Tasks
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.engine.supervisor import Supervisor, SupervisorConfig
from tocsin.engine.zone_data import ZoneDataConfig, ZoneDataUpgrade

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
RELEASE = "2026f"


class FakeCells:
    """Executors as names; what is drained or ended goes at once. `silent`: those that do not answer."""

    def __init__(self) -> None:
        self.cells: dict[str, list[str]] = {}
        self.started: list[tuple[str, int]] = []
        self.drained: list[str] = []
        self.silent: set[str] = set()
        self.ended: list[str] = []

    async def running(self) -> dict[str, list[str]]:
        return {cell: list(names) for cell, names in self.cells.items() if names}

    async def start(self, cell: str, generation: int) -> str:
        self.started.append((cell, generation))
        name = f"{cell}/{len(self.started)}"
        self.cells.setdefault(cell, []).append(name)
        return name

    async def drain(self, names: Sequence[str]) -> None:
        self.drained += names
        self._go(names)

    async def end_silent(self, names: Sequence[str], most: int) -> list[str]:
        ended = [name for name in names if name in self.silent]
        if len(ended) > most:
            return []
        self.ended += ended
        self._go(ended)
        return ended

    def _go(self, names: Sequence[str]) -> None:
        for running in self.cells.values():
            running[:] = [name for name in running if name not in names]


class NotedHistory(MemoryHistory):
    """History that keeps what it was asked; `away`: it cannot answer."""

    def __init__(self, database: MemoryDatabase, said: list[str]) -> None:
        super().__init__(database)
        self.said = said
        self.away = False
        self.stray = 0

    async def keep(self, today: date | None, days_ahead: int) -> KeepResult:
        if self.away:
            raise StoreUnavailableError("told to be away")
        self.said.append(f"keep {today} {days_ahead}")
        return await super().keep(today, days_ahead)

    async def expire(self, older_than_days: int) -> list[str]:
        self.said.append(f"expire {older_than_days}")
        return await super().expire(older_than_days)

    async def expire_keys(self, seconds: float) -> int:
        self.said.append(f"keys {seconds:g}")
        return await super().expire_keys(seconds)

    async def default_rows(self) -> int:
        return self.stray


class NotedNextRows(MemoryNextRows):
    def __init__(self, database: MemoryDatabase, said: list[str]) -> None:
        super().__init__(database)
        self.said = said

    async def suspects(self, after: UUID, limit: int) -> SuspectPage:
        self.said.append("audit")
        return await super().suspects(after, limit)

    async def zone_data(self) -> ZoneDataState:
        self.said.append("zone data")
        return await super().zone_data()


class SupervisorBench:
    def __init__(self, **config: Any) -> None:
        self.clock = ManualClock(START)
        self.ids = Ids(self.clock, random.Random(1))
        self.database = MemoryDatabase(self.clock)
        self.store = MemoryStore(self.database)
        self.said: list[str] = []
        self.history = NotedHistory(self.database, self.said)
        self.store.history = self.history
        self.store.next_rows = NotedNextRows(self.database, self.said)
        self.cells = FakeCells()
        self.meter = MemoryMeter()
        tasks = Tasks(self.store.tasks, self.ids, lambda _tenant, _priority: None)
        self.supervisor = Supervisor(
            self.store,
            self.cells,
            self.clock,
            self.meter,
            ZoneDataUpgrade(self.store.next_rows, tasks, ZoneDataConfig(RELEASE)),
            SupervisorConfig(**config),
        )

    async def round(self) -> dict[str, int]:
        return await self.supervisor.run_once()

    async def a_tenant(self) -> Tenant:
        tenant = Tenant(self.ids.new(), "tenant", 0, 1.0, 100, None)
        await self.store.tenants.insert(tenant, [])
        return self.database.tenants[tenant.id]

    async def a_lease(self, cell: str, shards: int = 64) -> UUID:
        """An executor of a cell comes up and takes what nobody owns."""
        lease_id = self.ids.new()
        process = Process("node", "boot", "pid:1", 1, 1.0)
        await self.store.leases.register(lease_id, cell, self.supervisor.generation, process, RELEASE, 10.0)
        await self.store.leases.take_shards(lease_id, cell, shards)
        return lease_id

    async def leave(self, lease_id: UUID) -> None:
        owned = [shard.shard for shard in await self.store.leases.owned_shards(lease_id)]
        await self.store.leases.give_shards(lease_id, owned)
        await self.store.leases.leave(lease_id)

    def shard(self, tenant: Tenant) -> int:
        return self.database.tenants[tenant.id].shard
