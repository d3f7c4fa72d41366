"""A database with many tasks that wait for a far instant, and single begins on it, through the store's own methods."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID

from bench.system import Connection, connected, opened, prepare
from tocsin.common.ids import Ids
from tocsin.common.models import CallSpec, EverySchedule, Kind, PlanSpec
from tocsin.common.states import RunState
from tocsin.common.store.postgres.runs import pending_of
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import BeginItem, Begun, Completion, Outcome, Pending, Plant
from tocsin.common.store.tenants import Process, Tenant
from tocsin.common.time.zones import zone_data_version
from tocsin.engine.begin import parts

_TENANTS = 100
_PERIOD = timedelta(days=1)
_TTL = 86_400.0

_TASKS = """
insert into tasks (id, tenant_id, name, plan, call)
select uuidv7(), ($1::uuid[])[1 + n % cardinality($1::uuid[])], 'idle ' || n, $2::jsonb, $3::jsonb
  from generate_series(1, $4::int) n
"""

_NEXT_ROWS = """
insert into pending (run_id, tenant_id, task_id, due_at, slot, plan_version, priority, lane, kind)
select uuidv7(), tenant_id, id, slot, slot, 1, 2, n % 1024, 'next'
  from (select id, tenant_id, row_number() over () as n,
               date_trunc('second', now() + interval '1 day' + random() * interval '30 days') as slot
          from tasks) t
"""

_SAMPLE = """
select run_id, fence, tenant_id, task_id, priority, due_at, slot, last_slot, lane, kind, plan_version, losses
  from pending order by random() limit $1
"""


@dataclass(slots=True)
class IdleDatabase:
    """`rows` are next rows of tasks picked at random among all, to be begun in turn."""

    dsn: str
    connection: Connection
    store: PostgresStore
    lease_id: UUID
    ids: Ids
    rows: deque[Pending]
    asked: int = 0
    begun: int = 0

    async def begin(self, count: int) -> float:
        """Begins `count` next rows and plants what follows each, as an owner does: in one statement, or a large one in
        two at once; returns the seconds.

        The runs are completed afterwards, so that `running` stays as small as it is in life.
        """
        rows = [self.rows.popleft() for _ in range(count)]
        halves = [[BeginItem(row, plants=(self._successor(row),)) for row in part] for part in parts(rows)]
        began = time.perf_counter()
        results = await asyncio.gather(*(self.store.runs.begin(self.lease_id, items) for items in halves))
        seconds = time.perf_counter() - began
        begun = [run for result in results for run in result.begun]
        self.asked += count
        self.begun += len(begun)
        now = datetime.now(UTC)
        await self.store.runs.complete(self.lease_id, [completion(run, now) for run in begun])
        self.rows.extend(_planted(item.row, item.plants[0]) for items in halves for item in items)
        return seconds

    def _successor(self, row: Pending) -> Plant:
        assert row.slot is not None
        slot = row.slot + _PERIOD
        return Plant(self.ids.new(), Kind.NEXT, slot, slot, row.slot)


def _planted(row: Pending, plant: Plant) -> Pending:
    return Pending(
        run_id=plant.run_id,
        fence=0,
        tenant_id=row.tenant_id,
        task_id=row.task_id,
        priority=row.priority,
        due_at=plant.due_at,
        slot=plant.slot,
        last_slot=plant.last_slot,
        lane=row.lane,
        kind=plant.kind,
        plan_version=row.plan_version,
    )


def completion(run: Begun, now: datetime) -> Completion:
    """The run's end in success."""
    return Completion(
        run_id=run.run_id,
        fence=run.fence,
        ended_at=now,
        outcome=Outcome.SUCCESS,
        sent=True,
        state=RunState.SUCCEEDED,
        tenant_id=run.tenant_id,
        task_id=run.task_id,
        kind=run.kind,
        slot=run.slot,
        last_slot=run.last_slot,
        due_at=run.due_at,
        losses=run.losses,
        started_at=now,
        http_status=200,
    )


@asynccontextmanager
async def new_database(server_dsn: str, name: str) -> AsyncIterator[str]:
    """A database of its own on the server; dropped afterwards."""
    async with connected(server_dsn) as connection:
        await connection.execute(f'create database "{name}"')
    try:
        yield urlsplit(server_dsn)._replace(path=f"/{name}").geturl()
    finally:
        async with connected(server_dsn) as connection:
            await connection.execute(f'drop database "{name}" with (force)')


async def seed_idle(connection: Connection, tenants: Sequence[UUID], tasks: int) -> None:
    """Puts `tasks` tasks into a database without any, spread over these tenants; their first slots are 1 to 31 days
    away. Vacuumed."""
    anchor = datetime.now(UTC).replace(microsecond=0)
    plan = PlanSpec(schedule=EverySchedule(every_seconds=int(_PERIOD.total_seconds()), anchor=anchor))
    call = CallSpec(url="http://127.0.0.1:1/")
    # the tenants are there: to look for that of each task takes nearly half of the time
    await connection.execute("set session_replication_role = replica")
    await connection.execute(_TASKS, tenants, plan.model_dump_json(), call.model_dump_json(), tasks)
    await connection.execute("reset session_replication_role")
    await connection.execute(_NEXT_ROWS)
    await connection.execute("vacuum analyze tasks, pending")


async def beginning(dsn: str, connection: Connection, store: PostgresStore, ids: Ids, sample: int) -> IdleDatabase:
    """Begins of `sample` of the idle tasks (or all, if there are fewer), under a lease of no executor's cell."""
    rows = deque(pending_of(row) for row in await connection.fetch(_SAMPLE, sample))
    lease_id = ids.new()
    await store.leases.register(lease_id, "bench", 0, Process("bench", "", "", 0, 0.0), zone_data_version(), _TTL)
    return IdleDatabase(dsn, connection, store, lease_id, ids, rows)


@asynccontextmanager
async def idle_database(server_dsn: str, ids: Ids, tasks: int, sample: int) -> AsyncIterator[IdleDatabase]:
    """A database with `tasks` idle tasks, of which `sample` will be begun."""
    async with (
        new_database(server_dsn, f"idle_{tasks}_{sample}") as dsn,
        opened(dsn) as store,
        connected(dsn) as connection,
    ):
        await prepare(dsn, store)
        tenants = [ids.new() for _ in range(_TENANTS)]
        for tenant_id in tenants:
            await store.tenants.insert(Tenant(tenant_id, str(tenant_id), 0, 1.0, 1000, None), [])
        await seed_idle(connection, tenants, tasks)
        yield await beginning(dsn, connection, store, ids, sample)
