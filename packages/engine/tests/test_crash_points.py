"""Crash points of the engine: each is reached, and a process that ends at it leaves its step undone, or done."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from engine_bench import EngineBench, Executor, a_due_task
from supervisor_bench import SupervisorBench
from tocsin.common.crashpoints import set_handler
from tocsin.common.models import Overlap, TaskState
from tocsin.engine import lease, planner


class Died(BaseException):
    """What stands for the end of a process: nothing that runs may catch it."""


class Death:
    """Ends the process at one point; remembers which points were reached."""

    def __init__(self, at: str | None) -> None:
        self.at = at
        self.reached: list[str] = []

    def __call__(self, point: str) -> None:
        self.reached.append(point)
        if point == self.at:
            raise Died


@pytest.fixture(autouse=True)
def without_handler() -> Iterator[None]:
    yield
    set_handler(None)


@dataclass
class Step:
    """What a process does, and whether it has taken effect in the database."""

    act: Callable[[], Awaitable[object]]
    done: Callable[[], bool]


async def ended(act: Callable[[], Awaitable[object]]) -> None:
    """Runs a step to the death of its process, or its end."""
    try:
        await act()
    except Died:
        return


async def a_bench() -> EngineBench:
    bench = EngineBench()
    await bench.start()
    return bench


async def judge() -> Step:
    bench = await a_bench()
    silent = bench.executor()
    await silent.start()
    await bench.advance(30)
    return Step(bench.owner._judge.run_once, lambda: has_ended(bench, silent))


async def expire() -> Step:
    bench = await a_bench()
    gone = bench.executor()
    gone.process = bench.first.process
    await gone.start()
    return Step(bench.owner._judge.run_once, lambda: has_ended(bench, gone))


async def leave() -> Step:
    bench = await a_bench()
    return Step(lambda: bench.owner.drain(1.0), lambda: has_ended(bench, bench.first))


def has_ended(bench: EngineBench, executor: Executor) -> bool:
    return bench.database.leases[executor.lease_id].expired_at is not None


async def take_shards() -> Step:
    bench = EngineBench()
    first = bench.first
    await first.owner._beat.register("shared", 0, first.process, "2026a")
    return Step(first.own, lambda: any(shard.owner == first.lease_id for shard in bench.database.shards.values()))


async def give_shards() -> Step:
    bench = await a_bench()
    return Step(
        bench.owner.ownership.give_all, lambda: all(shard.owner is None for shard in bench.database.shards.values())
    )


async def move_tenant() -> Step:
    bench = await a_bench()
    tenant = await bench.a_tenant()
    target = (tenant.shard + 1) % 64
    await bench.store.tenants.ask_move(tenant.id, target)
    return Step(bench.first.own, lambda: bench.database.tenants[tenant.id].shard == target)


async def ask_move() -> Step:
    bench = SupervisorBench()
    tenant = await bench.a_tenant()
    await bench.a_lease("shared")
    cell = await bench.store.tenants.open_cell(tenant.id, 1)
    await bench.a_lease(cell, 1)
    return Step(bench.round, lambda: tenant.id in bench.database.moves)


async def move_unowned() -> Step:
    bench = SupervisorBench()
    tenant = await bench.a_tenant()
    target = (tenant.shard + 1) % 64
    await bench.store.tenants.ask_move(tenant.id, target)
    return Step(bench.round, lambda: bench.shard(tenant) == target)


async def cancel_of_tasks() -> Step:
    bench = await a_bench()
    await a_due_task(bench, schedule=bench.every(2), overlap=Overlap.CANCEL_PREVIOUS)
    (run,) = await bench.first.begin()
    await bench.advance(2)
    return Step(bench.first.begin, lambda: bench.database.running[run.run_id].cancelled)


async def mark_faulty() -> Step:
    bench = await a_bench()
    task = await a_due_task(bench)
    bench.database.unreadable[task.id] = "schedule: Field required"
    bench.owner.board.definitions.drop(task.id)
    return Step(bench.first.begin, lambda: bench.database.tasks[task.id].state is TaskState.FAULTY)


STEPS: list[Callable[[], Awaitable[Step]]] = [
    judge,
    expire,
    leave,
    take_shards,
    give_shards,
    move_tenant,
    ask_move,
    move_unowned,
    cancel_of_tasks,
    mark_faulty,
]


async def check_death(make: Callable[[], Awaitable[Step]], side: str) -> None:
    step = await make()
    death = Death(f"{make.__name__}.{side}")
    assert not step.done()
    set_handler(death)
    await ended(step.act)
    assert death.at in death.reached, "it is reached"
    assert step.done() == (side == "after")


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("make", STEPS)
async def test_a_process_that_dies_there_has_not_done_its_step_or_has(
    make: Callable[[], Awaitable[Step]], side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "is_gone", lambda pid, _started: make is expire and pid == 1)
    await check_death(make, side)


def nowhere(_point: str) -> None:
    """Broken: the code has no such point."""


@pytest.mark.parametrize(("module", "make"), [(lease, judge), (planner, mark_faulty)])
async def test_the_check_catches_a_step_without_its_points(
    module: Any, make: Callable[[], Awaitable[Step]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "is_gone", lambda _pid, _started: False)
    monkeypatch.setattr(module, "reach", nowhere)
    with pytest.raises(AssertionError):
        await check_death(make, "before")


async def test_the_check_catches_a_point_on_the_wrong_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "is_gone", lambda _pid, _started: False)

    async def swapped() -> Step:
        step = await judge()
        return Step(step.act, lambda: not step.done())

    swapped.__name__ = "judge"
    with pytest.raises(AssertionError):
        await check_death(swapped, "before")


class Fails:
    """A fault of this process's own, once, at one point."""

    def __init__(self, at: str) -> None:
        self.at: str | None = at

    def __call__(self, point: str) -> None:
        if point == self.at:
            self.at = None
            raise RuntimeError(point)


@pytest.mark.parametrize("point", ["begin.before", "begin.after"])
async def test_rule_4_a_begin_that_fails_here_is_resolved_at_once(point: str) -> None:
    """What it began counts against the cap and is called; what it did not begin waits again."""
    bench = await a_bench()
    tenant = await bench.a_tenant(max_in_flight=1)
    first = await bench.a_task(tenant, schedule=bench.every(1))
    await bench.a_task(tenant, schedule=bench.every(1))
    await bench.advance(1)
    await bench.first.own()
    await bench.first.read()
    set_handler(Fails(point))
    with pytest.raises(RuntimeError, match=point):
        await bench.first.begin()
    set_handler(None)
    await bench.first.begin()
    (order,) = bench.calls.orders
    assert list(bench.owner.board.in_flight) == [(order.run.run_id, order.run.fence)]
    assert list(bench.database.running) == [order.run.run_id]
    assert order.run.tenant_id == first.tenant_id
