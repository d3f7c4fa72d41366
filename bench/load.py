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
from tocsin.common.ids import Ids, lane_of
from tocsin.common.models import CallSpec, EverySchedule, Kind, PlanSpec
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
    name: str, ids: Ids, tenants: Sequence[uuid.UUID], rate: int, first: datetime, seconds: int, url: str
) -> Load:
    """Spreads `rate` tasks over the tenants in turn; `first` is a whole second. Each tenant has a path of its own."""
    plan = PlanSpec(
        schedule=EverySchedule(every_seconds=1, anchor=first),
        start=first,
        end=first + seconds * _SECOND,
        spread_seconds=1,
    )
    calls = [CallSpec(url=f"{url}{n}") for n in range(len(tenants))]
    tasks = [(ids.new(), tenants[n % len(tenants)]) for n in range(rate)]
    return Load(name, rate, first, seconds, tasks, plan, calls)


async def seed_tenants(store: Store, ids: Ids, count: int) -> list[uuid.UUID]:
    """Adds tenants with the default limits."""
    made = []
    for number in range(count):
        tenant_id = ids.new()
        await store.tenants.insert(Tenant(tenant_id, f"bench {number} {tenant_id}", 0, 1.0, 1000, None), [])
        made.append(tenant_id)
    return made


async def seed(connection: "asyncpg.Connection[asyncpg.Record]", ids: Ids, load: Load) -> None:
    """Puts the tasks in, each with its next row, in one transaction, and wakes their owners as the API does."""
    plan = load.plan.model_dump_json()
    calls = [call.model_dump_json() for call in load.calls]
    tasks: list[tuple[Any, ...]] = []
    rows: list[tuple[Any, ...]] = []
    for number, (task_id, tenant_id) in enumerate(load.tasks):
        tasks.append((task_id, tenant_id, f"{load.name} {number}", plan, calls[number % len(calls)]))
        due = due_at(load.plan, task_id, load.first)
        priority = int(load.plan.priority)
        rows.append((ids.new(), tenant_id, task_id, due, load.first, 1, priority, lane_of(task_id), Kind.NEXT.value))
    async with connection.transaction():
        await connection.copy_records_to_table(
            "tasks", records=tasks, columns=["id", "tenant_id", "name", "plan", "call"]
        )
        await connection.copy_records_to_table(
            "pending",
            records=rows,
            columns=["run_id", "tenant_id", "task_id", "due_at", "slot", "plan_version", "priority", "lane", "kind"],
        )
    queues = [(tenant_id, int(load.plan.priority)) for tenant_id in dict.fromkeys(t for _, t in load.tasks)]
    for start in range(0, len(queues), _WOKEN_AT_ONCE):
        payload = queue_payload(queues[start : start + _WOKEN_AT_ONCE])
        await connection.execute("select pg_notify($1, $2)", CHANNEL, payload)


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
    rows = await connection.fetch(
        "select h.run_id, h.task_id, h.slot, h.until_slot, h.state, h.sent"
        " from history h join tasks t on t.id = h.task_id where t.name like $1 || ' %' and h.slot is not null",
        load.name,
    )
    return [Recorded(*row) for row in rows]
