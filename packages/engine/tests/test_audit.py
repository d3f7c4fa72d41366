"""The audit of next rows: planted faults are alarmed on, what is right is not, and nothing is repaired."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from next_row_bench import DAY, HOUR, MemoryNextRowBench, NextRowBench, PostgresNextRowBench, insert
from tocsin.common.store.next_rows import NextRowCount, NextRowStore, SuspectPage, ZoneDataState, ZonedPage
from tocsin.common.store.postgres import database as postgres_database
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.rows import Task
from tocsin.common.telemetry.metrics import NEXT_ROW_FAULTS
from tocsin.common.time.schedule import next_slot
from tocsin.engine import audit as audit_module
from tocsin.engine.audit import AuditConfig, NextRowAudit

CLEAN = {"none": 0, "several": 0}
Check = Callable[[NextRowBench], Awaitable[None]]


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


async def audited(rows: NextRowBench, store: NextRowStore | None = None, **config: Any) -> dict[str, int]:
    counts = await NextRowAudit(store or rows.store.next_rows, rows.meter, AuditConfig(**config)).run_once()
    assert rows.meter.gauges[NEXT_ROW_FAULTS.name,] == sum(counts.values())
    return counts


async def lose(rows: NextRowBench, task: Task) -> None:
    await rows.take(await rows.next_row(task))


async def double(rows: NextRowBench, task: Task) -> None:
    row = await rows.next_row(task)
    await rows.put(replace(row, run_id=rows.ids.new()))


# --- faults ------------------------------------------------------------------------------------------------------


async def check_a_lost_next_row_is_a_fault(rows: NextRowBench) -> None:
    tasks = [await rows.a_task(), await rows.a_task(await rows.hourly()), await rows.a_task(await rows.once())]
    await rows.a_task()
    for task in tasks:
        await lose(rows, task)
    assert await audited(rows) == {"none": 3, "several": 0}
    assert [await rows.next_rows(task) for task in tasks] == [[], [], []], "it repairs nothing"


async def check_a_lost_instant_that_has_passed_is_a_fault(rows: NextRowBench) -> None:
    """Nothing is to come, and nothing has come of it either."""
    once = await rows.an_ended_task(schedule=await rows.once(-5))
    await rows.update_at(once.id, await rows.now() - HOUR)
    assert await audited(rows) == {"none": 1, "several": 0}


async def check_a_second_next_row_is_a_fault(rows: NextRowBench) -> None:
    active, paused = await rows.a_task(), await rows.a_task()
    await rows.tasks.pause(paused.tenant_id, paused.id)
    for task in (active, paused):
        await double(rows, task)
    assert await audited(rows) == {"none": 0, "several": 2}
    assert [len(await rows.next_rows(task)) for task in (active, paused)] == [2, 2]


async def check_a_waiting_run_is_no_next_row(rows: NextRowBench) -> None:
    with_one, without = await rows.a_task(), await rows.a_task()
    for task in (with_one, without):
        await rows.a_waiting_run(task)
    await lose(rows, without)
    assert await audited(rows) == {"none": 1, "several": 0}


async def check_a_task_that_cannot_be_read_and_has_none_is_a_fault(rows: NextRowBench) -> None:
    parked, lost = await rows.a_task(), await rows.a_task()
    for task in (parked, lost):
        await rows.spoil(task.id)
    await lose(rows, lost)
    assert await audited(rows) == {"none": 1, "several": 0}


# --- what is right -----------------------------------------------------------------------------------------------


async def check_what_is_right_is_no_fault(rows: NextRowBench) -> None:
    lease = await rows.a_lease("2026f")
    await rows.a_task()
    await rows.begin(await rows.a_task(await rows.hourly()), lease)
    paused = await rows.a_task()
    await rows.tasks.pause(paused.tenant_id, paused.id)
    edited = await rows.a_task()
    await rows.tasks.edit(edited.tenant_id, edited.id, lambda task, _now: replace(task, name="other"))
    assert await audited(rows) == CLEAN


async def check_a_schedule_that_has_ended_is_no_fault(rows: NextRowBench) -> None:
    """Its one run is running, then ended; or its last slot was skipped; or its history has aged out."""
    lease = await rows.a_lease("2026f")
    once, last, skipped = [await rows.a_task(await rows.once()) for _ in range(3)]
    for task in (once, last):
        run = await rows.begin(task, lease)
        if task is last:
            await rows.end(run, lease)
    await rows.tasks.skip_next(skipped.tenant_id, skipped.id)
    assert await audited(rows) == CLEAN


async def check_one_that_ended_long_ago_is_no_fault(rows: NextRowBench) -> None:
    now = await rows.now()
    ended = await rows.an_ended_task(schedule=await rows.once(-2 * DAY.total_seconds()))
    until = await rows.an_ended_task(schedule=await rows.hourly(), end=now - 2 * DAY)
    for task in (ended, until):
        await rows.update_at(task.id, now - 40 * DAY)
    assert await audited(rows) == CLEAN


async def check_slots_before_the_last_edit_are_not_missed(rows: NextRowBench) -> None:
    """An edit that leaves no slot: the new schedule's earlier ones were never this task's."""
    await rows.an_ended_task(schedule=await rows.hourly(), end=await rows.now() - HOUR)
    assert await audited(rows) == CLEAN


async def check_only_active_tasks_must_have_one(rows: NextRowBench) -> None:
    paused, deleted = await rows.a_task(), await rows.a_task()
    await rows.tasks.pause(paused.tenant_id, paused.id)
    await lose(rows, paused)
    await rows.tasks.delete(deleted.tenant_id, deleted.id)
    assert await audited(rows) == CLEAN


async def check_pages_are_bounded_and_all_are_read(rows: NextRowBench) -> None:
    tasks = [await rows.a_task() for _ in range(5)]
    await lose(rows, tasks[0])
    await lose(rows, tasks[4])
    await double(rows, tasks[2])
    counted = CountedNextRows(rows.store.next_rows)
    assert await audited(rows, counted, page=2) == {"none": 2, "several": 1}
    assert counted.limits == [2, 2, 2, 2]
    await double(rows, tasks[1])
    assert await audited(rows, page=1) == {"none": 2, "several": 2}


async def check_what_the_guide_says_ends_the_alarm(rows: NextRowBench) -> None:
    """docs/guides/operate.md: pause and resume; of several rows, those that the pause did not park go by hand."""
    lost, doubled = await rows.a_task(), await rows.a_task()
    await lose(rows, lost)
    await double(rows, doubled)
    assert await audited(rows) == {"none": 1, "several": 1}
    for task in (lost, doubled):
        await rows.tasks.pause(task.tenant_id, task.id)
    for row in await rows.next_rows(doubled):
        if row.slot is not None:
            await rows.take(row)
    for task in (lost, doubled):
        await rows.tasks.resume(task.tenant_id, task.id)
        assert (await rows.next_row(task)).slot is not None
    assert await audited(rows) == CLEAN


class CountedNextRows:
    """The port, with a hand between the first look and the second."""

    def __init__(self, store: NextRowStore, between: Callable[[], Awaitable[None]] | None = None) -> None:
        self._store = store
        self._between = between
        self.limits: list[int] = []

    async def suspects(self, after: UUID, limit: int) -> SuspectPage:
        self.limits.append(limit)
        assert len(self.limits) < 20, "it goes round in circles"
        return await self._store.suspects(after, limit)

    async def count(self, task_ids: Sequence[UUID]) -> list[NextRowCount]:
        if self._between is not None:
            await self._between()
        return await self._store.count(task_ids)

    async def zone_data(self) -> ZoneDataState:
        raise NotImplementedError

    async def note_zone_data(self, seen: ZoneDataState, release: str, through: UUID | None) -> bool:
        raise NotImplementedError

    async def zoned(self, after: UUID, limit: int) -> ZonedPage:
        raise NotImplementedError


async def check_a_fault_that_is_gone_at_the_second_look_is_none(rows: NextRowBench) -> None:
    none, two, gone, deleted = [await rows.a_task() for _ in range(4)]
    lost = await rows.next_row(none)
    await rows.take(lost)
    second = replace(await rows.next_row(two), run_id=rows.ids.new())
    await rows.put(second)
    await lose(rows, gone)
    await double(rows, deleted)
    await rows.put(replace((await rows.next_rows(deleted))[0], run_id=rows.ids.new()))

    async def between() -> None:
        await rows.put(lost)
        await rows.take(second)
        for task in (gone, deleted):
            await rows.tasks.delete(task.tenant_id, task.id)

    assert await audited(rows, CountedNextRows(rows.store.next_rows, between)) == CLEAN


CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}


@pytest.mark.parametrize("check", CHECKS)
async def test_audit(rows: NextRowBench, check: str) -> None:
    await CHECKS[check](rows)


async def test_a_task_that_cannot_be_planned_and_has_none_is_a_fault(
    memory: MemoryNextRowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object) -> None:
        raise OverflowError("planning failed")

    await lose(memory, await memory.a_task())
    monkeypatch.setattr(audit_module, "next_slot", fails)
    assert await audited(memory) == {"none": 1, "several": 0}


async def test_the_alarm_names_tasks_up_to_a_bound(
    memory: MemoryNextRowBench, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [await memory.a_task() for _ in range(4)]
    for task in tasks[:3]:
        await lose(memory, task)
    await double(memory, tasks[3])
    await audited(memory, named=2)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "ERROR",
            f"audit: 3 tasks have no next row, though their schedule goes on: {tasks[0].id}, {tasks[1].id}, ...",
        ),
        ("ERROR", f"audit: 1 tasks have more than one next row: {tasks[3].id}"),
    ]
    caplog.clear()
    for task in tasks:
        await memory.tasks.delete(task.tenant_id, task.id)
    await audited(memory)
    assert caplog.records == [], "the gauge is back at 0, and nothing is said"


async def test_a_begin_under_way_is_no_fault(postgres: PostgresNextRowBench) -> None:
    """While its row is taken and its successor is not yet to be seen, at its commit, and after."""
    task = await postgres.a_task(await postgres.hourly())
    row = await postgres.next_row(task)
    (plant,) = postgres.begin_item(task, row).plants
    successor = replace(row, run_id=plant.run_id, slot=plant.slot, due_at=plant.due_at, last_slot=plant.last_slot)
    other = await asyncpg.connect(postgres.url)
    try:
        async with other.transaction():
            await other.execute("delete from pending where run_id = $1", row.run_id)
            assert await audited(postgres) == CLEAN
            await insert(other, successor)
            auditing = asyncio.create_task(audited(postgres))
        assert await auditing == CLEAN
    finally:
        await other.close()
    assert await audited(postgres) == CLEAN
    assert await postgres.next_row(task) == successor


# --- broken twins ------------------------------------------------------------------------------------------------

STATEMENTS = (
    ("next_row_suspects", "when n.next_rows > 1 then true", "", "a_second_next_row_is_a_fault"),
    ("next_row_suspects", " and q.kind = 'next'", "", "a_waiting_run_is_no_next_row"),
    (
        "next_row_suspects",
        "where id > $1 order",
        "where $1::uuid is not null order",
        "pages_are_bounded_and_all_are_read",
    ),
    (
        "next_row_suspects",
        " or id = (select id from page order by id desc limit 1)",
        "",
        "pages_are_bounded_and_all_are_read",
    ),
    ("next_row_count", " and q.kind = 'next'", "", "a_waiting_run_is_no_next_row"),
    ("next_row_count", " and t.state <> 'deleted'", "", "a_fault_that_is_gone_at_the_second_look_is_none"),
    (
        "next_row_count",
        "(select max(r.slot) from running r where r.task_id = t.id)",
        "null",
        "a_schedule_that_has_ended_is_no_fault",
    ),
    (
        "next_row_count",
        "(select max(greatest(h.slot, h.until_slot)) from history h where h.task_id = t.id)",
        "null",
        "a_schedule_that_has_ended_is_no_fault",
    ),
)


@pytest.mark.parametrize(("statement", "guard", "instead", "check"), STATEMENTS)
async def test_a_statement_without_its_guard_is_caught(
    postgres: PostgresNextRowBench,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    guard: str,
    instead: str,
    check: str,
) -> None:
    text = query(statement)
    assert guard in text
    broken = text.replace(guard, instead)
    await postgres.admin.prepare(broken)
    monkeypatch.setattr(postgres_database, "query", lambda name: broken if name == statement else query(name))
    with pytest.raises(AssertionError):
        await CHECKS[check](postgres)


class OneLook(CountedNextRows):
    """The twin that believes its first look."""

    async def count(self, task_ids: Sequence[UUID]) -> list[NextRowCount]:
        counts = await self._store.count(task_ids)
        if self._between is not None:
            await self._between()
        return counts


async def test_an_audit_that_looks_once_is_caught(memory: MemoryNextRowBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "CountedNextRows", OneLook)
    with pytest.raises(AssertionError):
        await check_a_fault_that_is_gone_at_the_second_look_is_none(memory)


TWINS: dict[str, tuple[Callable[[NextRowCount], bool], tuple[str, ...]]] = {
    "none is never a fault": (lambda _count: False, ("a_lost_next_row_is_a_fault",)),
    "none is always a fault": (
        lambda count: not count.next_rows,
        (
            "a_schedule_that_has_ended_is_no_fault",
            "slots_before_the_last_edit_are_not_missed",
        ),
    ),
    "only what is to come counts": (
        lambda count: count.task is not None and next_slot(count.task.plan, count.now) is not None,
        ("a_lost_instant_that_has_passed_is_a_fault", "a_task_that_cannot_be_read_and_has_none_is_a_fault"),
    ),
}


@pytest.mark.parametrize(("twin", "check"), [(twin, check) for twin in TWINS for check in TWINS[twin][1]])
async def test_a_broken_twin_is_caught(
    memory: MemoryNextRowBench, monkeypatch: pytest.MonkeyPatch, twin: str, check: str
) -> None:
    monkeypatch.setattr(audit_module, "lacks_next_row", TWINS[twin][0])
    with pytest.raises(AssertionError):
        await CHECKS[check](memory)
