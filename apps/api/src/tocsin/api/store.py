"""The store as the API needs it: one pool, without a lease."""

from datetime import datetime

from tocsin.common.store.postgres.database import Database
from tocsin.common.store.postgres.migrate import require_schema
from tocsin.common.store.postgres.tasks import PostgresTasks
from tocsin.common.store.postgres.tenants import PostgresTenants


class ApiStore:
    """Fails with StoreUnavailableError until it is open."""

    def __init__(self, dsn: str, *, size: int) -> None:
        self._dsn = dsn
        self._database = Database(dsn, "tocsin api", size=size)
        self.tasks = PostgresTasks(self._database)
        self.tenants = PostgresTenants(self._database, "api")

    async def open(self) -> None:
        """Raises:
        StoreUnavailableError: the database cannot be reached now, or is not migrated; open again later.
        """
        await require_schema(self._dsn)
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def now(self) -> datetime:
        """The database's time."""
        now = (await self._database.fetch("now"))[0]["now"]
        assert isinstance(now, datetime)
        return now
