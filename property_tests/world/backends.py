"""The two databases that a world can stand on: the store in memory, and a real PostgreSQL whose clock is steered."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg

from property_tests.world.clocks import DatabaseTime, WorldTime
from property_tests.world.tables import Tables
from tocsin.cli.postgres import EmbeddedPostgres, throwaway_settings
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.ports import Store
from tocsin.common.store.postgres.migrate import migrate
from tocsin.common.store.postgres.runs import pending_of
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import Pending

T = TypeVar("T")
if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]


async def _connect(url: str) -> "Connection":
    return await asyncpg.connect(url)


class Backend(Protocol):
    def store(self, lease_id: UUID | None) -> Store:
        """A process's store, not yet opened."""
        ...

    def tables(self) -> Tables: ...

    def at_start(self, lease_id: UUID, run_id: UUID) -> tuple[bool, datetime | None]:
        """Of a call that starts now: whether its lease lives, and when its run is due; None where it does not run."""
        ...

    def served(self, lease_id: UUID) -> set[UUID]:
        """The tenants of which a lease owns a shard now."""
        ...

    def pending(self) -> list[Pending]:
        """The pending rows, as an index is told of them."""
        ...

    def moved(self, now: datetime) -> None:
        """The database's clock shows `now`."""
        ...

    def close(self) -> None: ...


class MemoryBackend:
    def __init__(self, time: WorldTime) -> None:
        self.database = MemoryDatabase(DatabaseTime(time))

    def store(self, lease_id: UUID | None) -> Store:
        return MemoryStore(self.database, lease_id=lease_id)

    def tables(self) -> Tables:
        database = self.database
        running = []
        for each in database.running.values():
            row = {name: getattr(each.run, name) for name in _RUN}
            running.append(row | {"lease_id": each.lease_id, "cancelled": each.cancelled})
        return Tables(
            now=database.now(),
            pending=[{name: getattr(row, name) for name in _RUN} for row in database.pending],
            running=running,
            history=[{name: getattr(row, name) for name in _HISTORY} for row in database.history.values()],
            tasks={task.id: {name: getattr(task, name) for name in _TASK} for task in database.tasks.values()},
            leases={lease.id: lease.expired_at for lease in database.leases.values()},
            caps={tenant.id: tenant.max_in_flight for tenant in database.tenants.values()},
        )

    def at_start(self, lease_id: UUID, run_id: UUID) -> tuple[bool, datetime | None]:
        row = self.database.running.get(run_id)
        return self.database.live(lease_id) is not None, None if row is None else row.run.due_at

    def served(self, lease_id: UUID) -> set[UUID]:
        database = self.database
        shards = {tenant.id: database.serving(tenant).values() for tenant in database.tenants.values()}
        return {tenant_id for tenant_id, mine in shards.items() if any(shard.owner == lease_id for shard in mine)}

    def pending(self) -> list[Pending]:
        return list(self.database.pending)

    def moved(self, now: datetime) -> None:
        """It reads the world's time itself."""

    def close(self) -> None:
        """Nothing is held."""


_TASK = ("state", "tenant_id", "version")
_RUN = ("run_id", "tenant_id", "task_id", "due_at", "slot", "last_slot", "fence", "losses", "kind")
_HISTORY = (
    *("run_id", "tenant_id", "task_id", "ended_at", "due_at", "slot", "last_slot", "until_slot", "skip_count"),
    *("skip_exact", "fence", "losses", "sent", "stale", "kind", "state", "outcome", "reason", "lease_id"),
)

_STEERED = """
create table world_clock (at timestamptz not null);
insert into world_clock values (pg_catalog.now());
create sequence world_ticks;
create function public.now() returns timestamptz language sql stable as 'select at from public.world_clock';
create function public.clock_timestamp() returns timestamptz language sql volatile
    as 'select at + pg_catalog.nextval(''public.world_ticks'') * interval ''1 microsecond'' from public.world_clock';
"""
"""With `public` before `pg_catalog` in the search path, every statement of the product asks these for the time."""

_SERVED = """
select t.id
  from tenants t
  join shards named on named.shard = t.shard
  join shards s on s.shard = named.shard or (named.tenant_id = t.id and s.tenant_id = t.id)
 where s.owner = $1
"""
"""A tenant that is on a shard of its own is on all of them."""


class Server:
    """One PostgreSQL for all worlds of a process, and a template whose clock is steered."""

    _here: ClassVar["Server | None"] = None

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._count = 0
        self._loop = asyncio.new_event_loop()  # in a thread: the world looks while a process's loop runs
        self._thread = threading.Thread(target=self._loop.run_forever, name="world-database", daemon=True)
        self._thread.start()
        self._connection: Connection = self.run(_connect(dsn))
        self.run(self._make_template())

    @classmethod
    @contextmanager
    def running(cls, folder: Path) -> Iterator["Server"]:
        with EmbeddedPostgres(folder, settings=throwaway_settings()) as postgres:
            cls._here = cls(postgres.dsn)
            try:
                yield cls._here
            finally:
                cls._here._close()
                cls._here = None

    @classmethod
    def here(cls) -> "Server":
        assert cls._here is not None, "start a Server first"
        return cls._here

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _close(self) -> None:
        self.run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, name: str) -> str:
        return urlsplit(self.dsn)._replace(path=f"/{name}").geturl()

    def create(self) -> str:
        self._count += 1
        name = f"world_{self._count}"
        self.run(self._execute(f"create database {name} template world strategy file_copy"))
        self.run(self._execute(f"alter database {name} set search_path = public, pg_catalog"))
        return name

    def drop(self, name: str) -> None:
        self.run(self._execute(f"drop database {name} with (force)"))

    async def _execute(self, statement: str) -> None:
        await self._connection.execute(statement)

    async def _make_template(self) -> None:
        await self._connection.execute("create database world")
        await self._connection.execute("alter database world set search_path = public, pg_catalog")
        connection = await asyncpg.connect(self.url("world"))
        await connection.execute(_STEERED)
        await connection.close()
        await migrate(self.url("world"))


class PostgresBackend:
    def __init__(self, time: WorldTime) -> None:
        self._server = Server.here()
        self._name = self._server.create()
        self._url = self._server.url(self._name)
        self._eye = self._server.run(_connect(self._url))
        self.moved(time.database_now())

    def store(self, lease_id: UUID | None) -> Store:
        return PostgresStore(self._url, lease_id=lease_id)

    def tables(self) -> Tables:
        return self._server.run(self._read())

    async def _read(self) -> Tables:
        fetch = self._eye.fetch
        return Tables(
            now=(await fetch("select at from world_clock"))[0]["at"],
            pending=[dict(row) for row in await fetch("select * from pending")],
            running=[dict(row) for row in await fetch("select * from running")],
            history=[dict(row) for row in await fetch("select * from history")],
            tasks={row["id"]: dict(row) for row in await fetch("select id, state, tenant_id, version from tasks")},
            leases={row["id"]: row["expired_at"] for row in await fetch("select id, expired_at from leases")},
            caps={row["id"]: row["max_in_flight"] for row in await fetch("select id, max_in_flight from tenants")},
        )

    def at_start(self, lease_id: UUID, run_id: UUID) -> tuple[bool, datetime | None]:
        return self._server.run(self._read_start(lease_id, run_id))

    async def _read_start(self, lease_id: UUID, run_id: UUID) -> tuple[bool, datetime | None]:
        (row,) = await self._eye.fetch(
            "select exists (select from leases where id = $1 and expired_at is null) as lives,"
            " (select due_at from running where run_id = $2) as due_at",
            lease_id,
            run_id,
        )
        return row["lives"], row["due_at"]

    def served(self, lease_id: UUID) -> set[UUID]:
        return {row["id"] for row in self._server.run(self._eye.fetch(_SERVED, lease_id))}

    def pending(self) -> list[Pending]:
        return [pending_of(row) for row in self._server.run(self._eye.fetch("select * from pending"))]

    def moved(self, now: datetime) -> None:
        self._server.run(self._set_clock(now))

    async def _set_clock(self, now: datetime) -> None:
        await self._eye.execute("update world_clock set at = $1", now)
        await self._eye.execute("select setval('world_ticks', 1)")

    def close(self) -> None:
        self._server.run(self._eye.close())
        self._server.drop(self._name)
