"""The store in memory, as one thing."""

from uuid import UUID

from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.history import MemoryHistory
from tocsin.common.store.memory.leases import MemoryLeases
from tocsin.common.store.memory.next_rows import MemoryNextRows
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.memory.tasks import MemoryTasks
from tocsin.common.store.memory.tenants import MemoryTenants
from tocsin.common.store.tenants import actor_of


class MemoryStore:
    """One process's view of a `MemoryDatabase`; several stores on one database are several processes."""

    def __init__(self, database: MemoryDatabase, *, lease_id: UUID | None = None, name: str = "tocsin") -> None:
        self.name = name if lease_id is None else f"tocsin {lease_id}"
        self.leases = MemoryLeases(database)
        self.runs = MemoryRuns(database, self.name)
        self.tasks = MemoryTasks(database)
        self.tenants = MemoryTenants(database, actor_of(self.name))
        self.history = MemoryHistory(database)
        self.next_rows = MemoryNextRows(database)
        self._database = database

    async def open(self) -> None:
        await self._database.round_trip()

    async def close(self) -> None:
        """Nothing is held."""
