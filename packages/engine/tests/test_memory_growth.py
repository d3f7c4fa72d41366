"""B76, of an owner: what it keeps in memory does not grow with the runs that it has begun, however these end."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine_bench import EngineBench
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.models import CallSpec, Overlap
from tocsin.common.states import RunState
from tocsin.common.store.rows import Begun, Pending, Task
from tocsin.engine import planner
from tocsin.engine.board import Board

CYCLES = 40
RUNS = 20


class Life:
    """An owner's days: tenants that come and go, runs that succeed, fail, wait, are put back, or cannot be planned."""

    def __init__(self, bench: EngineBench) -> None:
        self.bench = bench
        self.busy: list[Begun] = []

    async def cycle(self) -> None:
        bench = self.bench
        tenant = await bench.a_tenant(max_in_flight_per_endpoint=3)
        tasks = [
            await bench.a_task(tenant, CallSpec(url=f"https://{name}.example/"), schedule=bench.every(7200), **plan)
            for name, plan in (
                ("a", {}),
                ("b", {"overlap": Overlap.SKIP}),
                ("c", {"overlap": Overlap.BUFFER_ONE}),
                ("d", {"overlap": Overlap.CANCEL_PREVIOUS}),
            )
        ]
        await bench.first.own()
        for number in range(RUNS):
            bench.put(tasks[number % 4], bench.clock.now())
        bad = await bench.a_task(tenant)
        bench.database.unreadable[bad.id] = "schedule: Field required"
        bench.runs.away["begin"] = 1
        await bench.advance(1.5)
        await bench.first.read()
        with pytest.raises(StoreUnavailableError):
            await bench.first.begin()
        await self.until_all_have_ended()
        for task in [*tasks, bad]:
            self.forget(task)
        del bench.database.tenants[tenant.id], bench.database.secrets[tenant.id]
        bench.database.history.clear()
        bench.database.notified.clear()
        bench.runs.begins.clear()
        bench.runs.pages.clear()
        bench.calls.orders.clear()
        bench.calls.aborted.clear()
        await bench.first.own()

    async def until_all_have_ended(self) -> None:
        for turn in range(200):
            await self.bench.advance(0.25)
            await self.bench.owner.reader.run_once()
            begun = await self.bench.first.begin()
            for number, run in enumerate(begun):
                if turn == 0 and number == 0:
                    self.bench.calls.back.append(run)
                    await self.bench.first.put_back()
                elif turn == 0 and number == 1:
                    await self.bench.first.end(run, None, retry_in=1.0)
                else:
                    await self.bench.first.end(run, RunState.DEAD if number % 2 else RunState.SUCCEEDED)
            if not begun and not self.bench.database.running and not self.due():
                return
        raise AssertionError("runs never end")

    def due(self) -> bool:
        now = self.bench.clock.now()
        return any(row.due_at <= now for row in rows_of(self.bench))

    def forget(self, task: Task) -> None:
        for row in self.bench.pending(task):
            self.bench.database.pending.remove(row.run_id)
        del self.bench.database.tasks[task.id]
        self.bench.database.unreadable.pop(task.id, None)
        self.bench.owner.board.definitions.drop(task.id)  # a cache of a fixed size, which would fill meanwhile


def rows_of(bench: EngineBench) -> list[Pending]:
    return [row for task in bench.database.tasks.values() for row in bench.database.pending.of_task(task.id)]


def kept(bench: EngineBench) -> Counter[str]:
    """How much there is in each container of the owner's parts, and of each kind of row in memory."""
    gc.collect()
    found: Counter[str] = Counter()
    seen: set[int] = set()
    parts: list[Any] = [bench.owner]
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        for name, value in vars(part).items():
            if hasattr(value, "__len__") and not isinstance(value, (str, bytes)):
                found[f"{type(part).__name__}.{name}"] += len(value)
            if type(value).__module__.startswith("tocsin.engine") and hasattr(value, "__dict__"):
                parts.append(value)
    rows = Counter(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, (Pending, Begun)))
    found.update(rows)
    found["tasks"] = len(asyncio.all_tasks())
    return found


async def check_nothing_is_kept(bench: EngineBench) -> None:
    life = Life(bench)
    for _ in range(3):
        await life.cycle()
    before = kept(bench)
    for _ in range(CYCLES):
        await life.cycle()
    grown = {name: (before[name], count) for name, count in kept(bench).items() if count > before[name]}
    assert grown == {}


@pytest.fixture(autouse=True)
def few_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that a test can reach."""
    monkeypatch.setattr(planner, "_UNREADABLE", 2)


async def test_b76_what_an_owner_keeps_does_not_grow_with_what_it_has_begun(bench: EngineBench) -> None:
    await check_nothing_is_kept(bench)


def never_forgotten(_self: Board, _row: Pending) -> None:
    """Broken: a pair that was begun stays known."""


def still_counted(board: Board, run: Begun) -> None:
    """Broken: the instant of a begin stays."""
    flight = board._flights.get((run.run_id, run.fence), (0.0, None))
    LAND(board, run)
    board._flights[run.run_id, run.fence] = flight


LAND = Board.land


@pytest.mark.parametrize(("name", "broken"), [("_unknow", never_forgotten), ("land", still_counted)])
async def test_b76_the_check_catches_a_board_that_keeps(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., None]
) -> None:
    monkeypatch.setattr(Board, name, broken)
    with pytest.raises(AssertionError):
        await check_nothing_is_kept(bench)
