"""The path of a run: heads, begin, completion, put back, give back. One statement each, whatever the number of rows."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from tocsin.common.clock import PARKED
from tocsin.common.crashpoints import reach
from tocsin.common.errors import RowRefusedError
from tocsin.common.models import Kind, Priority
from tocsin.common.states import RunState
from tocsin.common.store.postgres.database import Database, columns, instant
from tocsin.common.store.rows import (
    MARGIN_SECONDS,
    MAX_LOSSES,
    Backend,
    BeginItem,
    BeginResult,
    Begun,
    Completion,
    CompletionResult,
    GivenBack,
    Held,
    Pending,
    QueuePage,
    Recheck,
    Skip,
    begun_of,
    check_completions,
    check_items,
)


class PostgresRuns:
    """Of the methods here only `begin` raises a fence, and only at most `MAX_BEGIN` at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def heads(self, pages: Sequence[QueuePage], lead: float) -> list[Pending]:
        arrays = columns(
            [(p.tenant_id, p.priority, p.from_due, p.from_run, p.lane_first, p.lane_last, p.limit) for p in pages],
            7,
        )
        rows = await self._database.fetch("heads", *arrays, MARGIN_SECONDS, lead)
        return [pending_of(row) for row in rows]

    async def hinted(self, run_ids: Sequence[UUID], lead: float) -> list[Pending]:
        return [pending_of(row) for row in await self._database.fetch("pending_by_id", list(run_ids), lead)]

    async def begin(
        self, lease_id: UUID, items: Sequence[BeginItem], note: Callable[[Backend], None] | None = None
    ) -> BeginResult:
        check_items(items)
        arguments = _begin_arguments(items)
        reach("begin.before")
        with _refusals():
            rows, _ = await self._database.fetch_on("begin", lease_id, *arguments, note=note)
        reach("begin.after")
        begun: list[Begun] = []
        skipped: list[UUID] = []
        busy: list[UUID] = []
        (answer,) = rows
        for number, version in zip(answer["numbers"] or (), answer["versions"] or (), strict=True):
            row = items[number - 1].row
            if version > 0:
                begun.append(begun_of(row, version))
            else:
                (busy if version else skipped).append(row.run_id)
        return BeginResult(tuple(begun), tuple(skipped), tuple(busy))

    async def complete(self, lease_id: UUID, completions: Sequence[Completion]) -> CompletionResult:
        check_completions(completions)
        arrays = columns([_completion_row(c) for c in completions], 19)
        reach("complete.before")
        with _refusals():
            rows = await self._database.fetch("complete", *arrays, lease_id)
        reach("complete.after")
        applied = tuple((r["run_id"], r["fence"]) for r in rows if not r["stale"])
        stale = tuple((r["run_id"], r["fence"]) for r in rows if r["stale"])
        return CompletionResult(applied, stale)

    async def put_back(self, lease_id: UUID, pairs: Sequence[tuple[UUID, int]]) -> list[UUID]:
        reach("put_back.before")
        rows = await self._database.fetch("put_back", lease_id, *columns(pairs, 2))
        reach("put_back.after")
        return [row["run_id"] for row in rows]

    async def give_back(self, tenant_ids: Sequence[UUID], limit: int = 1000) -> list[GivenBack]:
        reach("give_back.before")
        rows = await self._database.fetch("give_back", list(tenant_ids), limit, MAX_LOSSES)
        reach("give_back.after")
        return [
            GivenBack(row["run_id"], row["tenant_id"], RunState(row["state"]) if row["state"] else None) for row in rows
        ]

    async def cancel_of_tasks(self, task_ids: Sequence[UUID]) -> list[UUID]:
        rows = await self._database.fetch("cancel_of_tasks", list(task_ids))
        return [row["run_id"] for row in rows]

    async def held(self, lease_id: UUID) -> list[Held]:
        rows = await self._database.fetch("held", lease_id)
        return [Held(row["run_id"], row["fence"], row["version"], row["age"]) for row in rows]

    async def recheck(self, lease_id: UUID, pairs: Sequence[tuple[UUID, int]]) -> list[Recheck]:
        rows = await self._database.fetch("recheck", *columns(pairs, 2), lease_id)
        return [Recheck(row["run_id"], row["current"], row["cancelled"]) for row in rows]

    async def count_held(self, tenant_ids: Sequence[UUID], lease_id: UUID) -> dict[UUID, int]:
        rows = await self._database.fetch("count_held", list(tenant_ids), lease_id)
        return {row["tenant_id"]: row["count"] for row in rows}


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        raise RowRefusedError(str(error)) from error


def pending_of(row: asyncpg.Record) -> Pending:
    due_at = instant(row["due_at"])
    assert due_at is not None
    return Pending(
        run_id=row["run_id"],
        fence=row["fence"],
        tenant_id=row["tenant_id"],
        task_id=row["task_id"],
        priority=Priority(row["priority"]),
        due_at=due_at,
        slot=row["slot"],
        last_slot=row["last_slot"],
        lane=row["lane"],
        kind=Kind(row["kind"]),
        plan_version=row["plan_version"],
        losses=row["losses"],
    )


def _begin_arguments(items: Sequence[BeginItem]) -> list[list[Any]]:
    """The arrays of `begin.sql`. What no item has is sent as an empty array, which `unnest` fills with null: most
    begins have no verdict but to run, and encoding their arguments is a good part of the work."""
    rows = [item.row for item in items]
    plants = [p for item in items for p in item.plants]
    if all(len(item.plants) == 1 for item in items):
        numbers, of_plants = [], rows
    else:
        numbers = [n for n, item in enumerate(items, 1) for _ in item.plants]
        of_plants = [item.row for item in items for _ in item.plants]
    skips = [(n, s.run_id, *_skip_values(s)) for n, item in enumerate(items, 1) for s in item.skips]
    verdicts = [(i.skip is not None, *_skip_values(i.skip)) for i in items] if any(i.skip for i in items) else []
    return [
        [row.run_id for row in rows],
        _usual([row.fence or None for row in rows]),
        _usual([item.exclusive or None for item in items]),
        *columns(verdicts, 7),
        numbers,
        [p.run_id for p in plants],
        _usual([None if p.kind is Kind.NEXT else p.kind for p in plants]),
        _usual([None if p.due_at == p.slot else _unix(p.due_at) for p in plants]),
        [None if p.slot is None else p.slot.timestamp() for p in plants],
        _usual([None if p.last_slot == row.slot else p.last_slot for p, row in zip(plants, of_plants, strict=True)]),
        *columns(skips, 8),
    ]


def _unix(due_at: datetime) -> float:
    """Exact to the microsecond until the year 2255."""
    return math.inf if due_at == PARKED else due_at.timestamp()


def _usual(values: list[Any]) -> list[Any]:
    """Nothing, where every value is null."""
    return values if values.count(None) < len(values) else []


def _skip_values(s: Skip | None) -> tuple[Any, ...]:
    if s is None:
        return (None,) * 6
    return (s.first_slot, s.until_slot, s.previous_slot, s.count, s.exact, s.reason)


def _completion_row(c: Completion) -> tuple[Any, ...]:
    return (
        c.run_id,
        c.fence,
        c.ended_at,
        c.outcome,
        c.sent,
        c.state,
        c.retry_at,
        c.started_at,
        c.http_status,
        c.reason,
        c.error,
        c.response,
        c.tenant_id,
        c.task_id,
        c.kind,
        c.slot,
        c.last_slot,
        c.due_at,
        c.losses,
    )
