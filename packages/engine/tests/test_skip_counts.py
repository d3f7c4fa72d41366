"""Metrics: what an owner writes to history as skipped or lost is counted once a row, by outcome and by reason."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine_bench import EngineBench, a_due_task
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.models import Misfire, Overlap, TaskState
from tocsin.common.states import RunState
from tocsin.common.store.memory.database import Running
from tocsin.common.store.rows import BeginItem, BeginResult, Outcome, Task, begun_of
from tocsin.common.telemetry import metrics
from tocsin.common.telemetry.metrics import RUNS, SKIPS, Metric
from tocsin.engine.begin import Beginner

Scenario = Callable[[EngineBench], Awaitable[None]]


async def a_misfire(bench: EngineBench, misfire: Misfire) -> None:
    task = await bench.a_task(schedule=bench.every(60), misfire=misfire, grace_seconds=30, max_catchup=3)
    await bench.advance(3600)
    await bench.go()
    assert bench.history(task)


async def misfires_skipped(bench: EngineBench) -> None:
    await a_misfire(bench, Misfire.SKIP)


async def misfires_fired_once(bench: EngineBench) -> None:
    await a_misfire(bench, Misfire.FIRE_ONCE)


async def catchups(bench: EngineBench) -> None:
    await a_misfire(bench, Misfire.FIRE_ALL)


async def overlaps(bench: EngineBench) -> None:
    """Of next rows, and of runs asked for by hand."""
    task = await a_due_task(bench, schedule=bench.every(2), overlap=Overlap.SKIP)
    await bench.first.begin()
    bench.put(task, bench.clock.now())
    for _ in range(4):
        await bench.advance(2)
        await bench.first.read()
        await bench.first.begin()
        await bench.first.begin()


async def held_slots(bench: EngineBench) -> None:
    await a_due_task(bench, schedule=bench.every(2), overlap=Overlap.BUFFER_ONE)
    (run,) = await bench.first.begin()
    for _ in range(5):
        await bench.advance(2)
        await bench.first.begin()
    await bench.first.end(run)
    await bench.first.begin()


async def held_slots_of_a_begin_whose_answer_was_lost(bench: EngineBench) -> None:
    await a_due_task(bench, schedule=bench.every(2), overlap=Overlap.BUFFER_ONE)
    (run,) = await bench.first.begin()
    for _ in range(5):
        await bench.advance(2)
        await bench.first.begin()
    await bench.first.end(run)
    bench.runs.lose_begin = "after"
    await bench.first.begin()


async def in_state(bench: EngineBench, state: TaskState) -> Task:
    """Waiting runs of a task that was paused or deleted before they were begun."""
    task = await bench.a_task(schedule=bench.every(7200))
    for _ in range(3):
        bench.put(task, bench.clock.now())
    await bench.first.own()
    await bench.first.read()
    bench.database.tasks[task.id] = replace(bench.database.tasks[task.id], state=state)
    await bench.first.begin()
    return task


async def paused(bench: EngineBench) -> None:
    await in_state(bench, TaskState.PAUSED)


async def deleted(bench: EngineBench) -> None:
    await in_state(bench, TaskState.DELETED)


async def unreadable(bench: EngineBench) -> None:
    task = await bench.a_task()
    bench.database.unreadable[task.id] = "schedule: Field required"
    await bench.advance(1)
    await bench.go()


async def lost(bench: EngineBench) -> None:
    """A dead owner's runs, some given back as its shards are taken, one that commits later by the next pass."""
    task = await bench.a_task(schedule=bench.every(7200))
    await bench.first.own()
    dead = bench.executor()
    await dead.owner._beat.register("shared", 0, dead.process, "2026a")
    for number in range(4):
        row = bench.put(task, bench.clock.now())
        await dead.runs.begin(dead.lease_id, [BeginItem(row)])
        if number == 2:
            await dead.store.leases.leave(dead.lease_id)
            bench.owner.board.drop_tenant(task.tenant_id)
            await bench.first.own()
    late = Running(begun_of(bench.put(task, bench.clock.now()), 1), dead.lease_id, bench.clock.now())
    bench.database.pending.remove(late.run.run_id)
    bench.database.running[late.run.run_id] = late
    (give_back,) = [service for service in bench.owner._services if service.name == "give back"]
    await give_back._run_once()
    assert not bench.database.running


SCENARIOS: list[Scenario] = [
    misfires_skipped,
    misfires_fired_once,
    catchups,
    overlaps,
    held_slots,
    held_slots_of_a_begin_whose_answer_was_lost,
    paused,
    deleted,
    unreadable,
    lost,
]


async def check_counts(scenario: Scenario) -> None:
    """By the rows of history that owners wrote, all but those of calls that ended, which executors count."""
    bench = EngineBench()
    await bench.start()
    await scenario(bench)
    rows = [row for row in bench.database.history.values() if row.outcome in (Outcome.SKIPPED, Outcome.LOST)]
    slots: Counter[str] = Counter()
    for row in rows:
        if row.state is RunState.SKIPPED:
            slots[str(row.reason)] += row.skip_count or 1
    outcomes = Counter(str(row.outcome) for row in rows)
    assert outcomes or scenario is misfires_fired_once, "the scenario shows something"
    counters = bench.first.meter.counters
    assert {labels[1]: count for labels, count in counters.items() if labels[0] == SKIPS.name} == slots
    assert {labels[1]: count for labels, count in counters.items() if labels[0] == RUNS.name} == outcomes


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_each_row_is_counted_once(scenario: Scenario) -> None:
    await check_counts(scenario)


async def test_the_check_catches_an_owner_that_counts_next_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def uncounted(_self: Beginner, _items: Sequence[BeginItem], _result: BeginResult) -> None:
        """Broken: what a begin withdraws is counted nowhere."""

    monkeypatch.setattr(Beginner, "_count_withdrawn", uncounted)
    with pytest.raises(AssertionError):
        await check_counts(paused)


async def test_the_check_catches_skips_that_are_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    count = Beginner._count_skips

    def twice(self: Beginner, item: BeginItem) -> None:
        count(self, item)
        count(self, item)

    monkeypatch.setattr(Beginner, "_count_skips", twice)
    with pytest.raises(AssertionError):
        await check_counts(overlaps)


async def test_an_outage_after_a_begin_costs_no_count(bench: EngineBench) -> None:
    """The reason is then what memory holds of the task."""
    task = await bench.a_task(schedule=bench.every(7200))
    bench.put(task, bench.clock.now())
    await bench.first.own()
    await bench.first.read()
    gone = replace(bench.database.tasks.pop(task.id), state=TaskState.DELETED)

    async def away(_task_ids: object) -> None:
        raise StoreUnavailableError("away")

    bench.store.tasks.definitions = away  # type: ignore[method-assign, assignment]
    await bench.first.begin()
    assert gone.id not in bench.database.tasks
    assert bench.first.meter.counters[SKIPS.name, "deleted"] == 1


def test_no_metric_stands_in_the_table_that_nothing_sets() -> None:
    packages = Path(__file__).parents[2]
    sources = [path for part in ("engine", "executor") for path in (packages / part / "src").rglob("*.py")]
    set_somewhere = {
        name for path in sources for name in re.findall(r"meter\.(?:add|set|observe)\(\s*(\w+)", path.read_text())
    }
    assert {name for name in vars(metrics) if isinstance(getattr(metrics, name), Metric)} <= set_somewhere
