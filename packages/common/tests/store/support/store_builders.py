"""Tenants, tasks, leases and rows for the store's tests."""

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from store_bench import Bench
from tocsin.common.ids import lane_of
from tocsin.common.models import CallSpec, EverySchedule, Kind, OnLeaseLost, PlanSpec
from tocsin.common.states import RunState
from tocsin.common.store.ports import Store, TaskTransaction
from tocsin.common.store.rows import BeginItem, Begun, Completion, Outcome, Pending, Plant, Skip, SkipReason, Task
from tocsin.common.store.tenants import Process, Tenant
from tocsin.common.tasks import NewTask
from tocsin.common.time.schedule import count_slots, latest_slot, next_slot

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
CALL = CallSpec(url="https://example.com/hook")
CALL_DEAD_WHEN_LOST = CallSpec(url="https://example.com/hook", on_lease_lost=OnLeaseLost.DEAD)

_numbers = itertools.count(1)


def hourly(**changes: Any) -> Callable[[datetime], PlanSpec]:
    """Every hour, the first slot half an hour from now: no test stands near a slot."""

    def plan(now: datetime) -> PlanSpec:
        anchor = (now + HOUR / 2).replace(microsecond=0)
        return PlanSpec(schedule=EverySchedule(every_seconds=3600, anchor=anchor), **changes)

    return plan


async def a_tenant(bench: Bench) -> UUID:
    tenant = Tenant(bench.ids.new(), f"tenant {next(_numbers)}", 0, 1.0, 100, None)
    await bench.store.tenants.insert(tenant, ["secret"])
    return tenant.id


async def a_task(
    bench: Bench,
    tenant_id: UUID | None = None,
    plan: Callable[[datetime], PlanSpec] | None = None,
    call: CallSpec = CALL,
) -> Task:
    tenant_id = tenant_id or await a_tenant(bench)
    created = await bench.tasks.create(tenant_id, NewTask("task", plan or hourly(), call, b"body"))
    return await the_task(bench, created.task_id)


async def the_task(bench: Bench, task_id: UUID) -> Task:
    (task,), _ = await bench.store.tasks.definitions([task_id])
    return task


async def a_lease(
    bench: Bench, *, cell: str = "shared", ttl: float = 10.0, boot: str = "boot", generation: int = 0
) -> UUID:
    lease_id = bench.ids.new()
    process = Process("node", boot, "pid:1", next(_numbers), 1.0)
    await bench.store.leases.register(lease_id, cell, generation, process, "2026a", ttl)
    return lease_id


def waiting(bench: Bench, task: Task, due_at: datetime, *, kind: Kind = Kind.NOW, fence: int = 0) -> Pending:
    return Pending(
        run_id=bench.ids.new(),
        fence=fence,
        tenant_id=task.tenant_id,
        task_id=task.id,
        priority=task.plan.priority,
        due_at=due_at,
        slot=None,
        last_slot=None,
        lane=lane_of(task.id),
        kind=kind,
        plan_version=task.plan_version,
    )


def successor(bench: Bench, row: Pending) -> Plant:
    assert row.slot is not None
    slot = row.slot + HOUR
    return Plant(bench.ids.new(), Kind.NEXT, slot, slot, row.slot)


def plain(bench: Bench, row: Pending, **changes: Any) -> BeginItem:
    """Begin a row; a next row with the slot an hour later as its successor."""
    plants = (successor(bench, row),) if row.kind is Kind.NEXT and "plants" not in changes else ()
    return BeginItem(row, **{"plants": plants, **changes})


def planned(bench: Bench, task: Task, row: Pending, now: datetime) -> BeginItem:
    """Begin a row as an owner would: what is missed up to now is one skip, the first slot after now its successor."""
    if row.kind is not Kind.NEXT or row.slot is None:
        return BeginItem(row)
    last = row.slot
    skips: tuple[Skip, ...] = ()
    until = latest_slot(task.plan, now)
    if until is not None and until > row.slot:
        count = count_slots(task.plan, row.slot, until)
        skips = (
            Skip(
                bench.ids.new(),
                next_slot(task.plan, row.slot),
                until,
                row.slot,
                count.count,
                count.exact,
                SkipReason.MISFIRE,
            ),
        )
        last = until
    slot = next_slot(task.plan, last)
    plants = (Plant(bench.ids.new(), Kind.NEXT, slot, slot, last),) if slot is not None else ()
    return BeginItem(row, plants=plants, skips=skips)


async def begin_one(bench: Bench, lease_id: UUID, row: Pending, **changes: Any) -> Begun:
    result = await bench.store.runs.begin(lease_id, [plain(bench, row, **changes)])
    (run,) = result.begun
    return run


async def a_run(bench: Bench, lease_id: UUID, *, call: CallSpec = CALL, tenant_id: UUID | None = None) -> Begun:
    """A run of a new task, begun from its next row."""
    task = await a_task(bench, tenant_id, call=call)
    return await begin_one(bench, lease_id, await bench.next_row(task.id))


async def ended(
    bench: Bench,
    run: Begun,
    state: RunState | None = RunState.SUCCEEDED,
    *,
    outcome: Outcome = Outcome.SUCCESS,
    retry_in: float = 60.0,
    **changes: Any,
) -> Completion:
    """A result of a run that ended now."""
    now = await bench.now()
    values: dict[str, Any] = {
        "run_id": run.run_id,
        "fence": run.fence,
        "ended_at": now,
        "outcome": outcome,
        "sent": True,
        "state": state,
        "tenant_id": run.tenant_id,
        "task_id": run.task_id,
        "kind": run.kind,
        "slot": run.slot,
        "last_slot": run.last_slot,
        "due_at": run.due_at,
        "losses": run.losses,
        "retry_at": now + timedelta(seconds=retry_in) if state is None else None,
        "started_at": now - SECOND,
        "http_status": 200,
    }
    return Completion(**{**values, **changes})


async def cancel_mark(bench: Bench, run: Begun) -> None:
    assert await bench.tasks.cancel(run.tenant_id, run.run_id) is RunState.RUNNING


async def fail_once(bench: Bench, lease_id: UUID, run: Begun, retry_in: float = 60.0) -> Pending:
    """The run fails and is due again; the row by which it waits."""
    completion = await ended(bench, run, None, outcome=Outcome.HTTP_ERROR, retry_in=retry_in)
    await bench.store.runs.complete(lease_id, [completion])
    (row,) = [row for row in await bench.pending(run.task_id) if row.run_id == run.run_id]
    return row


def pairs(runs: Sequence[Begun]) -> list[tuple[UUID, int]]:
    return [(run.run_id, run.fence) for run in runs]


class RollbackError(Exception):
    """Ends a write without effect."""


@asynccontextmanager
async def rolled_back(store: Store) -> AsyncIterator[TaskTransaction]:
    """A write that takes nothing into the store."""
    with suppress(RollbackError):
        async with store.tasks.write() as tx:
            yield tx
            raise RollbackError
