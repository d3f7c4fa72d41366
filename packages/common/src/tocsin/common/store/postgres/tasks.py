"""What the API writes and reads of tasks: the primitives of one transaction, and the reads."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import asyncpg
from pydantic import ValidationError

from tocsin.common.crashpoints import reach
from tocsin.common.errors import FaultyDefinitionError
from tocsin.common.models import CallSpec, Kind, PlanSpec, TaskState
from tocsin.common.states import RunState
from tocsin.common.store.faulty import FaultyTask, readable_call, readable_plan
from tocsin.common.store.postgres.database import Database, Transaction, columns, instant
from tocsin.common.store.postgres.leases import now_of
from tocsin.common.store.postgres.runs import pending_of
from tocsin.common.store.rows import Outcome, Pending, Skip, SkipReason, Task, TaskFault, TaskReference
from tocsin.common.store.views import HistoryRow, RunSummary, RunView, TaskView


def task_of(row: asyncpg.Record) -> Task:
    """A stored task, its definition validated.

    Raises:
        FaultyDefinitionError: the row was put in by hand, or by a version with other rules.
    """
    try:
        plan = _plan(row["plan"])
        call = CallSpec.model_validate_json(row["call"])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FaultyDefinitionError(row["id"], f"{where}: {first['msg']}") from error
    return _task(row, plan, call)


@lru_cache(maxsize=4096)
def _plan(text: str) -> PlanSpec:
    """Many tasks have the same plan, and a plan never changes: half of the time of reading a definition."""
    return PlanSpec.model_validate_json(text)


def _task(row: asyncpg.Record, plan: PlanSpec, call: CallSpec) -> Task:
    return Task(
        id=row["id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        state=TaskState(row["state"]),
        version=row["version"],
        plan_version=row["plan_version"],
        plan=plan,
        call=call,
        body=row["body"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        fault=row["fault"],
    )


def _faulty_task(row: asyncpg.Record) -> FaultyTask:
    plan, plan_faults = readable_plan(row["plan"])
    call, call_faults = readable_call(row["call"])
    return FaultyTask(_task(row, plan, call), plan_faults | call_faults)


class PostgresTaskTransaction:
    """One write: the statements that rule 2 is made of, all within one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def lock(self, tenant_id: UUID, task_id: UUID) -> tuple[Task, datetime] | None:
        rows = await self._transaction.fetch("task_lock", tenant_id, task_id)
        return (task_of(rows[0]), now_of(rows)) if rows else None

    async def now(self) -> datetime:
        return now_of(await self._transaction.fetch("now"))

    async def find_next(self, task_id: UUID) -> Pending | None:
        rows = await self._transaction.fetch("next_find", task_id)
        return pending_of(rows[0]) if rows else None

    async def delete_next(self, run_id: UUID) -> bool:
        return bool(await self._transaction.fetch("next_delete", run_id))

    async def greatest_slot(self, task_id: UUID) -> datetime | None:
        slot = (await self._transaction.fetch("greatest_slot", task_id))[0]["slot"]
        assert slot is None or isinstance(slot, datetime)
        return slot

    async def plant(self, rows: Sequence[Pending]) -> None:
        await self._transaction.fetch("plant", *columns([_plant_row(row) for row in rows], 10))

    async def record_skip(self, tenant_id: UUID, task_id: UUID, skip: Skip) -> None:
        await self._transaction.fetch(
            "skip_insert",
            skip.run_id,
            tenant_id,
            task_id,
            skip.first_slot,
            skip.until_slot,
            skip.previous_slot,
            skip.count,
            skip.exact,
            skip.reason,
        )

    async def withdraw_waiting(self, task_id: UUID, reason: SkipReason) -> list[UUID]:
        return [row["run_id"] for row in await self._transaction.fetch("withdraw_waiting", task_id, reason)]

    async def insert(self, task: Task) -> Task:
        rows = await self._transaction.fetch(
            "task_insert",
            task.id,
            task.tenant_id,
            task.name,
            task.plan.model_dump_json(),
            task.call.model_dump_json(),
            task.body,
            task.state,
        )
        return task_of(rows[0])

    async def update(self, task: Task) -> Task:
        rows = await self._transaction.fetch(
            "task_update",
            task.id,
            task.name,
            task.state,
            task.version,
            task.plan_version,
            task.plan.model_dump_json(),
            task.call.model_dump_json(),
            task.body,
            task.fault,
            task.updated_at,
        )
        return task_of(rows[0])

    async def lock_any(self, tenant_id: UUID, task_id: UUID) -> TaskReference | None:
        rows = await self._transaction.fetch("task_lock_any", tenant_id, task_id)
        return TaskReference(TaskState(rows[0]["state"]), now_of(rows)) if rows else None

    async def lock_faulty(self, tenant_id: UUID, task_id: UUID) -> tuple[FaultyTask, datetime] | None:
        rows = await self._transaction.fetch("task_lock", tenant_id, task_id)
        return (_faulty_task(rows[0]), now_of(rows)) if rows else None

    async def mark_deleted(self, task_id: UUID) -> None:
        await self._transaction.fetch("task_delete", task_id)

    async def cancel_pending(self, run_id: UUID) -> Pending | None:
        rows = await self._transaction.fetch("cancel_pending", run_id)
        return pending_of(rows[0]) if rows else None

    async def cancel_running(self, run_id: UUID) -> bool:
        return bool(await self._transaction.fetch("cancel_running", run_id))

    async def find_run(self, tenant_id: UUID, run_id: UUID) -> tuple[UUID, RunState] | None:
        rows = await self._transaction.fetch("run_find", tenant_id, run_id)
        return (rows[0]["task_id"], RunState(rows[0]["state"])) if rows else None

    async def claim_key(self, tenant_id: UUID, key: str, request_hash: bytes, task_id: UUID) -> bool:
        return bool(await self._transaction.fetch("idempotency_claim", tenant_id, key, request_hash, task_id))

    async def key_holder(self, tenant_id: UUID, key: str) -> tuple[bytes, UUID] | None:
        rows = await self._transaction.fetch("idempotency_get", tenant_id, key)
        return (rows[0]["request_hash"], rows[0]["task_id"]) if rows else None


class PostgresTasks:
    """Tasks and runs as the API sees them: always of one tenant."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def write(self) -> AsyncIterator[PostgresTaskTransaction]:
        async with self._database.transaction() as transaction:
            yield PostgresTaskTransaction(transaction)
            reach("api.write.before")
        reach("api.write.after")

    async def notify(self, payload: str) -> None:
        await self._database.fetch("notify", payload)

    async def definitions(self, task_ids: Sequence[UUID]) -> tuple[list[Task], list[FaultyDefinitionError]]:
        """The tasks of these ids; one that cannot be read is named, and hides no other."""
        tasks, faulty = [], []
        for row in await self._database.fetch("definitions", list(task_ids)):
            try:
                tasks.append(task_of(row))
            except FaultyDefinitionError as error:
                faulty.append(error)
        return tasks, faulty

    async def mark_faulty(self, faults: Sequence[TaskFault]) -> None:
        rows = [(fault.task_id, fault.plan_version, fault.reason) for fault in faults]
        await self._database.fetch("mark_faulty", *columns(rows, 3))

    async def get(self, tenant_id: UUID, task_id: UUID) -> TaskView | None:
        rows = await self._database.fetch("task_get", tenant_id, task_id)
        return _view_of(rows[0]) if rows else None

    async def listing(self, tenant_id: UUID, before: UUID | None, limit: int) -> list[TaskView]:
        rows = await self._database.fetch("task_list", tenant_id, before, limit)
        return [_view_of(row) for row in rows]

    async def runs(self, tenant_id: UUID, task_id: UUID, before: UUID | None, limit: int) -> list[RunSummary]:
        rows = await self._database.fetch("run_list", tenant_id, task_id, before, limit)
        return [_summary_of(row) for row in rows]

    async def run(self, tenant_id: UUID, run_id: UUID) -> RunView | None:
        rows = await self._database.fetch("run_get", tenant_id, run_id)
        if not rows:
            return None
        attempts = tuple(_history_of(row) for row in rows if row["source"] == "history")
        live = [row for row in rows if row["source"] != "history"]
        ended = [row for row in rows if row["state"] is not None]
        if not live and not ended:
            return None  # only stale results are left: the day of its end has aged out
        last = live[-1] if live else ended[-1]
        return RunView(
            run_id=run_id,
            task_id=last["task_id"],
            state=RunState(last["source"]) if live else RunState(last["state"]),
            kind=Kind(last["kind"]),
            slot=last["slot"],
            due_at=instant(last["due_at"]),
            cancelled=last["cancelled"],
            attempts=attempts,
        )


def _plant_row(row: Pending) -> tuple[Any, ...]:
    return (
        row.run_id,
        row.tenant_id,
        row.task_id,
        row.due_at,
        row.slot,
        row.last_slot,
        row.plan_version,
        row.priority,
        row.lane,
        row.kind,
    )


def _view_of(row: asyncpg.Record) -> TaskView:
    try:
        task: Task | None = task_of(row)
        fault = row["fault"]
    except FaultyDefinitionError as error:
        task, fault = None, error.reason
    return TaskView(
        id=row["id"],
        name=row["name"],
        task=task,
        fault=fault,
        next_slot=row["next_slot"],
        next_due_at=instant(row["next_due_at"]),
    )


def _summary_of(row: asyncpg.Record) -> RunSummary:
    ended = row["source"] == "history"
    # A run whose last row is an ended attempt without a state was between tables for no reader: it is pending again.
    state = row["state"] if ended else row["source"]
    return RunSummary(
        run_id=row["run_id"],
        state=RunState(state or "pending"),
        kind=Kind(row["kind"]),
        slot=row["slot"],
        due_at=instant(row["due_at"]),
        attempts=row["fence"] - row["losses"],
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        http_status=row["http_status"],
        reason=row["reason"],
        until_slot=row["until_slot"],
        skip_count=row["skip_count"],
        skip_exact=row["skip_exact"],
    )


def _history_of(row: asyncpg.Record) -> HistoryRow:
    return HistoryRow(
        run_id=row["run_id"],
        fence=row["fence"],
        ended_at=row["ended_at"],
        tenant_id=row["tenant_id"],
        task_id=row["task_id"],
        kind=Kind(row["kind"]),
        slot=row["slot"],
        last_slot=row["last_slot"],
        due_at=instant(row["due_at"]),
        losses=row["losses"],
        state=RunState(row["state"]) if row["state"] else None,
        outcome=Outcome(row["outcome"]),
        sent=row["sent"],
        stale=row["stale"],
        lease_id=row["lease_id"],
        started_at=row["started_at"],
        http_status=row["http_status"],
        reason=row["reason"],
        error=row["error"],
        response=row["response"],
        until_slot=row["until_slot"],
        skip_count=row["skip_count"],
        skip_exact=row["skip_exact"],
    )
