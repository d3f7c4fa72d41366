"""How an owner uses the hint index: what it tells it, when it asks it, and what it does where it fails or lies."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from engine_bench import EngineBench, Executor
from tocsin.common.clock import PARKED
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.hints.port import HORIZON
from tocsin.common.store.rows import Pending, Task
from tocsin.engine.hint_feed import HintFeed
from tocsin.engine.hint_reader import HintReader
from tocsin.engine.read_config import ReadConfig
from tocsin.engine.tenant import FULL

EVERY_ROUND = ReadConfig(sweep_every=0.0)


class ToldHints:
    """Names what it was told, and all of `more`. `fault`: what asking comes to."""

    def __init__(self) -> None:
        self.rows: dict[UUID, Pending] = {}
        self.more: list[UUID] = []
        self.asked = self.told = 0
        self.fault: str | None = None

    async def _do(self) -> None:
        if self.fault == "fails":
            raise ConnectionError("gone")
        if self.fault == "hangs":
            await asyncio.Event().wait()

    async def add(self, rows: Sequence[Pending]) -> None:
        self.told += 1
        await self._do()
        self.rows.update({row.run_id: row for row in rows})

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        self.asked += 1
        await self._do()
        return [*self.rows, *self.more]

    async def remove(self, runs: Sequence[tuple[UUID, UUID]]) -> None:
        self.told += 1
        await self._do()
        for _, run_id in runs:
            self.rows.pop(run_id, None)


@pytest.fixture
def hints() -> ToldHints:
    return ToldHints()


@pytest.fixture
async def executor(hints: ToldHints) -> Executor:
    bench = EngineBench()
    executor = bench.executor(hints, EVERY_ROUND)
    await executor.start()
    return executor


async def a_task_not_in_turn(executor: Executor) -> Task:
    """Of a tenant whose queues are not looked at from their start in the next three sweeps."""
    turns = EVERY_ROUND.everything_turns
    while True:
        task = await executor.bench.a_task(schedule=executor.bench.every(7200))
        await executor.own()
        for _ in range(2):  # at take-over, from their start
            await executor.owner.reader.run_once()
        if (task.tenant_id.int - executor.owner.reader._turns._taken) % turns >= 3:
            return task


def looked_at(executor: Executor, task: Task) -> int:
    return sum(page.tenant_id == task.tenant_id for page in executor.runs.pages)


async def test_what_is_begun_and_planted_is_told(executor: Executor, hints: ToldHints) -> None:
    bench = executor.bench
    task = await bench.a_task(schedule=bench.every(60))
    await executor.own()
    await executor.advance(60)
    await executor.owner.reader.run_once()
    (run,) = await executor.begin()
    await executor.owner.reader.run_once()
    assert list(hints.rows) == [bench.next_row(task).run_id]
    await executor.end(run, None, retry_in=3.0)
    await executor.owner.reader.run_once()
    assert set(hints.rows) == {bench.next_row(task).run_id, run.run_id}


async def test_what_is_due_in_more_than_an_hour_is_not_told(executor: Executor, hints: ToldHints) -> None:
    bench = executor.bench
    await bench.a_task(schedule=bench.every(7200))
    await executor.own()
    await executor.advance(7200)
    await executor.owner.reader.run_once()
    assert len(await executor.begin()) == 1
    await executor.owner.reader.run_once()
    assert hints.told > 0
    assert hints.rows == {}


def test_the_last_that_was_said_of_a_run_counts() -> None:
    bench = EngineBench()
    feed = HintFeed()
    now = bench.clock.now()
    row = Pending(
        *(UUID(int=1), 0, UUID(int=2), UUID(int=3)), priority=2, due_at=now, slot=None, last_slot=None,  # type: ignore[arg-type]
        lane=0, kind="now", plan_version=1,  # type: ignore[arg-type]
    )  # fmt: skip
    feed.pending(replace(row, due_at=now + timedelta(seconds=9)))
    feed.pending(row)
    assert feed.take(now) == ([row], [])
    assert feed.take(now) == ([], [])
    for due_at in (now + HORIZON + timedelta(seconds=1), PARKED):
        feed.pending(replace(row, due_at=due_at))
        assert feed.take(now) == ([], [])


async def test_every_second_look_is_by_hints(executor: Executor, hints: ToldHints) -> None:
    task = await a_task_not_in_turn(executor)
    executor.runs.pages.clear()
    before = hints.asked
    for _ in range(2):
        await executor.owner.reader.run_once()
    assert hints.asked == before + 1
    assert looked_at(executor, task) == 4  # its four queues, once


@pytest.mark.parametrize("fault", ["fails", "hangs"])
async def test_where_the_index_fails_the_queues_are_looked_at_in_the_same_round(
    executor: Executor, hints: ToldHints, fault: str
) -> None:
    """One that hangs is waited for as long as `hint_wait`: this test would not end else."""
    task = await a_task_not_in_turn(executor)
    hints.fault = fault
    executor.runs.pages.clear()
    for number in (1, 2):
        await executor.owner.reader.run_once()
        assert looked_at(executor, task) == 4 * number


async def test_where_the_index_lies_the_queues_are_looked_at_in_the_same_round(
    executor: Executor, hints: ToldHints, caplog: pytest.LogCaptureFixture
) -> None:
    task = await a_task_not_in_turn(executor)
    due = executor.bench.put(task, executor.bench.clock.now())
    hints.more = [due.run_id, *(UUID(int=n) for n in range(30))]
    executor.runs.pages.clear()
    for number in (1, 2):
        await executor.owner.reader.run_once()
        assert looked_at(executor, task) == 4 * number
    await executor.owner.reader.run_once()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["of 31 runs that the hint index named, 1 are pending here"]
    assert executor.meter.gauges["tocsin_hint_verdict",] == 0


async def test_one_that_fails_is_told_nothing_until_it_answers(executor: Executor, hints: ToldHints) -> None:
    bench = executor.bench
    await bench.a_task(schedule=bench.every(1))
    await executor.own()
    hints.fault = "fails"

    async def second() -> None:
        await executor.advance(1)
        await executor.owner.reader.run_once()
        for run in await executor.begin():
            await executor.end(run)

    for _ in range(4):
        await second()
    told = hints.told
    for _ in range(4):
        await second()
    assert hints.told == told
    hints.fault = None
    for _ in range(3):
        await second()
    assert hints.rows


async def test_after_an_outage_a_round_asks_the_database(executor: Executor, hints: ToldHints) -> None:
    """Hints that name nothing ask it nothing, and say nothing of it."""
    await a_task_not_in_turn(executor)
    for _ in range(2):
        executor.runs.away["heads"] = 100
        hints.fault = "fails"  # so that the queues are looked at, whose turn it is or not
        with pytest.raises(StoreUnavailableError):
            await executor.owner.reader.run_once()
        hints.fault = None
        executor.runs.away["heads"] = 0
        executor.runs.pages.clear()
        asked = hints.asked
        await executor.owner.reader.run_once()
        assert executor.runs.pages
        assert hints.asked == asked


async def test_hints_fill_no_queue_beyond_its_bound(executor: Executor, hints: ToldHints) -> None:
    task = await a_task_not_in_turn(executor)
    now = executor.bench.clock.now()
    rows = [executor.bench.put(task, now + timedelta(milliseconds=n)) for n in range(FULL + 50)]
    hints.more = [row.run_id for row in reversed(rows)]
    reader = executor.owner.reader._hints
    assert reader is not None
    new = await reader.read(executor.owner.reader._hinted)
    assert new == rows[:FULL]


class NotBounded(HintReader):
    """Broken: takes all there is."""

    def _new(self, rows: list[Pending]) -> list[Pending]:
        return rows


async def test_a_reader_without_that_bound_is_caught(
    executor: Executor, hints: ToldHints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HintReader, "_new", NotBounded._new)
    with pytest.raises(AssertionError):
        await test_hints_fill_no_queue_beyond_its_bound(executor, hints)


async def test_auto_tells_its_verdict() -> None:
    hints = ToldHints()
    bench = EngineBench()
    executor = bench.executor(hints, replace(EVERY_ROUND, hint_mode="auto"))
    await executor.start()
    task = await a_task_not_in_turn(executor)
    hints.more = [bench.put(task, bench.clock.now()).run_id]
    reader = executor.owner.reader._hints
    assert reader is not None
    slow = executor.runs.heads

    async def heads(*arguments: object) -> list[Pending]:
        bench.clock.advance(0.01)
        return await slow(*arguments)  # type: ignore[arg-type]

    executor.runs.heads = heads  # type: ignore[method-assign, assignment]
    for _ in range(40):
        await executor.owner.reader.run_once()
    assert executor.meter.gauges["tocsin_hint_verdict",] == 1
    hints.fault = "fails"
    for _ in range(2):
        await executor.owner.reader.run_once()
    assert executor.meter.gauges["tocsin_hint_verdict",] == 0
