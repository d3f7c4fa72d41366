"""What one cell plays on: a database of its own, the processes, the endpoint, tenants and a steady load."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg

from bench.load import Load, make_load, seed
from bench.system import Connection, connected, opened, prepare
from property_tests.crash_matrix.control import Control, Decide
from property_tests.crash_matrix.endpoint import Endpoint
from property_tests.crash_matrix.ledger import Death, Ledger, Row
from property_tests.crash_matrix.processes import Keeper
from tocsin.cli.tenants import TENANTS_CHANGED, new_signing_secret
from tocsin.common.clock import Clock
from tocsin.common.ids import SHARED_SHARDS, Ids, shard_of
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.postgres.wakeups import queue_payload
from tocsin.common.store.rows import Task
from tocsin.common.store.tenants import Tenant
from tocsin.common.tasks import Tasks

RATE = 20
ANSWER_MILLISECONDS = 300
TENANTS_EACH = 3
READY_SECONDS = 30.0
LONGEST_SECONDS = 90
"""A load that nobody has ended by then ends by itself."""

_POLL = 0.02


class Cluster:
    """The one server of all cells. Each cell gets a copy of a migrated database."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._numbers = itertools.count(1)

    def url(self, name: str) -> str:
        return urlsplit(self._dsn)._replace(path=f"/{name}").geturl()

    async def make_template(self) -> None:
        async with connected(self._dsn) as connection:
            await connection.execute("create database cells")
        async with opened(self.url("cells")) as store:
            await prepare(self.url("cells"), store)

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        name = f"cell_{next(self._numbers)}"
        async with connected(self._dsn) as connection:
            await connection.execute(f"create database {name} template cells")
        try:
            yield self.url(name)
        finally:
            async with connected(self._dsn) as connection:
                await connection.execute(f"drop database {name} with (force)")


class Stage:
    """`tenants`: of each executor, those whose shards it owns when the load begins. `loaded`: the tasks that are due
    once a second. `owed` and `next_rows`: what the ledger must find of each task (`Ledger`)."""

    def __init__(
        self,
        dsn: str,
        store: PostgresStore,
        connection: Connection,
        endpoint: Endpoint,
        control: Control,
        keeper: Keeper,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.dsn = dsn
        self.store = store
        self.connection = connection
        self.endpoint = endpoint
        self.control = control
        self.keeper = keeper
        self.clock = clock
        self.rng = rng
        self.ids = Ids(clock, rng)
        self.tasks = Tasks(store.tasks, self.ids, lambda _tenant, _priority: None)
        self.tenants: dict[str, list[Tenant]] = {}
        self.load: Load | None = None
        self.loaded: set[UUID] = set()
        self.owed: dict[UUID, Collection[datetime]] = {}
        self.next_rows: dict[UUID, int] = {}

    async def until(
        self, condition: Callable[[], Awaitable[object]], what: str, within: float = READY_SECONDS
    ) -> float:
        """Asks again and again until the answer is true; says how many seconds that took.

        Raises:
            TimeoutError: it never was.
        """
        began = self.clock.monotonic()
        while not await condition():
            if self.clock.monotonic() - began > within:
                raise TimeoutError(f"not within {within:g} s: {what}")
            await asyncio.sleep(_POLL)
        return self.clock.monotonic() - began

    async def until_owned(self, executors: int) -> None:
        """Every shard has a live owner, and each of so many has its part."""

        async def owned() -> bool:
            rows = await self.connection.fetch(
                "select l.id, count(*) as shards from shards s"
                " left join leases l on l.id = s.owner and l.expired_at is null group by l.id"
            )
            parts = [row["shards"] for row in rows if row["id"] is not None]
            return len(parts) == len(rows) == executors and max(parts) == -(-SHARED_SHARDS // executors)

        await self.until(owned, f"{executors} executors own all shards")

    async def seed_tenants(self, executors: Mapping[str, int]) -> None:
        """Some tenants for each executor, by its pid; where there is only one, half of them of its upper shards."""
        halves = [set(range(SHARED_SHARDS // 2)), set(range(SHARED_SHARDS // 2, SHARED_SHARDS))]
        for name, pid in executors.items():
            own = {row["shard"] for row in await self._shards_of(pid)}
            for part in [own] if len(executors) > 1 else halves:
                for _ in range(TENANTS_EACH):
                    self.tenants.setdefault(name, []).append(await self._tenant(part))
        await self.store.tasks.notify(TENANTS_CHANGED)

    async def _shards_of(self, pid: int) -> list[asyncpg.Record]:
        return await self.connection.fetch(
            "select shard from shards s join leases l on l.id = s.owner where pid = $1", pid
        )

    async def _tenant(self, shards: Collection[int]) -> Tenant:
        while shard_of(tenant_id := self.ids.new()) not in shards:
            pass
        tenant = Tenant(tenant_id, f"cell {tenant_id}", shard_of(tenant_id), 1.0, 1000, None)
        await self.store.tenants.insert(tenant, [new_signing_secret()])
        return tenant

    async def begin_load(self) -> Load:
        """A steady load of `RATE` runs a second from the next whole second but one, until `end_load`."""
        tenants = [tenant.id for of_one in self.tenants.values() for tenant in of_one]
        first = (await self.now()).replace(microsecond=0) + timedelta(seconds=2)
        url = self.endpoint.url(ANSWER_MILLISECONDS, "")
        self.load = make_load("cell", self.ids, tenants, RATE, first, LONGEST_SECONDS, url)
        await seed(self.connection, self.ids, self.load)
        self.loaded |= {task_id for task_id, _ in self.load.tasks}
        return self.load

    async def end_load(self) -> datetime:
        """Gives every task that would go on an end, soon, as its tenant would by an edit; says when that is. Of the
        tasks of the load, each slot before it must be accounted for."""
        assert self.load is not None
        end = (await self.now()).replace(microsecond=0) + timedelta(seconds=2)

        def ended(task: Task, _now: datetime) -> Task:
            return replace(task, plan=task.plan.model_copy(update={"end": end}))

        rows = await self.connection.fetch(
            "select id, tenant_id from tasks where state = 'active' and (plan ->> 'end')::timestamptz = $1",
            self.load.end,
        )
        for row in rows:
            edited = await self.tasks.edit(row["tenant_id"], row["id"], ended)
            await self.store.tasks.notify(queue_payload([(row["tenant_id"], edited.plan.priority)]))  # as the API does
        seconds = round((end - self.load.first).total_seconds())
        for task_id in self.loaded:
            self.owe(task_id, *(self.load.first + timedelta(seconds=n) for n in range(seconds)))
        return end

    def owe(self, task_id: UUID, *slots: datetime) -> None:
        self.owed[task_id] = {*self.owed.get(task_id, ()), *slots}

    async def now(self) -> datetime:
        """The database's time."""
        now = await self.connection.fetchval("select clock_timestamp()")
        assert isinstance(now, datetime)
        return now

    async def is_quiet(self) -> bool:
        """Nothing runs, nothing is due within the hour, and no call is open."""
        rows_left = await self.connection.fetchval(
            "select exists (select from running)"
            " or exists (select from pending where due_at < clock_timestamp() + interval '1 hour')"
        )
        return not rows_left and all(call.ended is not None for call in self.endpoint.calls)

    async def ledger(self) -> Ledger:
        """Both ledgers, the database's of one instant."""
        async with self.connection.transaction(isolation="repeatable_read", readonly=True):
            live = await self.connection.fetch(
                "select run_id, task_id, kind, slot, last_slot, fence, 'pending' as state, null::uuid as lease_id"
                " from pending union all select run_id, task_id, kind, slot, last_slot, fence, 'running', lease_id"
                " from running"
            )
            ended = await self.connection.fetch(
                "select run_id, task_id, kind, slot, last_slot, fence, state, until_slot, outcome, sent, stale,"
                " lease_id from history"
            )
            leases = await self.connection.fetch("select id, pid from leases")
        deaths = [
            Death(frozenset(row["id"] for row in leases if row["pid"] == failure.pid), failure.at)
            for failure in self.keeper.failures
        ]
        rows = [Row(**row) for row in (*live, *ended)]
        return Ledger(self.owed, list(self.endpoint.calls), rows, deaths, self.next_rows)


@asynccontextmanager
async def staged(
    cluster: Cluster, folder: Path, decide: Decide, clock: Clock, rng: random.Random
) -> AsyncIterator[Stage]:
    """A stage without any process yet; everything on it is ended afterwards."""
    async with cluster.database() as dsn, opened(dsn) as store, connected(dsn) as connection:
        endpoint = Endpoint(clock)
        await endpoint.open()
        control = Control(decide)
        await control.open()
        keeper = Keeper(dsn, control.port, folder, clock)
        control.cells, control.greeted = keeper.cells, keeper.greeted
        try:
            yield Stage(dsn, store, connection, endpoint, control, keeper, clock, rng)
        finally:
            await keeper.stop()
            await control.close()
            await endpoint.close()
