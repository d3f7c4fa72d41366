"""The planner: which definition a row is planned from, and one faulty task that stops nobody else."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from engine_bench import SECOND, EngineBench
from tocsin.common.clock import PARKED
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.models import Kind, Overlap, TaskState
from tocsin.common.store.rows import BeginItem, Pending, SkipReason, Task
from tocsin.engine import planner as module
from tocsin.engine.plan import plan_run
from tocsin.engine.planner import Planner


def break_planning_of(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an expression that was valid could not be computed any more."""

    def broken(row: Pending, of: Task, *args: Any, **how: Any) -> BeginItem:
        if of.id == task.id:
            raise OverflowError("no such instant")
        return plan_run(row, of, *args, **how)

    monkeypatch.setattr(module, "plan_run", broken)


async def test_one_task_whose_planning_raises_runs_and_is_faulty_and_others_go_on(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = await bench.a_tenant()
    bad, good = [await bench.a_task(tenant, schedule=bench.every(60)) for _ in range(2)]
    break_planning_of(bad, monkeypatch)
    await bench.advance(60)
    begun = await bench.go()
    assert {run.task_id for run in begun} == {bad.id, good.id}
    assert bench.database.tasks[bad.id].state is TaskState.FAULTY
    assert "no such instant" in (bench.database.tasks[bad.id].fault or "")
    assert bench.database.tasks[good.id].state is TaskState.ACTIVE
    parked = bench.next_row(bad)
    assert (parked.due_at, parked.slot) == (PARKED, None)
    assert parked.last_slot == begun[0].slot
    assert bench.next_row(good).slot is not None


async def test_a_fault_is_recorded_before_the_begin_that_parks_the_task(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies between the two must not leave an active task that never runs again."""
    task = await bench.a_task(schedule=bench.every(60))
    break_planning_of(task, monkeypatch)
    seen: list[TaskState] = []

    async def look() -> None:
        seen.append(bench.database.tasks[task.id].state)

    bench.runs.before_begin = look
    await bench.advance(60)
    await bench.go()
    assert seen == [TaskState.FAULTY]


async def test_a_fault_that_the_store_did_not_take_is_told_again(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await bench.a_task(schedule=bench.every(60))
    break_planning_of(task, monkeypatch)
    await bench.advance(60)
    await bench.first.own()
    await bench.first.read()
    bench.database.unavailable = True
    with pytest.raises(StoreUnavailableError):
        await bench.first.begin()
    bench.database.unavailable = False
    (run,) = await bench.first.begin()
    assert run.task_id == task.id
    assert bench.database.tasks[task.id].state is TaskState.FAULTY


async def edit_under_a_known_row(bench: EngineBench) -> Task:
    """Memory knows a next row; an edit replaces it; memory reads the new one, too, and both are due."""
    task = await bench.a_task(schedule=bench.every(60))
    await bench.advance(58)
    await bench.first.own()
    await bench.first.read()

    def sooner(old: Task, now: datetime) -> Task:
        plan = old.plan.model_copy(update={"schedule": bench.every(1)})
        return replace(old, plan=plan)

    await bench.tasks.edit(task.tenant_id, task.id, sooner)
    bench.owner.reader.want([(task.tenant_id, 2)])
    await bench.first.read()
    await bench.advance(2)
    begun = await bench.first.begin()
    assert len(begun) == 1
    return bench.database.tasks[task.id]


async def test_an_edit_under_a_known_row_makes_no_task_faulty(bench: EngineBench) -> None:
    task = await edit_under_a_known_row(bench)
    assert (task.state, task.plan_version) == (TaskState.ACTIVE, 2)
    assert bench.next_row(task).slot is not None


async def test_the_check_catches_a_planner_that_blames_the_task_for_a_row_that_is_gone(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = Planner.item

    def blaming(self: Planner, row: Pending, now: datetime, **how: Any) -> BeginItem:
        made = item(self, row, now, **how)
        self._faults.update({fault.task_id: fault for fault in self._suspects.values()})
        return made

    monkeypatch.setattr(Planner, "item", blaming)
    task = await edit_under_a_known_row(bench)
    assert task.state is TaskState.FAULTY


async def test_a_next_row_of_another_plan_version_that_is_really_there_is_a_fault(bench: EngineBench) -> None:
    """No write leaves one behind; what was put in by hand runs, and is told to a person."""
    task = await bench.a_task(schedule=bench.every(60))
    bench.database.tasks[task.id] = replace(task, plan_version=7, version=7)
    await bench.advance(60)
    (run,) = await bench.go()
    assert run.task_id == task.id
    bench.put(bench.database.tasks[task.id], bench.clock.now())
    assert len(await bench.go()) == 1  # the next begin marks it
    assert bench.database.tasks[task.id].state is TaskState.FAULTY
    assert "plan version" in (bench.database.tasks[task.id].fault or "")


async def test_an_unreadable_definition_skips_its_slot_and_parks_and_others_go_on(bench: EngineBench) -> None:
    tenant = await bench.a_tenant()
    bad, good = [await bench.a_task(tenant, schedule=bench.every(60)) for _ in range(2)]
    bench.database.unreadable[bad.id] = "schedule: Field required"
    await bench.advance(60)
    begun = await bench.go()
    assert [run.task_id for run in begun] == [good.id]
    assert len(bench.skips(bad, SkipReason.FAULTY)) == 1
    assert bench.next_row(bad).due_at == PARKED
    assert bench.database.tasks[bad.id].state is TaskState.FAULTY


async def repair_after_a_known_version(bench: EngineBench) -> int:
    """A definition that memory holds becomes unreadable, and is repaired. How many runs of it follow."""
    task = await bench.a_task(schedule=bench.every(60))
    await bench.advance(60)
    await bench.go()
    bench.database.unreadable[task.id] = "schedule: Field required"
    bench.database.tasks[task.id] = replace(task, plan_version=2)
    row = bench.database.pending.remove(bench.next_row(task).run_id)
    bench.database.pending.add(replace(row, plan_version=2))
    await bench.advance(60)
    await bench.go()
    del bench.database.unreadable[task.id]
    bench.database.tasks[task.id] = replace(bench.database.tasks[task.id], plan_version=3, version=3)
    before = len(bench.calls.orders)
    bench.put(bench.database.tasks[task.id], bench.clock.now())
    await bench.advance(2)
    await bench.go()
    return len(bench.calls.orders) - before


async def test_a_repaired_definition_is_read_again(bench: EngineBench) -> None:
    assert await repair_after_a_known_version(bench) == 1


async def test_the_check_catches_a_planner_that_keeps_what_it_held(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.engine.board.Definitions.drop", lambda _self, _task_id: None)
    assert await repair_after_a_known_version(bench) == 0


async def test_a_row_of_a_newer_plan_has_the_definition_read_again(bench: EngineBench) -> None:
    """Overlap went from allow to skip: two runs by hand that were planted after it must not run together."""
    task = await bench.a_task(schedule=bench.every(3600))
    await bench.advance(1)
    bench.put(task, bench.clock.now())
    await bench.go()  # memory holds the old definition
    await bench.first.end(bench.calls.runs[-1])
    await bench.tasks.edit(
        task.tenant_id,
        task.id,
        lambda old, _now: replace(old, plan=old.plan.model_copy(update={"overlap": Overlap.SKIP})),
    )
    for _ in range(2):
        await bench.tasks.run_now(task.tenant_id, task.id)
    await bench.advance(2)
    begun = await bench.go()
    assert len(begun) == 1
    assert begun[0].kind is Kind.NOW


async def test_the_definition_of_a_task_that_is_gone_ends_its_row(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(60))
    del bench.database.tasks[task.id]
    await bench.advance(60)
    assert await bench.go() == []
    assert len(bench.skips(task, SkipReason.DELETED)) == 1


async def test_secrets_come_with_the_definitions(bench: EngineBench) -> None:
    await bench.a_task(schedule=bench.every(60))
    await bench.advance(60)
    await bench.go()
    assert bench.calls.orders[0].secrets == ("c2VjcmV0",)


async def test_warming_a_plan_that_raises_says_nothing(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await bench.a_task(schedule=bench.every(60))

    def broken(*_args: object) -> None:
        raise OverflowError

    monkeypatch.setattr(module, "next_slot", broken)
    await bench.first.own()
    await bench.advance(58 + SECOND.total_seconds())
    assert await bench.first.read() == 1
    assert bench.database.tasks[task.id].state is TaskState.ACTIVE
