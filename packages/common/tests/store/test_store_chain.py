"""Whatever is done to a task, in whatever order: its slots make a chain without a gap, none stands in it twice, and it
has one next row. Ended runs stay ended."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_bench import Bench, MemoryBench
from store_builders import a_lease, a_task, ended, planned, the_task
from store_chain import chain_faults
from tocsin.common.errors import ConflictError
from tocsin.common.models import EverySchedule, Kind, Priority, TaskState
from tocsin.common.states import RunState
from tocsin.common.store.rows import Begun, Outcome, Task

PERIODS = (1800, 3600, 7200)


@dataclass
class Story:
    """A task, a lease that works for it, and what has been begun. `rng` chooses among what is there."""

    bench: Bench
    task_id: UUID
    tenant_id: UUID
    lease: UUID
    begun: dict[UUID, Begun] = field(default_factory=dict)

    async def begin(self, rng: int) -> None:
        now = await self.bench.now()
        rows = [row for row in await self.bench.pending(self.task_id) if row.slot is not None or row.kind is Kind.NOW]
        if rows:
            row = rows[rng % len(rows)]
            task = await the_task(self.bench, self.task_id)
            result = await self.bench.store.runs.begin(self.lease, [planned(self.bench, task, row, now)])
            self.begun |= {run.run_id: run for run in result.begun}

    async def complete(self, rng: int) -> None:
        await self._end(rng, RunState.SUCCEEDED)

    async def fail(self, rng: int) -> None:
        await self._end(rng, None)

    async def _end(self, rng: int, state: RunState | None) -> None:
        if self.begun:
            run = list(self.begun.values())[rng % len(self.begun)]
            completion = await ended(self.bench, run, state, outcome=Outcome.TIMEOUT)
            await self.bench.store.runs.complete(self.lease, [completion])
            del self.begun[run.run_id]

    async def put_back(self, rng: int) -> None:
        if self.begun:
            run = list(self.begun.values())[rng % len(self.begun)]
            await self.bench.store.runs.put_back(self.lease, [(run.run_id, run.fence)])
            del self.begun[run.run_id]

    async def crash(self, _: int) -> None:
        await self.bench.store.leases.expire([self.lease])
        await self.bench.store.runs.give_back([self.tenant_id])
        self.begun.clear()
        self.lease = await a_lease(self.bench)

    async def wait(self, rng: int) -> None:
        await self.bench.shift(self.task_id, max(PERIODS) * (1 + rng % 3))

    async def edit(self, rng: int) -> None:
        def change(task: Task, _: object) -> Task:
            assert isinstance(task.plan.schedule, EverySchedule)
            schedule = EverySchedule(every_seconds=PERIODS[rng % 3], anchor=task.plan.schedule.anchor)
            priority = Priority(rng % 4)
            return replace(task, plan=task.plan.model_copy(update={"schedule": schedule, "priority": priority}))

        await self.bench.tasks.edit(self.tenant_id, self.task_id, change)

    async def pause(self, _: int) -> None:
        await self.bench.tasks.pause(self.tenant_id, self.task_id)

    async def resume(self, _: int) -> None:
        await self.bench.tasks.resume(self.tenant_id, self.task_id)

    async def skip(self, _: int) -> None:
        await self.bench.tasks.skip_next(self.tenant_id, self.task_id)

    async def run_now(self, _: int) -> None:
        await self.bench.tasks.run_now(self.tenant_id, self.task_id)

    async def cancel(self, rng: int) -> None:
        runs = await self.bench.store.tasks.runs(self.tenant_id, self.task_id, None, 100)
        if runs:
            await self.bench.tasks.cancel(self.tenant_id, runs[rng % len(runs)].run_id)


STEPS = (
    "begin",
    "complete",
    "fail",
    "put_back",
    "crash",
    "wait",
    "edit",
    "pause",
    "resume",
    "skip",
    "run_now",
    "cancel",
)
stories = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=1, max_size=14)


async def told(bench: Bench, steps: list[tuple[str, int]]) -> list[str]:
    """Tells a story of a new task, and says what is wrong with it at the first step that leaves a fault."""
    task = await a_task(bench)
    story = Story(bench, task.id, task.tenant_id, await a_lease(bench))
    final: dict[UUID, RunState] = {}
    for number, (name, rng) in enumerate(steps):
        step: Callable[[int], Awaitable[None]] = getattr(story, name)
        with suppress(ConflictError):
            await step(rng)
        state = (await the_task(bench, task.id)).state
        faults = await chain_faults(bench, task.id, state)
        states = await final_states(bench, task.id)
        faults += [f"{run_id} was {end}" for run_id, end in final.items() if states.get(run_id) != end]
        final = states
        if faults:
            return [f"after step {number} of {steps}", *faults]
    return []


async def final_states(bench: Bench, task_id: UUID) -> dict[UUID, RunState]:
    """The terminal states of the task's runs; one that has two of them, or is still live, is named by none."""
    ends: dict[UUID, list[RunState]] = {}
    for row in await bench.history(task_id):
        if row.state is not None:
            ends.setdefault(row.run_id, []).append(row.state)
    live = {row.run_id for row in await bench.pending(task_id)}
    live |= {row.run_id for row in await bench.running(task_id)}
    return {run_id: states[0] for run_id, states in ends.items() if len(states) == 1 and run_id not in live}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=stories)
async def test_slots_make_a_chain(bench: Bench, steps: list[tuple[str, int]]) -> None:
    assert await told(bench, steps) == []


async def test_a_begin_that_plants_twice_is_caught(memory_bench: MemoryBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin of the checker: the next slot planted without the one before it being gone."""
    original = memory_bench.tasks.skip_next

    async def skip_next(self: Any, tenant_id: UUID, task_id: UUID) -> Any:
        async with self._store.write() as tx:
            row = await tx.find_next(task_id)
            await tx.plant([replace(row, run_id=memory_bench.ids.new())])
        return await original(tenant_id, task_id)

    monkeypatch.setattr("tocsin.common.tasks.Tasks.skip_next", skip_next)
    faults = await told(memory_bench, [("skip", 0)])
    assert any("next rows" in fault for fault in faults)


async def test_a_gap_is_caught(memory_bench: MemoryBench) -> None:
    bench = memory_bench
    task = await a_task(bench)
    lease = await a_lease(bench)
    row = await bench.next_row(task.id)
    await bench.store.runs.begin(lease, [planned(bench, task, row, await bench.now())])
    assert await chain_faults(bench, task.id, TaskState.ACTIVE) == []
    following = await bench.next_row(task.id)
    bench.database.pending.remove(following.run_id)
    assert row.slot is not None
    await bench.put_pending([replace(following, last_slot=row.slot.replace(year=2100))])
    assert any("gap" in fault for fault in await chain_faults(bench, task.id, TaskState.ACTIVE))


async def test_an_edit_that_drops_a_due_slot_is_caught(
    memory_bench: MemoryBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin of rule 2: a slot already past is accounted for, and gets no run."""
    story = [("begin", 0), ("wait", 0), ("edit", 0)]
    assert await told(memory_bench, story) == []

    async def base(_: Any, tx: Any, task: Task, row: Any, now: Any) -> Any:
        return row.slot

    monkeypatch.setattr("tocsin.common.planting.Planter.base", base)
    assert any("gap" in fault for fault in await told(memory_bench, story))
