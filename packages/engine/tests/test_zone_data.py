"""The zone data upgrade (case B21), over rows as an older release would have planned them, an hour off."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine_bench import EngineBench
from next_row_bench import DAY, HOUR, SECOND, MemoryNextRowBench, NextRowBench, PostgresNextRowBench, insert
from tocsin.common import tasks as tasks_module
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.models import CronSchedule, Kind, TaskState
from tocsin.common.store.memory.tasks import MemoryTaskTransaction
from tocsin.common.store.next_rows import NextRowStore, SuspectPage, ZoneDataState, ZonedPage
from tocsin.common.store.postgres import database as postgres_database
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.postgres.tasks import PostgresTaskTransaction
from tocsin.common.store.rows import Task
from tocsin.common.tasks import Tasks
from tocsin.common.time.schedule import next_slot
from tocsin.common.time.zones import zone
from tocsin.engine import zone_data as zone_data_module
from tocsin.engine.zone_data import ZoneDataConfig, ZoneDataUpgrade
from zone_data_checks import _CAUGHT, BLOCKED, CHECKS, NEW, OLD, planned_by, replanted, upgrade


@pytest.fixture
async def memory() -> MemoryNextRowBench:
    return MemoryNextRowBench()


@pytest.fixture
async def postgres(database_url: str) -> AsyncIterator[PostgresNextRowBench]:
    made = PostgresNextRowBench(database_url)
    await made.open()
    yield made
    await made.close()


@pytest.fixture(params=["memory", "postgres"])
def rows(request: pytest.FixtureRequest) -> NextRowBench:
    made = request.getfixturevalue(request.param)
    assert isinstance(made, NextRowBench)
    return made


@pytest.mark.parametrize("check", CHECKS)
async def test_zone_data(rows: NextRowBench, check: str) -> None:
    await CHECKS[check](rows)


class CrashedNextRows:
    """The port, but for the first note of progress: the process dies before it."""

    def __init__(self, store: NextRowStore) -> None:
        self._store = store
        self._crashed = False

    async def zone_data(self) -> ZoneDataState:
        return await self._store.zone_data()

    async def note_zone_data(self, seen: ZoneDataState, release: str, through: UUID | None) -> bool:
        if not self._crashed:
            self._crashed = True
            raise StoreUnavailableError("it died")
        return await self._store.note_zone_data(seen, release, through)

    async def zoned(self, after: UUID, limit: int) -> ZonedPage:
        return await self._store.zoned(after, limit)

    async def suspects(self, after: UUID, limit: int) -> SuspectPage:
        raise NotImplementedError

    async def count(self, task_ids: object) -> Any:
        raise NotImplementedError


async def test_a_crash_before_the_note_costs_one_page_twice(rows: NextRowBench) -> None:
    await planned_by(rows)
    task = await rows.a_task()
    await rows.age(task)
    service = ZoneDataUpgrade(CrashedNextRows(rows.store.next_rows), rows.tasks, ZoneDataConfig(NEW))
    with pytest.raises(StoreUnavailableError):
        await service.run_once()
    replanted = await rows.next_row(task)
    assert await service.run_once() == {"looked_at": 1, "replanted": 0, "failed": 0}
    assert await rows.next_row(task) == replanted
    assert (await rows.the_task(task.id)).plan_version == replanted.plan_version == 2


async def test_one_that_cannot_be_planned_hinders_no_other(
    memory: MemoryNextRowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await memory.a_task(), await memory.a_task()
    await memory.age(second)
    stands = tasks_module.stands

    def sometimes(task: Task, *args: Any) -> bool:
        if task.id == first.id:
            raise OverflowError("planning failed")
        return stands(task, *args)

    monkeypatch.setattr(zone_data_module, "stands", sometimes)
    assert await upgrade(memory).run_once() == {"looked_at": 2, "replanted": 1, "failed": 1}


async def test_counts_are_logged(memory: MemoryNextRowBench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for _ in range(3):
        await memory.age(await memory.a_task())
    service = upgrade(memory, page=2)
    await service.run_once()
    await service.run_once()
    assert "of 3 tasks looked at, 3 were replanted and 0 failed" in caplog.text
    caplog.clear()
    await memory.a_lease(OLD)
    await service.run_once()
    await service.run_once()
    assert [record.getMessage() for record in caplog.records] == [
        "zone data: this process has 2026f, live leases report 2025b too; next rows are planned anew once all agree"
    ]


# --- beside the path ---------------------------------------------------------------------------------------------


async def meet_a_begin(rows: PostgresNextRowBench) -> None:
    """A begin under way has taken the row; when it commits, its successor is what stands."""
    await planned_by(rows)
    task = await rows.a_task()
    aged = await rows.age(task, -1)
    other = await asyncpg.connect(rows.url)
    try:
        async with other.transaction():
            item = rows.begin_item(task, aged)
            await other.execute("delete from pending where run_id = $1", aged.run_id)
            (plant,) = item.plants
            planted = replace(
                aged, run_id=plant.run_id, slot=plant.slot, due_at=plant.due_at, last_slot=plant.last_slot
            )
            await insert(other, planted)
            replanting = asyncio.create_task(upgrade(rows).run_once())
            while not await rows.admin.fetchval(BLOCKED):
                assert not replanting.done(), "it should have waited for the begin"
        counts = await replanting
    finally:
        await other.close()
    assert await rows.next_rows(task) == [planted]
    assert counts == {"looked_at": 1, "replanted": 0, "failed": 0}
    assert (await rows.the_task(task.id)).plan_version == 1


async def test_a_row_that_is_being_begun_is_left_to_its_owner(postgres: PostgresNextRowBench) -> None:
    await meet_a_begin(postgres)


async def test_a_replant_that_ignores_the_deletes_count_is_caught(
    postgres: PostgresNextRowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = PostgresTaskTransaction.delete_next

    async def careless(self: PostgresTaskTransaction, run_id: UUID) -> bool:
        await delete(self, run_id)
        return True

    monkeypatch.setattr(PostgresTaskTransaction, "delete_next", careless)
    with pytest.raises(AssertionError):
        await meet_a_begin(postgres)


async def replanted_under_an_owner(bench: EngineBench) -> None:
    """An owner that knows the old row and has the definition begins the new one, and plans on."""
    start = bench.clock.now()
    local = (start + HOUR).astimezone(zone("Asia/Kolkata"))
    schedule = CronSchedule(cron=f"{local.minute} {local.hour} * * *", zone="Asia/Kolkata")
    task = await bench.a_task(schedule=schedule)
    right = bench.next_row(task)
    assert right.slot is not None
    bench.database.pending.remove(right.run_id)
    bench.put(task, start + SECOND, run_id=right.run_id, slot=start + SECOND, last_slot=None, kind=Kind.NEXT)
    await bench.first.own()
    await bench.first.read()
    service = ZoneDataUpgrade(bench.store.next_rows, bench.tasks, ZoneDataConfig("2026a"))
    assert await replanted(service) == 1
    await bench.advance(2)
    assert await bench.go() == [], "the old row is gone"
    await bench.advance((right.slot - bench.clock.now()).total_seconds())
    (run,) = await bench.go()
    assert run.slot == right.slot
    assert bench.next_row(task).slot == right.slot + DAY
    assert bench.database.tasks[task.id].state is TaskState.ACTIVE


async def test_an_owner_goes_on_from_the_replanted_row(bench: EngineBench) -> None:
    await replanted_under_an_owner(bench)


async def test_a_row_of_another_plan_version_than_its_task_is_caught(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_written(_self: MemoryTaskTransaction, task: Task) -> Task:
        return task

    monkeypatch.setattr(MemoryTaskTransaction, "update", not_written)
    with pytest.raises(AssertionError):
        await replanted_under_an_owner(bench)


# --- broken twins ------------------------------------------------------------------------------------------------

STATEMENTS = (
    ("zoned_page", "t.state = 'active' and", "other_rows_are_left_alone"),
    ("zoned_page", "t.plan -> 'schedule' ->> 'zone' <> 'UTC' and", "other_rows_are_left_alone"),
    ("zoned_page", "and p.kind = 'next'", "rows_an_hour_off_are_corrected"),
    ("zoned_page", " and t.id > $1", "a_round_is_one_page_and_another_process_goes_on"),
    ("zone_data_get", "where expired_at is null", "it_waits_for_every_live_lease"),
    ("zone_data_set", "release = $3 and", "a_stale_supervisor_overwrites_nothing"),
)


@pytest.mark.parametrize(("statement", "guard", "check"), STATEMENTS)
async def test_a_statement_without_its_guard_is_caught(
    postgres: PostgresNextRowBench, monkeypatch: pytest.MonkeyPatch, statement: str, guard: str, check: str
) -> None:
    text = query(statement)
    assert guard in text
    parameter = next((part for part in ("$1", "$3") if part in guard), None)
    typed = {"$1": " and $1::uuid is not null", "$3": "$3::text is not null and"}
    broken = text.replace(guard, typed[parameter] if parameter else "")
    monkeypatch.setattr(postgres_database, "query", lambda name: broken if name == statement else query(name))
    with pytest.raises(_CAUGHT):
        await CHECKS[check](postgres)


async def never_waits(_self: ZoneDataUpgrade, _state: ZoneDataState, _others: frozenset[str]) -> None:
    """The twin that forgets nothing of what was done when another release turns up."""


def always_anew(*_args: object) -> bool:
    return False


def fired_is_forgotten(
    plan: Any, _slot: datetime | None, last_slot: datetime | None, _since: datetime, now: datetime
) -> datetime | None:
    return next_slot(plan, now if last_slot is None else max(now, last_slot))


TWINS: dict[str, tuple[object, str, object, str]] = {
    "the record is not voided": (
        ZoneDataUpgrade,
        "_wait",
        never_waits,
        "what_an_older_executor_planned_meanwhile_is_looked_at_again",
    ),
    "rows that stand are replaced": (tasks_module, "stands", always_anew, "other_rows_are_left_alone"),
    "by the plain rule": (tasks_module, "slot_by_new_rules", fired_is_forgotten, "what_has_fired_is_not_fired_again"),
    "late is lost": (
        tasks_module,
        "slot_by_new_rules",
        fired_is_forgotten,
        "what_the_new_rules_say_has_passed_is_late_not_lost",
    ),
}


@pytest.mark.parametrize("twin", TWINS)
async def test_a_broken_twin_is_caught(memory: MemoryNextRowBench, monkeypatch: pytest.MonkeyPatch, twin: str) -> None:
    where, name, instead, check = TWINS[twin]
    monkeypatch.setattr(where, name, instead)
    if name == "stands":
        monkeypatch.setattr(zone_data_module, name, instead)
    with pytest.raises(_CAUGHT):
        await CHECKS[check](memory)


async def test_a_replant_that_keeps_the_plan_version_is_caught(
    memory: MemoryNextRowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    replant = Tasks.replant

    async def keeps(self: Tasks, tenant_id: UUID, task_id: UUID) -> bool:
        before = memory.database.tasks[task_id]
        done = await replant(self, tenant_id, task_id)
        memory.database.tasks[task_id] = before
        return done

    monkeypatch.setattr(Tasks, "replant", keeps)
    with pytest.raises(AssertionError):
        await CHECKS["rows_an_hour_off_are_corrected"](memory)
