"""Stores under the Supervisor's services, with a hand in their tables: an older release's rows, and faults."""

import itertools
import random
from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import asyncpg

from tocsin.common.clock import PARKED, ManualClock, SystemClock
from tocsin.common.ids import Ids, lane_of
from tocsin.common.models import AtSchedule, CallSpec, CronSchedule, EverySchedule, Kind, PlanSpec, Schedule
from tocsin.common.states import RunState
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.ports import Store
from tocsin.common.store.postgres.runs import pending_of
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import BeginItem, Begun, Completion, Outcome, Pending, Plant, Task
from tocsin.common.store.tenants import Process, Tenant
from tocsin.common.tasks import NewTask, Tasks
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.common.time.schedule import due_at, next_slot

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
START = datetime(2026, 3, 10, 12, 0, 30, tzinfo=UTC)

_numbers = itertools.count(1)


class NextRowBench(ABC):
    store: Store
    ids: Ids

    def __init__(self) -> None:
        self.meter = MemoryMeter()

    @property
    def tasks(self) -> Tasks:
        return Tasks(self.store.tasks, self.ids, lambda _tenant, _priority: None)

    @abstractmethod
    async def now(self) -> datetime: ...

    @abstractmethod
    async def pending(self, task_id: UUID) -> list[Pending]:
        """By run id."""

    @abstractmethod
    async def put(self, row: Pending) -> None: ...

    @abstractmethod
    async def take(self, row: Pending) -> None: ...

    @abstractmethod
    async def update_at(self, task_id: UUID, updated_at: datetime) -> None: ...

    @abstractmethod
    async def spoil(self, task_id: UUID) -> None:
        """Puts in a definition by hand that cannot be read; its zone still can."""

    # what a test makes

    async def a_task(self, schedule: Schedule | None = None, **plan: Any) -> Task:
        """By default daily at a fixed time about eleven hours from now, in a zone that has no clock changes."""
        tenant = Tenant(self.ids.new(), f"tenant {next(_numbers)}", 0, 1.0, 100, None)
        await self.store.tenants.insert(tenant, ["secret"])
        schedule = schedule or await self.daily()
        new = NewTask(
            "task",
            lambda _now: PlanSpec(schedule=schedule, **plan),
            CallSpec(url="https://example.com/hook"),
            None,
        )
        return await self.the_task((await self.tasks.create(tenant.id, new)).task_id)

    async def an_ended_task(self, **plan: Any) -> Task:
        """A task that was edited to a plan without a slot to come; no slot of it was ever accounted for."""
        task = await self.a_task()
        spec = PlanSpec(**plan)
        return await self.tasks.edit(task.tenant_id, task.id, lambda old, _now: replace(old, plan=spec))

    async def daily(self, zone: str = "Asia/Kolkata", hours: float = 11) -> CronSchedule:
        local = (await self.now() + hours * HOUR).astimezone(ZoneInfo(zone))
        return CronSchedule(cron=f"{local.minute} {local.hour} * * *", zone=zone)

    async def once(self, seconds: float = 3600) -> AtSchedule:
        return AtSchedule(at=(await self.now() + timedelta(seconds=seconds)).replace(microsecond=0))

    async def hourly(self) -> EverySchedule:
        return EverySchedule(every_seconds=3600, anchor=(await self.now() + HOUR / 2).replace(microsecond=0))

    async def the_task(self, task_id: UUID) -> Task:
        (task,), _ = await self.store.tasks.definitions([task_id])
        return task

    async def next_rows(self, task: Task) -> list[Pending]:
        return [row for row in await self.pending(task.id) if row.kind is Kind.NEXT]

    async def next_row(self, task: Task) -> Pending:
        (row,) = await self.next_rows(task)
        return row

    async def age(self, task: Task, hours: float = 1, **changes: Any) -> Pending:
        """The next row as an older release planned it: so many hours off, a day after the last one."""
        row = await self.next_row(task)
        assert row.slot is not None
        slot = row.slot + hours * HOUR
        aged = replace(row, slot=slot, due_at=row.due_at + hours * HOUR, last_slot=slot - DAY)
        aged = replace(aged, **changes)
        await self.take(row)
        await self.put(aged)
        return aged

    async def a_lease(self, release: str) -> UUID:
        lease_id = self.ids.new()
        process = Process("node", "boot", "pid:1", next(_numbers), 1.0)
        await self.store.leases.register(lease_id, "shared", 0, process, release, 10.0)
        return lease_id

    async def a_waiting_run(self, task: Task, run_id: UUID | None = None) -> Pending:
        row = Pending(
            run_id=run_id or self.ids.new(),
            fence=0,
            tenant_id=task.tenant_id,
            task_id=task.id,
            priority=task.plan.priority,
            due_at=await self.now() + HOUR,
            slot=None,
            last_slot=None,
            lane=lane_of(task.id),
            kind=Kind.NOW,
            plan_version=task.plan_version,
        )
        await self.put(row)
        return row

    def begin_item(self, task: Task, row: Pending) -> BeginItem:
        """The begin of a next row as its owner plans it."""
        assert row.slot is not None
        slot = next_slot(task.plan, row.slot)
        if slot is None:
            return BeginItem(row)
        plant = Plant(self.ids.new(), Kind.NEXT, due_at(task.plan, task.id, slot), slot, row.slot)
        return BeginItem(row, plants=(plant,))

    async def begin(self, task: Task, lease_id: UUID) -> Begun:
        item = self.begin_item(task, await self.next_row(task))
        (run,) = (await self.store.runs.begin(lease_id, [item])).begun
        return run

    async def end(self, run: Begun, lease_id: UUID) -> None:
        completion = Completion(
            run_id=run.run_id,
            fence=run.fence,
            ended_at=await self.now(),
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
        )
        await self.store.runs.complete(lease_id, [completion])


class MemoryNextRowBench(NextRowBench):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START)
        self.ids = Ids(self.clock, random.Random(1))
        self.database = MemoryDatabase(self.clock)
        self.store = MemoryStore(self.database)

    async def now(self) -> datetime:
        self.clock.advance(0.001)
        return self.clock.now()

    async def pending(self, task_id: UUID) -> list[Pending]:
        return sorted(self.database.pending.of_task(task_id), key=lambda row: row.run_id)

    async def put(self, row: Pending) -> None:
        self.database.pending.add(row)

    async def take(self, row: Pending) -> None:
        self.database.pending.remove(row.run_id)

    async def update_at(self, task_id: UUID, updated_at: datetime) -> None:
        self.database.tasks[task_id] = replace(self.database.tasks[task_id], updated_at=updated_at)

    async def spoil(self, task_id: UUID) -> None:
        self.database.unreadable[task_id] = "schedule.cron: put in by hand"


class PostgresNextRowBench(NextRowBench):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.ids = Ids(SystemClock(), random.Random(1))
        self.store = PostgresStore(url, size=4)
        self.admin: asyncpg.Connection[asyncpg.Record]

    async def open(self) -> None:
        self.admin = await asyncpg.connect(self.url)
        await self.store.open()

    async def close(self) -> None:
        await self.store.close()
        await self.admin.close()

    async def now(self) -> datetime:
        now = await self.admin.fetchval("select clock_timestamp()")
        assert isinstance(now, datetime)
        return now

    async def pending(self, task_id: UUID) -> list[Pending]:
        rows = await self.admin.fetch("select * from pending where task_id = $1 order by run_id", task_id)
        return [pending_of(row) for row in rows]

    async def put(self, row: Pending) -> None:
        await insert(self.admin, row)

    async def take(self, row: Pending) -> None:
        await self.admin.execute("delete from pending where run_id = $1", row.run_id)

    async def update_at(self, task_id: UUID, updated_at: datetime) -> None:
        await self.admin.execute("update tasks set updated_at = $2 where id = $1", task_id, updated_at)

    async def spoil(self, task_id: UUID) -> None:
        await self.admin.execute("update tasks set plan = plan - 'overlap' || '{\"spread\": 1}' where id = $1", task_id)


async def insert(connection: "asyncpg.Connection[asyncpg.Record]", row: Pending) -> None:
    """Puts a pending row in as it is."""
    await connection.execute(
        "insert into pending (run_id, fence, tenant_id, task_id, priority, due_at, slot, last_slot, lane, kind,"
        " plan_version) values ($1, $2, $3, $4, $5, coalesce($6::timestamptz, 'infinity'), $7, $8, $9, $10, $11)",
        row.run_id,
        row.fence,
        row.tenant_id,
        row.task_id,
        row.priority,
        None if row.due_at == PARKED else row.due_at,
        row.slot,
        row.last_slot,
        row.lane,
        row.kind,
        row.plan_version,
    )
