"""Rows left in the database, since too many wait for their endpoint: they hide no other, and are reviewed."""

from collections.abc import Container
from dataclasses import replace
from typing import Any

import pytest

from endpoint_scene import MILLISECOND, Scene
from engine_bench import SECOND, EngineBench
from tocsin.common.models import CallSpec
from tocsin.common.store.rows import Task
from tocsin.engine.endpoints import QueueKey
from tocsin.engine.look import Laps, all_from
from tocsin.engine.read import KNOWN_BEFORE, ReadConfig, Reader
from tocsin.engine.tenant import PAGE, RowKey

EARLY: RowKey = (EngineBench().clock.now(), EngineBench().ids.new())
LATE: RowKey = (EARLY[0] + SECOND, EARLY[1])
LATER: RowKey = (EARLY[0] + 2 * SECOND, EARLY[1])
A: QueueKey = (EARLY[1], 1)
B: QueueKey = (EARLY[1], 2)


class Rush:
    """A dead endpoint with a backlog, and more and more rows of it due every second."""

    def __init__(self, bench: EngineBench, rate: int) -> None:
        self.bench = bench
        self.rate = rate
        self.scene = Scene(bench)

    async def set(self, backlog: int) -> None:
        await self.scene.set(backlog)
        for _ in range(120):
            await self.round()
        assert self.scene.tenant.id in self.bench.owner.board.tenants
        queue = self.bench.owner.board.tenants[self.scene.tenant.id].queues[int(self.scene.slow.plan.priority)]
        assert queue.left

    async def round(self) -> None:
        now = self.bench.clock.now()
        for number in range(self.rate // 5):
            self.bench.put(self.scene.slow, now + 6 * SECOND + number * SECOND / self.rate)
        await self.scene.round()

    async def seconds_until_begun(self, task: Task, at_most: int, *, wakes: bool) -> float:
        row = self.bench.put(task, self.bench.clock.now())
        if wakes:
            self.bench.owner.reader.want([(row.tenant_id, int(row.priority))])
        for turn in range(at_most * 5):
            if row.run_id in self.scene.begun:
                return turn * 0.2
            await self.round()
        return at_most


async def seconds_behind_a_rush(bench: EngineBench, rate: int, backlog: int, *, wakes: bool = True) -> float:
    """A run of a healthy endpoint is asked for, while another's rows pour in that are left."""
    rush = Rush(bench, rate)
    await rush.set(backlog)
    return await rush.seconds_until_begun(rush.scene.other, 20, wakes=wakes)


@pytest.mark.parametrize(("rate", "backlog"), [(200, 0), (200, 3000), (500, 0)])
async def test_a_run_asked_for_now_is_found_at_once_among_rows_that_are_left(
    bench: EngineBench, rate: int, backlog: int
) -> None:
    assert await seconds_behind_a_rush(bench, rate, backlog) <= 1


async def test_without_its_wake_up_it_is_found_by_the_next_sweeps(bench: EngineBench) -> None:
    assert await seconds_behind_a_rush(bench, 200, 0, wakes=False) <= 5


async def test_the_check_catches_a_reader_that_does_not_follow_its_looks(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_self: Reader) -> int:
        return 0

    monkeypatch.setattr(Reader, "_follow", nothing)
    assert await seconds_behind_a_rush(bench, 200, 0) == 20


async def check_what_a_round_reads(bench: EngineBench) -> None:
    rush = Rush(bench, 500)
    await rush.set(0)
    reads = ReadConfig()
    looks = 2 * (KNOWN_BEFORE + reads.glance) + PAGE  # a wake-up's, a sweep's, and a page on
    for _ in range(20):
        bench.runs.pages.clear()
        bench.owner.reader.want([(rush.scene.tenant.id, int(rush.scene.slow.plan.priority))])
        await rush.round()
        mine = [page.limit for page in bench.runs.pages if page.priority == rush.scene.slow.plan.priority]
        assert max(mine) <= KNOWN_BEFORE + reads.glance
        assert sum(mine) <= looks + PAGE + reads.followed * KNOWN_BEFORE


async def test_what_a_round_reads_does_not_grow_with_what_is_left(bench: EngineBench) -> None:
    await check_what_a_round_reads(bench)


async def test_the_check_catches_a_round_that_follows_its_looks_to_the_end(bench: EngineBench) -> None:
    bench.owner.reader._config = replace(ReadConfig(), followed=1000)
    with pytest.raises(AssertionError):
        await check_what_a_round_reads(bench)


def test_a_lap_goes_on_from_its_key_and_ends() -> None:
    laps = Laps()
    laps.begin(A, EARLY)
    laps.move(A, LATE)
    assert list(laps) == [(A, LATE)]
    laps.move(A, None)
    assert list(laps) == []


def test_a_look_made_during_a_lap_has_its_own_after_it() -> None:
    laps = Laps()
    laps.begin(A, EARLY)
    laps.begin(A, LATER)
    laps.begin(A, LATE)
    assert list(laps) == [(A, EARLY)]
    laps.move(A, None)
    assert list(laps) == [(A, LATE)]
    laps.move(A, None)
    assert list(laps) == []


def test_laps_take_turns_and_are_forgotten_with_their_tenant() -> None:
    laps = Laps()
    laps.begin(A, EARLY)
    laps.begin(B, EARLY)
    laps.begin(B, LATE)
    laps.move(A, LATE)
    assert [key for key, _ in laps] == [B, A]
    laps.keep({A[0]})
    assert len(list(laps)) == 2
    laps.keep(set())
    assert list(laps) == []
    laps.begin(B, EARLY)
    laps.move(B, None)
    assert list(laps) == []


async def seconds_until_a_left_row_is_freed(bench: EngineBench, backlog: int) -> float:
    """A tenant edits the URL of a task whose run was left. Seconds until that run is begun."""
    scene = Scene(bench)
    await scene.set(backlog)
    task = await scene.a_task("slow")
    row = bench.put(task, bench.clock.now())
    for _ in range(100):
        await scene.round()
    assert not bench.owner.board.knows(row)
    call = CallSpec(url="https://better.example/hook")
    bench.database.tasks[task.id] = replace(bench.database.tasks[task.id], call=call, version=task.version + 1)
    return await scene.seconds_until_begun(row, 60)


async def test_an_edited_url_frees_a_row_that_was_left(bench: EngineBench) -> None:
    assert await seconds_until_a_left_row_is_freed(bench, 1000) <= 30.4


async def test_the_check_catches_a_reader_that_leaves_rows_by_an_old_definition(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit: Any = Reader._admit

    async def unreviewed(self: Reader, rows: Any, _review: Container[QueueKey] = ()) -> int:
        added: int = await admit(self, rows)
        return added

    monkeypatch.setattr(Reader, "_admit", unreviewed)
    assert await seconds_until_a_left_row_is_freed(bench, 1000) == 60


async def seconds_until_one_is_freed_in_a_rush(bench: EngineBench) -> float:
    """More rows of the dead endpoint become due than the looks at all of the queue pass; they passed the edited one."""
    rush = Rush(bench, 100)
    await rush.set(0)
    scene = rush.scene
    task = await scene.a_task("slow")
    row = bench.put(task, bench.clock.now())
    for _ in range(150):
        await rush.round()
    assert not bench.owner.board.knows(row)
    queue = bench.owner.board.tenants[scene.tenant.id].queues[int(row.priority)]
    queue.looked = (row.due_at + MILLISECOND, row.run_id)
    call = CallSpec(url="https://better.example/hook")
    bench.database.tasks[task.id] = replace(bench.database.tasks[task.id], call=call, version=task.version + 1)
    for turn in range(750):
        if row.run_id in scene.begun:
            return turn * 0.2
        await rush.round()
    return 150


async def test_looks_at_all_of_a_queue_come_round_however_many_rows_become_due(bench: EngineBench) -> None:
    assert await seconds_until_one_is_freed_in_a_rush(bench) < 150


async def test_the_check_catches_looks_that_go_on_to_an_end_that_runs_away(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.engine.read.begin_all", lambda queue, _margin: all_from(queue))
    assert await seconds_until_one_is_freed_in_a_rush(bench) == 150


async def check_a_woken_queue_is_reviewed(bench: EngineBench) -> None:
    """The row is due soon, so that a look from the margin finds it, when its edit and the wake-up come."""
    scene = Scene(bench)
    await scene.set(20 * PAGE)
    task = await scene.a_task("slow")
    row = bench.put(task, bench.clock.now() + 20 * SECOND)
    for _ in range(100):
        await scene.round()
    assert not bench.owner.board.knows(row)
    call = CallSpec(url="https://better.example/hook")
    bench.database.tasks[task.id] = replace(bench.database.tasks[task.id], call=call, version=task.version + 1)
    bench.owner.reader.want([(row.tenant_id, int(row.priority))])
    assert await scene.seconds_until_begun(row, 8) <= 4.4


async def test_a_wake_up_has_the_rows_of_the_next_look_from_the_margin_reviewed(bench: EngineBench) -> None:
    await check_a_woken_queue_is_reviewed(bench)


async def test_the_check_catches_wake_ups_that_are_not_remembered(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgets(self: Reader, queues: Any) -> None:
        self._wanted.update(dict.fromkeys(queues))

    monkeypatch.setattr(Reader, "want", forgets)
    with pytest.raises(AssertionError):
        await check_a_woken_queue_is_reviewed(bench)


async def most_reviewed_in_a_round(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> int:
    """Many tenants with a dead endpoint each, and a task a row. All are reviewed in turn; the most of one round."""
    read: list[Any] = []
    definitions = bench.store.tasks.definitions

    async def counted(task_ids: Any) -> Any:
        read.extend(task_ids)
        return await definitions(task_ids)

    waiting: set[Any] = set()
    for number in range(20):
        tenant = await bench.a_tenant(max_in_flight_per_endpoint=1)
        call = CallSpec(url=f"https://dead{number}.example/")
        for n in range(60):
            task = await bench.a_task(tenant, call, schedule=bench.every(7200))
            bench.put(task, bench.clock.now() - SECOND + n * MILLISECOND)
            waiting |= {task.id} if n else set()
    await bench.first.own()
    await bench.owner.reader.run_once()
    await bench.first.begin()
    monkeypatch.setattr(bench.store.tasks, "definitions", counted)
    most, seen = 0, set()
    for _ in range(75):
        await bench.advance(0.2)
        read.clear()
        await bench.owner.reader.run_once()
        await bench.first.begin()
        most = max(most, len(read))
        seen |= set(read)
    assert waiting <= seen
    return most


async def test_reviews_of_many_tenants_are_spread_over_the_rounds(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.engine.reviews.AT_ONCE", 50)
    assert await most_reviewed_in_a_round(bench, monkeypatch) <= 50


async def test_the_check_catches_reviews_made_all_at_once(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.engine.reviews.AT_ONCE", 1_000_000)
    assert await most_reviewed_in_a_round(bench, monkeypatch) > 50
