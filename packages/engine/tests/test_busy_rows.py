"""Rows whose task is busy: they take the room of none, are begun soon once it is free, and are asked for ever less."""

import heapq
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from engine_bench import SECOND, EngineBench
from tocsin.common.models import CallSpec, Overlap
from tocsin.common.store.rows import Begun, Pending, Task
from tocsin.common.store.tenants import Tenant
from tocsin.engine.begin import BeginConfig
from tocsin.engine.board import Board
from tocsin.engine.endpoints import Endpoint
from tocsin.engine.tenant import FULL, PAGE

MILLISECOND = timedelta(milliseconds=1)


class AllAtOnce(Board):
    """Broken: what was aside long enough comes back all at once, and stays before all others until it is chosen."""

    def return_deferred(self) -> None:
        super().return_deferred()
        while self._aside_until and self._aside_until[0][0] <= self._clock.monotonic():
            row = heapq.heappop(self._aside_until)[2]
            if self._take_aside(row):
                self.readmit(row)
        self._on_trial.clear()


async def busy_rows(bench: EngineBench, tenant: Tenant, count: int, host: str = "slow") -> list[Pending]:
    """Due rows of as many tasks, each with an earlier run between two attempts, the next of which is in an hour."""
    now = bench.clock.now()
    rows: list[Pending] = []
    for _ in range(count):
        call = CallSpec(url=f"https://{host}.example/hook")
        task = await bench.a_task(tenant, call=call, schedule=bench.every(7200), overlap=Overlap.BUFFER_ONE)
        bench.put(task, now + timedelta(hours=1), fence=1)
        rows.append(bench.put(task, now - 20 * SECOND))
    return rows


# --- room -----------------------------------------------------------------------------------------------------------


async def seconds_behind_busy_rows(bench: EngineBench, count: int, caps: dict[str, int | None]) -> float:
    """Seconds until ten rows behind them are begun, at most 45."""
    tenant = await bench.a_tenant(**caps)
    await bench.first.own()
    await busy_rows(bench, tenant, count)
    free = await bench.a_task(tenant, call=CallSpec(url="https://slow.example/hook"), schedule=bench.every(7200))
    rows = {bench.put(free, bench.clock.now() - 10 * SECOND + n * MILLISECOND).run_id for n in range(10)}
    for turn in range(900):
        await bench.advance(0.05)
        await bench.owner.reader.run_once()
        for run in await bench.first.begin():
            rows.discard(run.run_id)
            await bench.first.end(run)
        if not rows:
            return turn * 0.05
    return 45


TENANT_CAP: dict[str, int | None] = {"max_in_flight": 2}
ENDPOINT_CAP: dict[str, int | None] = {"max_in_flight_per_endpoint": 2}


@pytest.mark.parametrize(
    ("caps", "room"), [(TENANT_CAP, 2), (ENDPOINT_CAP, 2), ({"max_in_flight": 1}, 1), ({"max_in_flight": 3}, 3)]
)
@pytest.mark.parametrize("count", [30, 300])
async def test_busy_rows_take_no_more_than_half_of_the_turns(
    bench: EngineBench, count: int, caps: dict[str, int | None], room: int
) -> None:
    asked_once = 0.05 * count / room
    begun = 0.05 * 10 / room
    assert await seconds_behind_busy_rows(bench, count, caps) <= 2 * (asked_once + begun) + 0.2


@pytest.mark.parametrize("caps", [TENANT_CAP, ENDPOINT_CAP])
async def test_the_check_catches_busy_rows_that_come_back_before_all_others(
    monkeypatch: pytest.MonkeyPatch, caps: dict[str, int | None]
) -> None:
    monkeypatch.setattr("tocsin.engine.owner.Board", AllAtOnce)
    bench = EngineBench()
    await bench.start()
    assert await seconds_behind_busy_rows(bench, 300, caps) == 45


async def test_each_of_many_busy_rows_is_asked_for_again_in_turn(bench: EngineBench) -> None:
    tenant = await bench.a_tenant(max_in_flight=1)
    await bench.first.own()
    rows = await busy_rows(bench, tenant, 100)
    for _ in range(1000):
        await bench.advance(0.05)
        await bench.owner.reader.run_once()
        assert await bench.first.begin() == []
    asked = [item.row.run_id for items in bench.runs.begins for item in items]
    assert min(asked.count(row.run_id) for row in rows) >= 4


# --- reads ----------------------------------------------------------------------------------------------------------


async def begun_beside_busy_rows_of_a_full_endpoint(bench: EngineBench) -> int:
    """Of twenty rows of another endpoint, how many are begun in 20 seconds."""
    tenant = await bench.a_tenant(max_in_flight_per_endpoint=1000)
    slow, other = [
        await bench.a_task(tenant, call=CallSpec(url=f"https://{host}.example/hook"), schedule=bench.every(7200))
        for host in ("slow", "other")
    ]
    await bench.first.own()
    await busy_rows(bench, tenant, FULL + PAGE // 2)
    for _ in range(40):
        await bench.advance(0.05)
        await bench.owner.reader.run_once()
        assert await bench.first.begin() == []
    bench.replace_tenant(tenant, max_in_flight_per_endpoint=2)
    await bench.first.own()
    for _ in range(2):
        bench.put(slow, bench.clock.now() - 60 * SECOND)
    rows: set[UUID] = set()
    begun: set[UUID] = set()
    for turn in range(130):
        if turn == 30:  # the busy ones have come back once, and found their endpoint full
            rows = {bench.put(other, bench.clock.now() + n * 10 * MILLISECOND).run_id for n in range(20)}
        await bench.advance(0.2)
        await bench.owner.reader.run_once()
        for run in await bench.first.begin():
            begun.add(run.run_id)
            if run.task_id == other.id:
                await bench.first.end(run)
    return len(rows & begun)


async def test_busy_rows_keep_nothing_of_another_endpoint_from_being_read(bench: EngineBench) -> None:
    assert await begun_beside_busy_rows_of_a_full_endpoint(bench) == 20


class FillsItsQueues(AllAtOnce):
    """Broken: moreover, held rows of full endpoints stay in their queue."""

    def _set_waiting(self, refused: Sequence[tuple[Pending, Endpoint]]) -> None:
        super()._set_waiting([(row, endpoint) for row, endpoint in refused if not self.is_held(row)])


async def test_the_check_catches_busy_rows_that_fill_their_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.engine.owner.Board", FillsItsQueues)
    bench = EngineBench()
    await bench.start()
    assert await begun_beside_busy_rows_of_a_full_endpoint(bench) == 0


async def most_known_of_a_busy_task(bench: EngineBench) -> int:
    """Of 2,500 rows that wait for one run, how many memory knows at most."""
    task = await bench.a_task(schedule=bench.every(7200), overlap=Overlap.CANCEL_PREVIOUS)
    bench.put(task, bench.clock.now())
    await bench.go()
    for _ in range(2500):
        bench.put(task, bench.clock.now())
    most = 0
    for _ in range(60):
        await bench.advance(0.2)
        await bench.owner.reader.run_once()
        most = max(most, bench.owner.board.known_of(task.tenant_id, int(task.plan.priority)))
        await bench.first.begin()
    return most


async def test_reads_take_up_a_bounded_number_of_rows_that_wait(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.engine.read.ASIDE_FULL", PAGE)
    assert await most_known_of_a_busy_task(bench) <= PAGE + FULL


async def test_the_check_catches_reads_without_a_bound(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.engine.read.ASIDE_FULL", 1_000_000)
    assert await most_known_of_a_busy_task(bench) > PAGE + FULL


# --- how often, and how soon ----------------------------------------------------------------------------------------


async def busy_for(bench: EngineBench, seconds: float, *, elsewhere: bool) -> tuple[Task, list[Begun], int]:
    """A row whose task is busy; what is in flight, and how often the row was asked for meanwhile."""
    task = await bench.a_task(schedule=bench.every(7200), overlap=Overlap.BUFFER_ONE)
    begun: list[Begun] = []
    if elsewhere:
        bench.put(task, bench.clock.now() + timedelta(hours=1), fence=1)
    else:
        bench.put(task, bench.clock.now())
        begun = await bench.go()
    bench.put(task, bench.clock.now())
    await bench.first.own()
    await bench.first.read()
    bench.runs.begins.clear()
    for _ in range(round(seconds / 0.25)):
        assert await bench.first.begin() == []
        await bench.advance(0.25)
    return task, begun, len(bench.runs.begins)


async def test_a_row_whose_task_is_busy_here_is_asked_for_ever_less_and_begun_as_it_lands(bench: EngineBench) -> None:
    _, (run,), asked = await busy_for(bench, 120, elsewhere=False)
    assert 7 <= asked <= 10  # 0.5, 1, 2, 4, 8, 16, and every 30 seconds
    await bench.first.end(run)
    assert len(await bench.first.begin()) == 1


async def test_what_ends_elsewhere_is_found_within_five_seconds(bench: EngineBench) -> None:
    task, _, asked = await busy_for(bench, 60, elsewhere=True)
    assert 14 <= asked <= 18  # 0.5, 1, 2, 4, and every 5 seconds
    (earlier,) = [row for row in bench.pending(task) if row.fence]
    bench.database.pending.remove(earlier.run_id)
    begun: list[Begun] = []
    for _ in range(21):
        begun += await bench.first.begin()
        await bench.advance(0.25)
    assert len(begun) == 1


async def test_the_checks_catch_a_wait_that_does_not_grow(bench: EngineBench) -> None:
    bench.owner.beginner._config = BeginConfig(busy_retry_here=0.5, busy_retry_elsewhere=0.5)
    assert (await busy_for(bench, 60, elsewhere=True))[2] > 100
    assert (await busy_for(bench, 60, elsewhere=False))[2] > 100


async def begun_in_a_second_though_its_task_ended_meanwhile(bench: EngineBench) -> bool:
    """The run before it ends after the database said that it is busy, and before that answer is here."""
    _, (run,), _ = await busy_for(bench, 60, elsewhere=False)
    begin = bench.runs.begin

    async def ends_meanwhile(*args: Any, **how: Any) -> Any:
        result = await begin(*args, **how)
        bench.runs.begin = begin  # type: ignore[method-assign]
        await bench.first.end(run)
        return result

    bench.runs.begin = ends_meanwhile  # type: ignore[method-assign]
    while bench.owner.board.in_flight:
        await bench.first.begin()
        await bench.advance(0.25)
    for _ in range(4):
        if await bench.first.begin():
            return True
        await bench.advance(0.25)
    return False


async def test_an_end_that_the_answer_crosses_is_not_missed(bench: EngineBench) -> None:
    assert await begun_in_a_second_though_its_task_ended_meanwhile(bench)


async def test_the_check_catches_a_board_that_misses_it(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Board, "has_landed", lambda _self, _task_id: False)
    assert not await begun_in_a_second_though_its_task_ended_meanwhile(bench)
