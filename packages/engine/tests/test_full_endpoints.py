"""Full endpoints: one that is slow or dead keeps its tenant's other endpoints from nothing, in memory or behind it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from endpoint_scene import CAP, MILLISECOND, Scene
from engine_bench import SECOND, EngineBench
from tocsin.common.models import CallSpec, Priority
from tocsin.common.store.rows import Begun, Task
from tocsin.engine import read
from tocsin.engine.board import Board
from tocsin.engine.endpoints import QueueKey
from tocsin.engine.read import KNOWN_BEFORE, ReadConfig
from tocsin.engine.reviews import Reviews
from tocsin.engine.tenant import PAGE


async def seconds_behind_a_full_endpoint(bench: EngineBench, backlog: int) -> float:
    """The endpoint's backlog was there before; a run of another becomes due. Seconds until it is begun."""
    scene = Scene(bench)
    await scene.set(backlog)
    for _ in range(round(backlog / PAGE) + 10):  # so that the backlog was looked past
        await scene.round()
    return await scene.seconds_until_begun(bench.put(scene.other, bench.clock.now()), 30)


@pytest.mark.parametrize("backlog", [PAGE, 1000, 5000])
async def test_a_full_endpoint_delays_no_other_endpoint_by_more_than_one_sweep(
    bench: EngineBench, backlog: int
) -> None:
    assert await seconds_behind_a_full_endpoint(bench, backlog) <= 2.2


async def test_the_check_catches_a_board_that_keeps_what_is_refused_in_its_queue(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Board, "_set_waiting", lambda _self, _refused: None)
    assert await seconds_behind_a_full_endpoint(bench, 1000) == 30


async def test_at_a_take_over_a_backlog_is_looked_past_a_page_at_a_time(bench: EngineBench) -> None:
    scene = Scene(bench)
    await scene.set(3000)
    row = bench.put(scene.other, bench.clock.now() - 60 * SECOND)
    assert await scene.seconds_until_begun(row, 30) <= 0.2 * (3000 / PAGE + 3)


async def test_what_becomes_due_meanwhile_is_found_ahead_of_the_rows_that_are_looked_past(bench: EngineBench) -> None:
    scene = Scene(bench)
    await scene.set(20 * PAGE)
    for _ in range(5):
        await scene.round()
    assert await scene.seconds_until_begun(bench.put(scene.other, bench.clock.now()), 30) <= 2.2


async def test_of_several_full_endpoints_none_hides_the_others_rows(bench: EngineBench) -> None:
    scene = Scene(bench)
    await scene.set(0)
    start = bench.clock.now() - timedelta(hours=1)
    tasks = [await scene.a_task(f"slow{n}") for n in range(6)]
    rows = [bench.put(tasks[n % 6], start + n * MILLISECOND) for n in range(6 * PAGE)]
    scene.slow = tasks[0]
    row = bench.put(scene.other, bench.clock.now() - SECOND)
    hanging: list[Begun] = []
    for _ in range(60):
        await bench.advance(0.2)
        await bench.owner.reader.run_once()
        scene.check_memory()
        hanging += await bench.first.begin()
    assert row.run_id in {run.run_id for run in hanging}
    begun = [run.run_id for run in hanging]
    for _ in range(1000):
        for run in hanging:
            await bench.first.end(run)
        await bench.advance(0.05)
        await bench.owner.reader.run_once()
        scene.check_memory()
        hanging = await bench.first.begin()
        begun += [run.run_id for run in hanging]
        if len(begun) == len(rows) + 1:
            break
    assert sorted(begun) == sorted([*(r.run_id for r in rows), row.run_id])
    place = {run_id: n for n, run_id in enumerate(begun)}
    for n in range(6):  # each endpoint's own in order
        mine = [place[r.run_id] for r in rows[n::6]]
        assert mine == sorted(mine)


async def check_reads_of_many_full_endpoints(bench: EngineBench) -> None:
    """More full endpoints than memory has places for: once their rows were looked past, reads do not go on and on."""
    scene = Scene(bench)
    await scene.set(0)
    start = bench.clock.now() - timedelta(hours=1)
    tasks = [await scene.a_task(f"slow{n}") for n in range(40)]
    rows = [bench.put(tasks[n % 40], start + n * MILLISECOND) for n in range(40 * 60)]
    hanging: list[Begun] = []
    for _ in range(60):
        await bench.advance(0.2)
        await bench.owner.reader.run_once()
        hanging += await bench.first.begin()
        scene.check_memory()
    bench.runs.pages.clear()
    for _ in range(50):
        await bench.advance(0.2)
        await bench.owner.reader.run_once()
        assert await bench.first.begin() == []
        scene.check_memory()
    mine = [page for page in bench.runs.pages if page.priority == scene.slow.plan.priority]
    assert len(mine) <= 5 * 3, "a sweep's looks"
    begun = [run.run_id for run in hanging]
    for _ in range(600):
        for run in hanging:
            await bench.first.end(run)
        await bench.advance(0.1)
        await bench.owner.reader.run_once()
        hanging = await bench.first.begin()
        begun += [run.run_id for run in hanging]
        scene.check_memory()
    assert sorted(begun) == sorted(row.run_id for row in rows)


async def test_reads_of_many_full_endpoints_come_to_rest_and_all_is_begun_in_the_end(bench: EngineBench) -> None:
    await check_reads_of_many_full_endpoints(bench)


async def test_the_check_catches_a_board_that_wants_what_it_has_no_place_for(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(self: Board, key: QueueKey, endpoint: str) -> bool:
        return self.endpoints.waiting((key[0], endpoint), key[1]) < PAGE // 2

    monkeypatch.setattr(Board, "wants", few)
    with pytest.raises(AssertionError, match="a sweep's looks"):
        await check_reads_of_many_full_endpoints(bench)


async def begun_whole(bench: EngineBench) -> None:
    """The slow endpoint answers again: its backlog is begun whole, in order and each once."""
    scene = Scene(bench)
    await scene.set(1500)
    for _ in range(20):
        await scene.round()
    scene.answers = True
    for _ in range(1000):
        await scene.round(0.05)
        if len(scene.begun) >= len(scene.rows):
            break
    assert scene.begun == [row.run_id for row in scene.rows]


async def test_what_was_looked_past_is_begun_in_order_once_the_endpoint_answers(bench: EngineBench) -> None:
    await begun_whole(bench)


async def test_the_check_catches_a_reader_that_does_not_come_back(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "behind", lambda _board: iter(()))
    with pytest.raises(AssertionError):
        await begun_whole(bench)


async def test_reads_stay_bounded_while_an_endpoint_is_full(bench: EngineBench) -> None:
    scene = Scene(bench)
    await scene.set(5000)
    for _ in range(40):
        await scene.round()
    bench.runs.pages.clear()
    for _ in range(50):
        await scene.round()
    assert max(page.limit for page in bench.runs.pages) <= KNOWN_BEFORE + ReadConfig().glance
    assert sum(page.limit for page in bench.runs.pages) <= 5 * 4 * (KNOWN_BEFORE + PAGE)  # of sweeps alone
    scene.check_memory()


async def test_a_row_that_commits_late_behind_what_was_looked_past_is_found(bench: EngineBench) -> None:
    scene = Scene(bench)
    await scene.set(3000)
    for _ in range(30):
        await scene.round()
    late = bench.put(scene.other, scene.rows[2000].due_at + MILLISECOND / 2)
    assert await scene.seconds_until_begun(late, 120) < 120


async def seconds_until_the_caps_are_gone(bench: EngineBench, **changes: object) -> int:
    """A full endpoint's tenant is given another limit: rows begun in the next five seconds."""
    scene = Scene(bench)
    await scene.set(1000)
    for _ in range(10):
        await scene.round()
    bench.replace_tenant(scene.tenant, **changes)
    await bench.first.own()
    before = len(scene.begun)
    for _ in range(25):
        await bench.advance(0.2)
        await bench.owner.reader.run_once()
        scene.begun += [run.run_id for run in await bench.first.begin()]
    return len(scene.begun) - before


@pytest.mark.parametrize(("limit", "more"), [(None, 998), (12, 10)])
async def test_a_new_limit_holds_for_what_waits(bench: EngineBench, limit: int | None, more: int) -> None:
    assert await seconds_until_the_caps_are_gone(bench, max_in_flight_per_endpoint=limit) == more


async def test_rows_that_were_begun_to_no_call_leave_their_room_to_those_that_wait(bench: EngineBench) -> None:
    """Chosen, and gone at their begin: nothing is in flight, and nothing will land."""
    scene = Scene(bench)
    await scene.set(10)
    await bench.owner.reader.run_once()
    for row in scene.rows[:CAP]:
        bench.database.pending.remove(row.run_id)
    assert await bench.first.begin() == []
    assert [run.run_id for run in await bench.first.begin()] == [row.run_id for row in scene.rows[CAP : 2 * CAP]]


async def test_of_what_waits_the_urgent_goes_first_and_the_others_are_not_starved(bench: EngineBench) -> None:
    scene = Scene(bench)
    await scene.set(0)
    scene.answers = True
    now = bench.clock.now()
    low = bench.put(scene.slow, now - 2 * SECOND, priority=Priority.LOW)
    critical = [bench.put(scene.slow, now - SECOND + n * MILLISECOND, priority=Priority.CRITICAL) for n in range(100)]
    for _ in range(80):
        await scene.round(0.05)
    assert scene.begun[:19] == [row.run_id for row in critical[:19]]
    assert scene.begun.index(low.run_id) <= 20


async def seconds_until_the_new_url_is_called(bench: EngineBench) -> float:
    """A tenant edits the URL of a task whose run waits for a dead endpoint. Seconds until that run is begun."""
    scene = Scene(bench)
    await scene.set(50)
    task = await scene.a_task("slow")
    row = bench.put(task, bench.clock.now())
    for _ in range(60):
        await scene.round()
    assert row.run_id not in scene.begun
    call = CallSpec(url="https://better.example/hook")
    bench.database.tasks[task.id] = replace(bench.database.tasks[task.id], call=call, version=task.version + 1)
    return await scene.seconds_until_begun(row, 30)


async def test_an_edited_url_takes_its_run_out_of_the_old_ones_wait_within_ten_seconds(bench: EngineBench) -> None:
    assert await seconds_until_the_new_url_is_called(bench) <= 10.4


async def test_the_check_catches_a_wait_that_is_never_reviewed(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_self: Reviews) -> None:
        """Broken: what waits, waits for the endpoint that it had."""

    monkeypatch.setattr(Reviews, "run_once", never)
    assert await seconds_until_the_new_url_is_called(bench) == 30


async def test_what_is_dropped_with_its_tenant_waits_no_more(bench: EngineBench) -> None:
    scene = Scene(bench)
    await scene.set(1000)
    for _ in range(5):
        await scene.round()
    board = bench.owner.board
    board.drop_tenant(scene.tenant.id)
    assert board.known_of(scene.tenant.id, int(scene.slow.plan.priority)) == 0
    assert not any(board.knows(row) for row in scene.rows)


async def test_an_earlier_pair_that_waits_gives_way_to_a_later_one(bench: EngineBench) -> None:
    scene = Scene(bench)
    await scene.set(10)
    await scene.round()
    board = bench.owner.board
    row = scene.rows[5]
    assert board.knows(row)
    bench.database.pending.remove(row.run_id)
    later = bench.put(scene.slow, row.due_at, run_id=row.run_id, fence=1)
    assert board.add(later)
    scene.answers = True
    for _ in range(20):
        await scene.round()
    assert sorted(scene.begun) == sorted(r.run_id for r in scene.rows)


async def begun_under_a_cap_set_late(bench: EngineBench) -> list[int]:
    """Three calls are in flight as their endpoint gets a cap of three. What is begun then, and once one has ended."""
    task = await bench.a_task(schedule=bench.every(7200))
    rows = [bench.put(task, bench.clock.now()) for _ in range(3)]
    flying = await bench.go()
    assert len(flying) == len(rows)
    await bench.store.tenants.set_limits(task.tenant_id, lambda old: replace(old, max_in_flight_per_endpoint=3))
    rows += [bench.put(task, bench.clock.now()) for _ in range(5)]
    at_first = await bench.go()
    await bench.first.end(flying[0])
    return [len(at_first), len(await bench.go())]


async def test_a_cap_counts_what_was_begun_before_it_was_set(bench: EngineBench) -> None:
    assert await begun_under_a_cap_set_late(bench) == [0, 1]


async def test_the_check_catches_a_board_that_counts_under_a_cap_alone(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Board.take_flight

    def under_a_cap(self: Board, run: Begun, task: Task | None) -> None:
        take(self, run, None if self._endpoint_cap(run.tenant_id) is None else task)

    monkeypatch.setattr(Board, "take_flight", under_a_cap)
    assert await begun_under_a_cap_set_late(bench) == [3, 0]
