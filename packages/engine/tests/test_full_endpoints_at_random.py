"""Full endpoints, at random: endpoints hang and answer again, rows commit early, late and behind; none is lost."""

import random
from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest

from engine_bench import EngineBench
from tocsin.common.models import CallSpec, Priority
from tocsin.common.store.rows import Begun, Task
from tocsin.engine.read import Reader
from tocsin.engine.tenant import FULL, Queue

ENDPOINTS = 5
CAP = 3


class Storm:
    """A tenant whose endpoints hang in turns, with more rows than memory takes."""

    def __init__(self, bench: EngineBench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.hanging: set[UUID] = set()
        self.calling: list[Begun] = []
        self.put: set[UUID] = set()
        self.begun: Counter[UUID] = Counter()
        self.tasks: list[Task] = []

    async def set(self) -> None:
        tenant = await self.bench.a_tenant(max_in_flight_per_endpoint=CAP)
        for number in range(ENDPOINTS):
            call = CallSpec(url=f"https://endpoint{number}.example/")
            self.tasks.append(await self.bench.a_task(tenant, call, schedule=self.bench.every(7200)))
        self.rows(2500, -3600, 0)
        await self.bench.first.own()

    def rows(self, count: int, since: float, until: float) -> None:
        for _ in range(count):
            due_at = self.bench.clock.now() + timedelta(seconds=self.random.uniform(since, until))
            priority = self.random.choice([Priority.NORMAL, Priority.NORMAL, Priority.LOW])
            row = self.bench.put(self.random.choice(self.tasks), due_at, priority=priority)
            self.put.add(row.run_id)

    async def round(self) -> None:
        await self.bench.advance(0.1)
        await self.bench.owner.reader.run_once()
        for run in await self.bench.first.begin():
            self.begun[run.run_id] += 1
            self.calling.append(run)
        going, self.calling = self.calling, []
        for run in going:
            if run.task_id in self.hanging:
                self.calling.append(run)
            elif self.random.random() < 0.02:
                self.bench.calls.back.append(run)
                await self.bench.first.put_back()
                self.begun[run.run_id] -= 1
            else:
                await self.bench.first.end(run)
        in_flight = Counter(run.task_id for run in self.bench.owner.board.in_flight.values())
        assert all(count <= CAP for count in in_flight.values())
        for priority in Priority:
            assert self.bench.owner.board.known_of(self.tasks[0].tenant_id, int(priority)) <= 2 * FULL + CAP * ENDPOINTS

    async def run(self) -> None:
        await self.set()
        for turn in range(150):
            if turn % 10 == 0:
                self.hanging = {task.id for task in self.tasks if self.random.random() < 0.6}
            if turn % 4 == 0:
                self.rows(5, -9, 4)
            await self.round()
        self.hanging = set()
        for _ in range(2500):
            await self.round()
            if sum(self.begun.values()) == len(self.put):
                break
        assert set(self.begun) == self.put, "none is lost"
        assert set(self.begun.values()) == {1}, "none is begun twice"


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_hangs_every_run_is_begun_once_in_the_end(bench: EngineBench, seed: int) -> None:
    await Storm(bench, seed).run()


async def test_the_check_catches_a_queue_that_does_not_remember_what_it_left(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_self: Reader) -> int:
        return 0

    monkeypatch.setattr(Queue, "leave", lambda _self, _endpoint, _row: None)
    monkeypatch.setattr(Reader, "_sweep", nothing)  # looks at everything would find them late
    monkeypatch.setattr(Reader, "_owe_what_was_passed", lambda *_: None)
    with pytest.raises(AssertionError, match="lost"):
        await Storm(bench, 0).run()
