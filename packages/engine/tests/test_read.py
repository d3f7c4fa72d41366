"""Read: what is due comes into memory in order, whatever the queue's length, and whenever it was committed."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from engine_bench import SECOND, EngineBench
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.models import Overlap, Priority
from tocsin.common.store.rows import MARGIN_SECONDS, Pending
from tocsin.engine.board import Board
from tocsin.engine.look import queues_of
from tocsin.engine.read import EVERYTHING, Reader
from tocsin.engine.tenant import PAGE


async def rounds(bench: EngineBench, seconds: float, every: float = 0.2) -> int:
    """The reader's own rounds for so long; what it added."""
    added = 0
    for _ in range(round(seconds / every)):
        await bench.advance(every)
        added += (await bench.owner.reader.run_once())["added"]
    return added


async def begin_all(bench: EngineBench, seconds: float) -> list[UUID]:
    """The reader's rounds with begins between them, every run ending at once; the runs in the order of their begins."""
    begun: list[UUID] = []
    for _ in range(round(seconds / 0.2)):
        await bench.advance(0.2)
        await bench.owner.reader.run_once()
        for run in await bench.first.begin():
            begun.append(run.run_id)
            await bench.first.end(run)
    return begun


async def test_a_turn_brings_what_is_due_within_the_far_lead_into_memory_and_nothing_later(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(3600))
    now = bench.clock.now()
    near, far, farther = (bench.put(task, now + seconds * SECOND) for seconds in (4.9, 14.9, 16))
    await bench.first.own()
    await bench.owner.reader.run_once()
    assert bench.owner.board.knows(near)
    assert bench.owner.board.knows(far)
    assert not bench.owner.board.knows(farther)
    assert bench.calls.expected == [(near.due_at, task.id), (far.due_at, task.id)]


async def test_between_the_turns_what_is_due_within_the_lead_is_read_and_nothing_later(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(3600))
    await bench.first.own()
    await bench.owner.reader.run_once()
    now = bench.clock.now()
    near, far = bench.put(task, now + 6.9 * SECOND), bench.put(task, now + 8 * SECOND)
    await bench.advance(2.0)
    await bench.owner.reader.run_once()
    assert bench.owner.board.knows(near)
    assert not bench.owner.board.knows(far)


async def test_the_most_urgent_queues_of_all_tenants_are_read_first(bench: EngineBench) -> None:
    tasks = [await bench.a_task(schedule=bench.every(3600)) for _ in range(2)]
    await bench.first.own()
    tenants = [task.tenant_id for task in tasks]
    assert queues_of(bench.owner.board, [*tenants, UUID(int=1)]) == [(t, p) for p in range(4) for t in tenants]


@pytest.mark.parametrize("age", [0, 3600])
async def test_a_queue_longer_than_its_page_is_begun_whole_and_in_order(bench: EngineBench, age: int) -> None:
    task = await bench.a_task(await bench.a_tenant(max_in_flight=100), schedule=bench.every(7200))
    start = bench.clock.now() - timedelta(seconds=age)
    rows = [bench.put(task, start + timedelta(milliseconds=n)) for n in range(1000)]
    await bench.first.own()
    assert await begin_all(bench, 10) == [row.run_id for row in rows]
    assert max(page.limit for page in bench.runs.pages) < 3 * PAGE


async def late_commit(bench: EngineBench) -> float:
    """A deep backlog is read on from its last key; a row commits behind that key. Seconds until it is known."""
    task = await bench.a_task(await bench.a_tenant(max_in_flight=1), schedule=bench.every(7200))
    old = bench.clock.now() - timedelta(hours=1)
    for n in range(600):
        bench.put(task, old + timedelta(milliseconds=n))
    await bench.first.own()
    await rounds(bench, 3)
    row = bench.put(task, old + timedelta(microseconds=1500))
    seconds = 0.0
    while not bench.owner.board.knows(row) and seconds < 60:
        await rounds(bench, 0.2)
        seconds += 0.2
    return seconds


async def test_a_row_that_commits_behind_the_last_key_is_found_within_ten_seconds(bench: EngineBench) -> None:
    assert await late_commit(bench) <= 10.2


async def test_the_check_catches_a_reader_that_never_starts_at_the_beginning(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Reader._page

    def never(self: Reader, key: tuple[UUID, int], limit: int, *, everything: bool) -> Any:
        return page(self, key, limit, everything=False)

    monkeypatch.setattr(Reader, "_page", never)
    assert await late_commit(bench) > 20


async def test_a_row_that_commits_late_within_the_margin_is_found_by_the_next_sweep(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(7200))
    await bench.first.own()
    await rounds(bench, 3)
    row = bench.put(task, bench.clock.now() - (MARGIN_SECONDS - 3) * SECOND)
    assert await rounds(bench, 2.2) == 1
    assert bench.owner.board.knows(row)


async def test_at_take_over_everything_is_read_however_old(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(7200))
    row = bench.put(task, bench.clock.now() - timedelta(days=9))
    await bench.first.own()
    await bench.owner.reader.run_once()
    assert bench.owner.board.knows(row)
    assert bench.runs.pages[0].from_due == EVERYTHING


async def test_every_tenant_has_its_turn_of_a_full_read_within_ten_seconds(bench: EngineBench) -> None:
    tasks = [await bench.a_task(schedule=bench.every(7200)) for _ in range(23)]
    await bench.first.own()
    await rounds(bench, 3)
    rows = [bench.put(task, bench.clock.now() - timedelta(hours=1)) for task in tasks]
    await rounds(bench, 10.2)
    assert all(bench.owner.board.knows(row) for row in rows)


async def test_a_wake_up_reads_at_once_and_only_its_queue(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(7200))
    await bench.first.own()
    await bench.owner.reader.run_once()
    bench.runs.pages.clear()
    row = bench.put(task, bench.clock.now())
    bench.owner._queues_changed([(task.tenant_id, int(row.priority)), (UUID(int=1), 0)])
    await bench.owner.reader.run_once()
    assert bench.owner.board.knows(row)
    assert [(page.tenant_id, page.priority) for page in bench.runs.pages] == [(task.tenant_id, Priority.NORMAL)]


@pytest.mark.parametrize("statement", ["heads", "definitions"])
@pytest.mark.parametrize("path", ["take_over", "wake"])
async def test_a_read_that_failed_is_done_again(bench: EngineBench, statement: str, path: str) -> None:
    task = await bench.a_task(schedule=bench.every(7200))
    row: Pending
    if path == "take_over":
        row = bench.put(task, bench.clock.now() - timedelta(hours=1))
        await bench.first.own()
    else:
        await bench.first.own()
        await bench.owner.reader.run_once()
        row = bench.put(task, bench.clock.now())
        bench.owner.reader.want([(task.tenant_id, 2)])
    definitions = bench.store.tasks.definitions
    if statement == "heads":
        bench.runs.away["heads"] = 1_000
    else:

        async def away(task_ids: Sequence[UUID]) -> Any:
            raise StoreUnavailableError("away")

        bench.store.tasks.definitions = away  # type: ignore[method-assign]
    with suppress(StoreUnavailableError):
        await bench.owner.reader.run_once()
    assert not bench.owner.board.knows(row)
    bench.runs.away.clear()
    bench.store.tasks.definitions = definitions  # type: ignore[method-assign]
    await bench.owner.reader.run_once()
    assert bench.owner.board.knows(row)


async def test_what_could_not_be_admitted_is_not_passed_over(bench: EngineBench) -> None:
    """A full page whose definitions could not be read: the next page begins where memory ends, not after it."""
    task = await bench.a_task(await bench.a_tenant(max_in_flight=1000), schedule=bench.every(7200))
    rows = [bench.put(task, bench.clock.now() - timedelta(hours=1) + n * SECOND / 1000) for n in range(400)]
    definitions = bench.store.tasks.definitions

    async def away(task_ids: Sequence[UUID]) -> Any:
        raise StoreUnavailableError("away")

    bench.store.tasks.definitions = away  # type: ignore[method-assign]
    await bench.first.own()
    await bench.owner.reader.run_once()
    scheduler = bench.owner.board.tenants[task.tenant_id]
    assert scheduler.queues[2].cursor is None
    bench.store.tasks.definitions = definitions  # type: ignore[method-assign]
    assert await begin_all(bench, 3) == [row.run_id for row in rows]


async def behind_rows_kept_aside(bench: EngineBench) -> bool:
    """More rows of busy tasks than a page has are aside; then another becomes due. Whether a wake-up finds it."""
    tenant = await bench.a_tenant()
    for _ in range(2 * PAGE + 50):
        task = await bench.a_task(tenant, schedule=bench.every(7200), overlap=Overlap.CANCEL_PREVIOUS)
        bench.put(task, bench.clock.now() + timedelta(hours=1), fence=1)  # waits for its retry
        bench.put(task, bench.clock.now())
    bench.store.runs.cancel_of_tasks = nothing_cancelled  # type: ignore[method-assign]
    await bench.go()
    last = bench.put(await bench.a_task(tenant, schedule=bench.every(7200)), bench.clock.now() + SECOND / 10)
    bench.owner.reader.want([(tenant.id, Priority.NORMAL)])
    await bench.owner.reader.run_once()
    return bench.owner.board.knows(last)


async def test_rows_kept_aside_do_not_hide_those_behind_them(bench: EngineBench) -> None:
    assert await behind_rows_kept_aside(bench)


async def test_the_check_catches_a_page_that_counts_queued_rows_only(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def queued(self: Board, tenant_id: UUID, priority: int) -> int:
        return len(self.tenants[tenant_id].queues[priority])

    monkeypatch.setattr(Board, "known_of", queued)
    assert not await behind_rows_kept_aside(bench)


async def nothing_cancelled(task_ids: Sequence[UUID]) -> list[UUID]:
    return []


async def test_no_statement_reads_more_than_a_batch_unless_one_queue_alone_has_more(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    heads = bench.runs.heads

    async def counted(pages: Sequence[Any], lead: float) -> list[Pending]:
        sizes.append(sum(page.limit for page in pages))
        return await heads(pages, lead)

    bench.runs.heads = counted  # type: ignore[method-assign]
    for _ in range(12):
        task = await bench.a_task(schedule=bench.every(7200))
        for _ in range(PAGE):
            bench.put(task, bench.clock.now() + 4 * SECOND)
    await bench.first.own()
    await rounds(bench, 2.4)
    assert max(sizes) <= 2048


async def test_rows_are_taken_up_a_hundred_at_a_time(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that calls are never held up: the loop has a turn in between."""
    turns = 0

    async def turn(_seconds: float) -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr("tocsin.engine.read.asyncio.sleep", turn)
    task = await bench.a_task(schedule=bench.every(7200))
    rows = [bench.put(task, bench.clock.now()) for _ in range(250)]
    await bench.first.own()
    before = turns
    assert await bench.owner.reader._admit(rows) == 250
    assert turns - before >= 3


async def test_an_answer_that_is_older_than_a_begin_makes_no_second_call(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(7200))
    row = bench.put(task, bench.clock.now())
    await bench.go()
    assert not bench.owner.board.add(row)  # as a read does whose snapshot was taken before the begin
    assert await bench.first.begin() == []
    assert not bench.owner.board.knows(row)
    assert len(bench.calls.orders) == 1


async def test_the_age_of_the_oldest_due_row_is_told(bench: EngineBench) -> None:
    task = await bench.a_task(await bench.a_tenant(max_in_flight=1), schedule=bench.every(7200))
    bench.put(task, bench.clock.now() - 30 * SECOND)
    await bench.first.own()
    await bench.owner.reader.run_once()
    assert bench.first.meter.gauges["tocsin_due_oldest_age_seconds",] == pytest.approx(30, abs=0.1)
