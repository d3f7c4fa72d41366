"""What a write plants bears the store's time in its id, whatever the clock of the process shows that made it."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tocsin.common.clock import ManualClock
from tocsin.common.ids import Ids, planted_at
from tocsin.common.models import CallSpec, EverySchedule, PlanSpec
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.rows import Task
from tocsin.common.store.tenants import Tenant
from tocsin.common.tasks import NewTask, Tasks

NOW = datetime(2026, 3, 10, 12, 0, 0, 123_000, tzinfo=UTC)
SECONDS = 60


class ByTheClock(Ids):
    """Broken: goes by the process's clock alone."""

    def new(self, at: datetime | None = None) -> UUID:
        return super().new()


async def off_by(hours: int, make: Callable[[ManualClock, random.Random], Ids] = Ids) -> timedelta:
    """How far the instants in ids of runs and skips are from the store's, by a process whose clock is wrong."""
    store_clock, own_clock = ManualClock(NOW), ManualClock(NOW + timedelta(hours=hours))
    database = MemoryDatabase(store_clock)
    store = MemoryStore(database)
    tasks = Tasks(store.tasks, make(own_clock, random.Random(1)), lambda _tenant, _priority: None)
    tenant = Tenant(UUID(int=1), "tenant", 0, 1.0, 100, None)
    await store.tenants.insert(tenant, ["secret"])
    schedule = EverySchedule(every_seconds=SECONDS, anchor=NOW.replace(microsecond=0))
    plan = PlanSpec(schedule=schedule)
    new = NewTask("task", lambda _now: plan, CallSpec(url="https://example.com/hook"), None)
    seen: set[UUID] = set()
    worst = timedelta(0)

    def look() -> None:
        nonlocal worst
        here = {row.run_id for row in database.pending.of_task(task_id)}
        here |= {row.run_id for row in database.history.values()}
        for run_id in here - seen:
            worst = max(worst, abs(planted_at(run_id) - store_clock.now()))
        seen.update(here)
        store_clock.advance(1.5 * SECONDS)
        own_clock.advance(1.5 * SECONDS)

    def spread(old: Task, _now: datetime) -> Task:
        return replace(old, plan=plan.model_copy(update={"spread_seconds": 5}))

    task_id = (await tasks.create(tenant.id, new)).task_id
    look()
    await tasks.run_now(tenant.id, task_id)
    look()
    await tasks.skip_next(tenant.id, task_id)
    look()
    await tasks.edit(tenant.id, task_id, spread)
    look()
    await tasks.pause(tenant.id, task_id)
    look()
    await tasks.resume(tenant.id, task_id)
    look()
    await tasks.delete(tenant.id, task_id)
    look()
    assert len(seen) >= 7
    return worst


@pytest.mark.parametrize("hours", [-1, 1])
async def test_ids_say_the_stores_time(hours: int) -> None:
    assert await off_by(hours) < timedelta(milliseconds=2)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_ids_by_the_clock_of_the_process_are_caught(hours: int) -> None:
    assert await off_by(hours, ByTheClock) > timedelta(minutes=59)
