"""The load: interval tasks of many tenants, each due once a second, put into the database in bulk.

Only the seeding goes past the API; the runs go the product's way. A slot is a whole second, and one second
of spread gives each task its own offset, so what is due is uniform over the second.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from bench.ledger import Recorded, SlotKey
from tocsin.cli.tenants import MAX_IN_FLIGHT
from tocsin.common.ids import Ids, lane_of
from tocsin.common.models import CallSpec, EverySchedule, Kind, PlanSpec, RetrySpec
from tocsin.common.store.ports import Store
from tocsin.common.store.postgres.wakeups import CHANNEL, queue_payload
from tocsin.common.store.tenants import Tenant
from tocsin.common.time.schedule import due_at

_SECOND = timedelta(seconds=1)
_WOKEN_AT_ONCE = 100
"""Queues in one NOTIFY, whose payload is limited to 8,000 bytes."""


@dataclass(frozen=True, slots=True)
class Load:
    """`rate` tasks with a slot in each of `seconds` seconds from `first` on; then they end."""

    name: str
    rate: int
    first: datetime
    seconds: int
    tasks: Sequence[tuple[uuid.UUID, uuid.UUID]]
    """(task, tenant)."""
    plan: PlanSpec
    calls: Sequence[CallSpec]

    @property
    def runs(self) -> int:
        return self.rate * self.seconds

    @property
    def end(self) -> datetime:
        return self.first + self.seconds * _SECOND

    def expected(self) -> dict[SlotKey, float]:
        """Every slot, with its due instant in Unix seconds."""
        slots = [(self.first + n * _SECOND) for n in range(self.seconds)]
        due: dict[SlotKey, float] = {}
        for task_id, _ in self.tasks:
            offset = (due_at(self.plan, task_id, self.first) - self.first).total_seconds()
            due.update({(task_id, slot): slot.timestamp() + offset for slot in slots})
        return due


def make_load(
    name: str,
    ids: Ids,
    tenants: Sequence[uuid.UUID],
    rate: int,
    first: datetime,
    seconds: int,
    url: str,
    timeout: float = 30.0,
    retry: RetrySpec = RetrySpec(),  # noqa: B008 - frozen
) -> Load:
    """Spreads `rate` tasks over the tenants in turn; `first` is a whole second. Each tenant has a path of its own.

    `timeout` (seconds) and `retry` are those of every call.
    """
    plan = PlanSpec(
        schedule=EverySchedule(every_seconds=1, anchor=first),
        start=first,
        end=first + seconds * _SECOND,
        spread_seconds=1,
    )
    calls = [CallSpec(url=f"{url}{n}", timeout_seconds=timeout, retry=retry) for n in range(len(tenants))]
    tasks = [(ids.new(), tenants[n % len(tenants)]) for n in range(rate)]
    return Load(name, rate, first, seconds, tasks, plan, calls)


async def seed_tenants(store: Store, ids: Ids, count: int) -> list[uuid.UUID]:
    """Adds tenants with the default limits."""
    made = []
    for number in range(count):
        tenant_id = ids.new()
        await store.tenants.insert(Tenant(tenant_id, f"bench {number} {tenant_id}", 0, 1.0, MAX_IN_FLIGHT, None), [])
        made.append(tenant_id)
    return made


@dataclass(frozen=True, slots=True)
class Planned:
    """A task to be seeded, with the slot of its next row."""

    task_id: uuid.UUID
    tenant_id: uuid.UUID
    plan: PlanSpec
    call: CallSpec
    slot: datetime


async def seed(connection: "asyncpg.Connection[asyncpg.Record]", ids: Ids, load: Load) -> None:
    """Puts the load's tasks in."""
    calls = load.calls
    tasks = [
        Planned(task_id, tenant_id, load.plan, calls[number % len(calls)], load.first)
        for number, (task_id, tenant_id) in enumerate(load.tasks)
    ]
    await seed_tasks(connection, ids, load.name, tasks)


async def seed_tasks(
    connection: "asyncpg.Connection[asyncpg.Record]", ids: Ids, name: str, planned: Sequence[Planned]
) -> None:
    """Puts the tasks in, each with its next row, in one transaction, and wakes their owners as the API does.

    `name` and a number are the tasks' names.
    """
    texts: dict[int, str] = {}  # of plans and calls, which many tasks share
    tasks: list[tuple[Any, ...]] = []
    rows: list[tuple[Any, ...]] = []
    for number, task in enumerate(planned):
        plan, call = (
            texts.get(id(part)) or texts.setdefault(id(part), part.model_dump_json()) for part in _parts(task)
        )
        tasks.append((task.task_id, task.tenant_id, f"{name} {number}", plan, call))
        due = due_at(task.plan, task.task_id, task.slot)
        place = int(task.plan.priority), lane_of(task.task_id)
        rows.append((ids.new(), task.tenant_id, task.task_id, due, task.slot, 1, *place, Kind.NEXT.value))
    async with connection.transaction():
        await connection.copy_records_to_table(
            "tasks", records=tasks, columns=["id", "tenant_id", "name", "plan", "call"]
        )
        await connection.copy_records_to_table(
            "pending",
            records=rows,
            columns=["run_id", "tenant_id", "task_id", "due_at", "slot", "plan_version", "priority", "lane", "kind"],
        )
    queues = list(dict.fromkeys((task.tenant_id, int(task.plan.priority)) for task in planned))
    for start in range(0, len(queues), _WOKEN_AT_ONCE):
        payload = queue_payload(queues[start : start + _WOKEN_AT_ONCE])
        await connection.execute("select pg_notify($1, $2)", CHANNEL, payload)


def _parts(task: Planned) -> tuple[PlanSpec, CallSpec]:
    return task.plan, task.call


async def is_over(connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
    """Whether nothing is running any more, nor pending but for tasks that are idle for an hour or longer."""
    return bool(
        await connection.fetchval(
            "select not exists (select from pending where due_at < now() + interval '1 hour')"
            " and not exists (select from running)"
        )
    )


async def recorded(connection: "asyncpg.Connection[asyncpg.Record]", load: Load) -> list[Recorded]:
    """What history has of the load's tasks."""
    return await recorded_by_name(connection, load.name)


async def recorded_by_name(connection: "asyncpg.Connection[asyncpg.Record]", name: str) -> list[Recorded]:
    """What history has of the tasks that were seeded by this name."""
    rows = await connection.fetch(
        "select h.run_id, h.task_id, h.slot, h.until_slot, h.state, h.sent"
        " from history h join tasks t on t.id = h.task_id where t.name like $1 || ' %' and h.slot is not null",
        name,
    )
    return [Recorded(*row) for row in rows]
