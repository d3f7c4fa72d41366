"""The store over PostgreSQL, as one thing: a connection for the heartbeat, a pool for all other work."""

from uuid import UUID

from tocsin.common.store.postgres.database import Database
from tocsin.common.store.postgres.history import PostgresHistory
from tocsin.common.store.postgres.leases import APPLICATION, PostgresLeases
from tocsin.common.store.postgres.next_rows import PostgresNextRows
from tocsin.common.store.postgres.runs import PostgresRuns
from tocsin.common.store.postgres.tasks import PostgresTasks
from tocsin.common.store.postgres.tenants import PostgresTenants
from tocsin.common.store.tenants import actor_of

BEAT_SECONDS = 4.0
"""A heartbeat that takes longer is better given up and sent anew: with a ttl of 10 s the trust window is 8 s."""


class PostgresStore:
    """Everything under one lease's application name (`tocsin <lease>`), or under `name` for a process without one."""

    def __init__(
        self,
        dsn: str,
        *,
        lease_id: UUID | None = None,
        name: str = "tocsin",
        size: int = 6,
        beat_timeout: float = BEAT_SECONDS,
    ) -> None:
        self.name = name if lease_id is None else APPLICATION.format(lease_id)
        self._beat = Database(dsn, self.name, size=1, timeout=beat_timeout)
        self._work = Database(dsn, self.name, size=size)
        self.leases = PostgresLeases(self._beat, self._work)
        self.runs = PostgresRuns(self._work)
        self.tasks = PostgresTasks(self._work)
        self.tenants = PostgresTenants(self._work, actor_of(self.name))
        self.history = PostgresHistory(self._work)
        self.next_rows = PostgresNextRows(self._work)

    async def open(self) -> None:
        """Raises:
        StoreUnavailableError: the database cannot be reached now; open again later.
        """
        await self._work.open()
        await self._beat.open()

    async def close(self) -> None:
        await self._beat.close()
        await self._work.close()
