"""Read: neither what is kept of a queue nor what is asked for grows with its backlog, and nothing is passed over."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from engine_bench import SECOND, EngineBench
from tocsin.common.models import Priority
from tocsin.common.store.rows import Pending, QueuePage, Task
from tocsin.engine.look import Look
from tocsin.engine.read import EVERYTHING, KNOWN_BEFORE, ReadConfig, Reader
from tocsin.engine.tenant import FULL, PAGE

LARGEST_PAGE = KNOWN_BEFORE + ReadConfig().glance
MILLISECOND = timedelta(milliseconds=1)


async def a_backlog(bench: EngineBench, old: int, fresh: int, cap: int = 1) -> tuple[Task, list[Pending]]:
    """A task with rows an hour old and rows that come due from now on, a millisecond apart, in queue order."""
    task = await bench.a_task(await bench.a_tenant(max_in_flight=cap), schedule=bench.every(7200))
    now = bench.clock.now()
    rows = [bench.put(task, now - timedelta(hours=1) + n * MILLISECOND) for n in range(old)]
    return task, rows + [bench.put(task, now + n * MILLISECOND) for n in range(fresh)]


async def check_bounds(bench: EngineBench, old: int, fresh: int, *, begins: bool = True) -> None:
    """Rounds of the reader over 24 seconds, with wake-ups, one call at a time."""
    task, _ = await a_backlog(bench, old, fresh)
    await bench.first.own()
    for _ in range(120):
        await bench.advance(0.2)
        bench.owner.reader.want([(task.tenant_id, int(task.plan.priority))])
        await bench.owner.reader.run_once()
        assert bench.owner.board.known_of(task.tenant_id, int(task.plan.priority)) <= FULL
        for run in await bench.first.begin() if begins else []:
            await bench.first.end(run)
    assert max(page.limit for page in bench.runs.pages) <= LARGEST_PAGE


BACKLOGS = pytest.mark.parametrize(("old", "fresh"), [(5000, 0), (0, 5000), (5000, 5000)])


@BACKLOGS
async def test_memory_and_pages_do_not_grow_with_the_backlog(bench: EngineBench, old: int, fresh: int) -> None:
    await check_bounds(bench, old, fresh)


async def test_nor_do_they_while_nothing_may_begin(bench: EngineBench) -> None:
    await check_bounds(bench, 3000, 3000, begins=False)


def growing(reader: Reader, key: tuple[UUID, int], limit: int, *, everything: bool) -> Look:
    """The page as it would be if all that memory knows stood before it, however full the queue."""
    scheduler = reader._board.tenants[key[0]]
    queue, margin = scheduler.queues[key[1]], reader._margin()
    start = (EVERYTHING if everything else margin, UUID(int=0))
    if not everything and queue.cursor is not None and queue.cursor[0] < margin:
        start = queue.cursor
    (lanes,) = scheduler.lanes
    return (QueuePage(key[0], Priority(key[1]), *lanes, limit + reader._board.known_of(*key), *start),)


@BACKLOGS
@pytest.mark.parametrize("full", [FULL, 1_000_000])
async def test_the_check_catches_reads_that_grow_with_what_is_known(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch, old: int, fresh: int, full: int
) -> None:
    monkeypatch.setattr(Reader, "_page", growing)
    monkeypatch.setattr("tocsin.engine.read.FULL", full)
    with pytest.raises(AssertionError):
        await check_bounds(bench, old, fresh)


async def begun_in_order(bench: EngineBench, disturb: Callable[[Task, int], None]) -> list[Pending]:
    """Begins a backlog of old and fresh rows whole; the rows, in the order in which they are to be begun."""
    task, rows = await a_backlog(bench, 1500, 1500, cap=40)
    await bench.first.own()
    begun: list[UUID] = []
    for turn in range(120):
        await bench.advance(0.2)
        disturb(task, turn)
        await bench.owner.reader.run_once()
        for run in await bench.first.begin():
            begun.append(run.run_id)
            await bench.first.end(run)
        if len(begun) == len(rows):
            break
    assert begun == [row.run_id for row in rows]
    return rows


async def test_a_backlog_is_begun_whole_and_in_order(bench: EngineBench) -> None:
    await begun_in_order(bench, lambda _task, _turn: None)


async def test_wake_ups_all_along_change_nothing_of_that(bench: EngineBench) -> None:
    await begun_in_order(bench, lambda task, _: bench.owner.reader.want([(task.tenant_id, int(task.plan.priority))]))


async def test_the_check_catches_a_reader_that_never_reads_on(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reader, "_pages_on", lambda _self, _queues: iter(()))
    with pytest.raises(AssertionError):
        await begun_in_order(bench, lambda _task, _turn: None)


async def seconds_until_known(bench: EngineBench, row: Pending) -> float:
    for turn in range(1, 120):
        await bench.advance(0.2)
        await bench.owner.reader.run_once()
        if bench.owner.board.knows(row):
            return turn * 0.2
    return 60


@pytest.mark.parametrize("waited", [3, 30])
async def test_what_commits_late_before_the_last_key_is_found_within_ten_seconds(
    bench: EngineBench, waited: int
) -> None:
    task, rows = await a_backlog(bench, 5000, 0)
    await bench.first.own()
    for _ in range(waited * 5):
        await bench.advance(0.2)
        await bench.owner.reader.run_once()
    late = bench.put(task, rows[5].due_at + timedelta(microseconds=500))
    assert await seconds_until_known(bench, late) <= 10.2


async def test_a_run_asked_for_now_is_found_at_once_before_a_peak_ahead(bench: EngineBench) -> None:
    task = await bench.a_task(await bench.a_tenant(), schedule=bench.every(7200))
    peak = bench.clock.now() + 4 * SECOND
    for _ in range(3000):
        bench.put(task, peak)
    await bench.first.own()
    await bench.owner.reader.run_once()
    now = bench.put(task, bench.clock.now())
    bench.owner.reader.want([(task.tenant_id, int(now.priority))])
    await bench.owner.reader.run_once()
    assert bench.owner.board.knows(now)


async def test_many_rows_that_come_before_the_last_key_are_bounded_and_begun_first(bench: EngineBench) -> None:
    """As when a dead process's runs are given back: more of them than memory takes, before all that it knows."""
    task, rows = await a_backlog(bench, 2000, 0, cap=50)
    await bench.first.own()
    await bench.owner.reader.run_once()
    before = [bench.put(task, rows[0].due_at - timedelta(hours=1) + n * MILLISECOND) for n in range(1500)]
    bench.owner.reader.want_everything([task.tenant_id])
    begun: list[UUID] = []
    for _ in range(100):
        await bench.owner.reader.run_once()
        assert bench.owner.board.known_of(task.tenant_id, int(task.plan.priority)) <= FULL
        for run in await bench.first.begin():
            begun.append(run.run_id)
            await bench.first.end(run)
        await bench.advance(0.2)
    assert sorted(begun) == sorted(row.run_id for row in (*before, *rows))
    assert begun[:PAGE] == [row.run_id for row in before[:PAGE]]
