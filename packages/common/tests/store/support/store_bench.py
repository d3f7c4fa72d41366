"""A store under test, with what a test needs beside its ports: a look at the tables, and ways to move time."""

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from tocsin.common.clock import PARKED, ManualClock, SystemClock
from tocsin.common.ids import Ids
from tocsin.common.models import Kind
from tocsin.common.states import RunState
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.ports import Store
from tocsin.common.store.postgres.runs import pending_of
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import Outcome, Pending
from tocsin.common.store.tenants import AuditEntry
from tocsin.common.store.views import HistoryRow
from tocsin.common.tasks import Tasks

START = datetime(2026, 3, 10, 12, 0, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RunningRow:
    run_id: UUID
    fence: int
    lease_id: UUID
    kind: Kind
    slot: datetime | None
    last_slot: datetime | None
    version: int
    losses: int
    cancelled: bool


@dataclass(frozen=True, slots=True)
class LeaseRow:
    heartbeat_at: datetime
    steady_since: datetime
    expired_at: datetime | None
    draining: bool


class Bench(ABC):
    """`other` is a second process's view of the same store."""

    store: Store
    other: Store
    ids: Ids

    def __init__(self) -> None:
        self.woken: list[tuple[UUID, int]] = []

    @property
    def tasks(self) -> Tasks:
        return Tasks(self.store.tasks, self.ids, lambda tenant, priority: self.woken.append((tenant, priority)))

    @abstractmethod
    async def now(self) -> datetime: ...

    @abstractmethod
    async def pending(self, task_id: UUID) -> list[Pending]:
        """By run id: in the order of their planting."""

    @abstractmethod
    async def running(self, task_id: UUID) -> list[RunningRow]: ...

    @abstractmethod
    async def history(self, task_id: UUID) -> list[HistoryRow]:
        """By run id, fence and end."""

    @abstractmethod
    async def put_pending(self, rows: Sequence[Pending]) -> None:
        """Puts rows in as they are, whatever a statement would make of them."""

    @abstractmethod
    async def lease(self, lease_id: UUID) -> LeaseRow: ...

    @abstractmethod
    async def age_lease(self, lease_id: UUID, *, heartbeat: float = 0, steady: float = 0, expired: float = 0) -> None:
        """Sets the instants of a lease back by so many seconds."""

    @abstractmethod
    async def forget_lease(self, lease_id: UUID) -> None: ...

    @abstractmethod
    async def shift(self, task_id: UUID, seconds: float) -> None:
        """Moves everything of a task into the past, as if so much time had gone by."""

    @abstractmethod
    async def spoil(self, task_id: UUID) -> None:
        """Puts in a definition by hand that cannot be read."""

    @abstractmethod
    async def audit(self) -> list[AuditEntry]:
        """Who changed what, in that order."""

    async def next_rows(self, task_id: UUID) -> list[Pending]:
        return [row for row in await self.pending(task_id) if row.kind is Kind.NEXT]

    async def next_row(self, task_id: UUID) -> Pending:
        (row,) = await self.next_rows(task_id)
        return row


class MemoryBench(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START)
        self.ids = Ids(self.clock, random.Random(1))
        self.database = MemoryDatabase(self.clock)
        self.store = MemoryStore(self.database)
        self.other = MemoryStore(self.database, name="other")

    async def now(self) -> datetime:
        self.clock.advance(0.001)
        return self.clock.now()

    async def pending(self, task_id: UUID) -> list[Pending]:
        return sorted(self.database.pending.of_task(task_id), key=lambda row: row.run_id)

    async def running(self, task_id: UUID) -> list[RunningRow]:
        return [
            RunningRow(
                row.run.run_id,
                row.run.fence,
                row.lease_id,
                row.run.kind,
                row.run.slot,
                row.run.last_slot,
                row.run.version,
                row.run.losses,
                row.cancelled,
            )
            for row in sorted(self.database.of_task(task_id), key=lambda row: row.run.run_id)
        ]

    async def history(self, task_id: UUID) -> list[HistoryRow]:
        rows = [row for row in self.database.history.values() if row.task_id == task_id]
        return sorted(rows, key=lambda row: (row.run_id, row.fence, row.ended_at))

    async def put_pending(self, rows: Sequence[Pending]) -> None:
        for row in rows:
            self.database.pending.add(row)

    async def lease(self, lease_id: UUID) -> LeaseRow:
        row = self.database.leases[lease_id]
        return LeaseRow(row.heartbeat_at, row.steady_since, row.expired_at, row.draining)

    async def age_lease(self, lease_id: UUID, *, heartbeat: float = 0, steady: float = 0, expired: float = 0) -> None:
        row = self.database.leases[lease_id]
        row.heartbeat_at -= timedelta(seconds=heartbeat)
        row.steady_since -= timedelta(seconds=steady)
        if row.expired_at is not None:
            row.expired_at -= timedelta(seconds=expired)

    async def forget_lease(self, lease_id: UUID) -> None:
        del self.database.leases[lease_id]

    async def shift(self, task_id: UUID, seconds: float) -> None:
        delta = timedelta(seconds=seconds)
        task = self.database.tasks[task_id]
        self.database.tasks[task_id] = replace(
            task, created_at=task.created_at - delta, updated_at=task.updated_at - delta
        )
        for row in self.database.pending.of_task(task_id):
            due_at = row.due_at if row.due_at == PARKED else row.due_at - delta
            self.database.pending.remove(row.run_id)
            moved = replace(row, slot=_less(row.slot, delta), last_slot=_less(row.last_slot, delta))
            self.database.pending.add(replace(moved, due_at=due_at))
        for running in self.database.of_task(task_id):
            run = running.run
            running.run = replace(
                run,
                slot=_less(run.slot, delta),
                last_slot=_less(run.last_slot, delta),
                due_at=run.due_at - delta,
            )
        for key, ended in self.database.history.items():
            if ended.task_id == task_id:
                self.database.history[key] = replace(
                    ended,
                    slot=_less(ended.slot, delta),
                    last_slot=_less(ended.last_slot, delta),
                    until_slot=_less(ended.until_slot, delta),
                )

    async def spoil(self, task_id: UUID) -> None:
        self.database.unreadable[task_id] = "schedule: Field required"

    async def audit(self) -> list[AuditEntry]:
        return self.database.audit


class PostgresBench(Bench):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.ids = Ids(SystemClock(), random.Random(1))
        self.store = PostgresStore(url, size=4)
        self.other = PostgresStore(url, name="other", size=4)
        self.admin: asyncpg.Connection[asyncpg.Record]
        self.watcher: asyncpg.Connection[asyncpg.Record]

    async def open(self) -> None:
        self.admin = await asyncpg.connect(self.url)
        self.watcher = await asyncpg.connect(self.url)
        await self.store.open()
        await self.other.open()

    async def close(self) -> None:
        await self.store.close()
        await self.other.close()
        await self.admin.close()
        await self.watcher.close()

    async def now(self) -> datetime:
        now = await self.admin.fetchval("select clock_timestamp()")
        assert isinstance(now, datetime)
        return now

    async def pending(self, task_id: UUID) -> list[Pending]:
        rows = await self.admin.fetch("select * from pending where task_id = $1 order by run_id", task_id)
        return [pending_of(row) for row in rows]

    async def running(self, task_id: UUID) -> list[RunningRow]:
        names = [field.name for field in fields(RunningRow)]
        rows = await self.admin.fetch("select * from running where task_id = $1 order by run_id", task_id)
        return [RunningRow(**{**{n: row[n] for n in names}, "kind": Kind(row["kind"])}) for row in rows]

    async def history(self, task_id: UUID) -> list[HistoryRow]:
        names = [field.name for field in fields(HistoryRow)]
        rows = await self.admin.fetch(
            "select * from history where task_id = $1 order by run_id, fence, ended_at", task_id
        )
        return [
            replace(
                HistoryRow(**{name: row[name] for name in names}),
                kind=Kind(row["kind"]),
                outcome=Outcome(row["outcome"]),
                state=RunState(row["state"]) if row["state"] else None,
            )
            for row in rows
        ]

    async def put_pending(self, rows: Sequence[Pending]) -> None:
        names = [field.name for field in fields(Pending)]
        await self.admin.copy_records_to_table(
            "pending", records=[tuple(getattr(row, name) for name in names) for row in rows], columns=names
        )

    async def lease(self, lease_id: UUID) -> LeaseRow:
        row = await self.admin.fetchrow("select * from leases where id = $1", lease_id)
        assert row is not None
        return LeaseRow(row["heartbeat_at"], row["steady_since"], row["expired_at"], row["draining"])

    async def age_lease(self, lease_id: UUID, *, heartbeat: float = 0, steady: float = 0, expired: float = 0) -> None:
        await self.admin.execute(
            "update leases set heartbeat_at = heartbeat_at - $2::float8 * interval '1 second',"
            " steady_since = steady_since - $3::float8 * interval '1 second',"
            " expired_at = expired_at - $4::float8 * interval '1 second' where id = $1",
            lease_id,
            heartbeat,
            steady,
            expired,
        )

    async def forget_lease(self, lease_id: UUID) -> None:
        await self.admin.execute("delete from leases where id = $1", lease_id)

    async def shift(self, task_id: UUID, seconds: float) -> None:
        delta = timedelta(seconds=seconds)
        await self.admin.execute(
            "update tasks set created_at = created_at - $2::interval, updated_at = updated_at - $2::interval"
            " where id = $1",
            task_id,
            delta,
        )
        for table, columns in (
            ("pending", ("slot", "last_slot", "due_at")),
            ("running", ("slot", "last_slot", "due_at")),
            ("history", ("slot", "last_slot", "until_slot")),
        ):
            moved = ", ".join(f"{column} = {column} - $2::interval" for column in columns)
            await self.admin.execute(f"update {table} set {moved} where task_id = $1", task_id, delta)

    async def spoil(self, task_id: UUID) -> None:
        await self.admin.execute("update tasks set plan = '{}' where id = $1", task_id)

    async def audit(self) -> list[AuditEntry]:
        rows = await self.admin.fetch("select tenant_id, actor, action, target, detail from audit order by id")
        return [AuditEntry(**{**row, "detail": json.loads(row["detail"])}) for row in rows]


def _less(value: datetime | None, delta: timedelta) -> datetime | None:
    return None if value is None else value - delta
