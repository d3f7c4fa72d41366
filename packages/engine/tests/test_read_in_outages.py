"""The reader while the database is away: each round asks, so that none takes silence for an answer, and no turn is
lost."""

import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import pytest

from engine_bench import EngineBench
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.rows import MARGIN_SECONDS, Pending, QueuePage
from tocsin.engine import read
from tocsin.engine.read import EVERYTHING, Reader


async def rounds_that_say_it_is_back(bench: EngineBench) -> int:
    """In an outage of 20 s, after the round that noticed it."""
    await bench.a_task(schedule=bench.every(3600))
    await bench.first.own()
    await bench.owner.reader.run_once()
    bench.database.unavailable = True
    noticed, back = False, 0
    for _ in range(100):
        bench.clock.advance(0.2)
        try:
            await bench.owner.reader.run_once()
            back += noticed
        except StoreUnavailableError:
            noticed = True
    assert noticed
    return back


async def test_no_round_of_an_outage_passes_over_what_it_could_not_read(bench: EngineBench) -> None:
    assert await rounds_that_say_it_is_back(bench) == 0


async def every_turn_comes(bench: EngineBench) -> bool:
    """Old rows of many tenants are found by looks at everything, within 11 s, though every second round fails."""
    tasks = [await bench.a_task(schedule=bench.every(7200)) for _ in range(23)]
    await bench.first.own()
    await bench.owner.reader.run_once()
    rows = [bench.put(task, bench.clock.now() - timedelta(hours=1)) for task in tasks]
    failed = 0
    for number in range(44):
        await bench.advance(0.25)
        bench.runs.away["heads"] = 1_000 * (number % 2)
        try:
            await bench.owner.reader.run_once()
        except StoreUnavailableError:
            failed += 1
    assert failed
    return all(bench.owner.board.knows(row) for row in rows)


async def test_a_sweep_that_fails_is_done_by_the_next_round_with_its_turn(bench: EngineBench) -> None:
    assert await every_turn_comes(bench)


Gap = Callable[[EngineBench], Awaitable[None]]
"""Half a minute in which nothing is read."""


async def outage(bench: EngineBench) -> None:
    bench.database.unavailable = True
    for _ in range(60):
        bench.clock.advance(0.5)
        with contextlib.suppress(StoreUnavailableError):
            await bench.owner.reader.run_once()
    bench.database.unavailable = False


async def suspension(bench: EngineBench) -> None:
    """The machine sleeps; its monotonic clock stands still."""
    bench.clock.suspend(30)
    await bench.first.beat()


async def step(bench: EngineBench) -> None:
    """The database's clock is set on."""
    bench.clock.set_wall(bench.clock.now() + timedelta(seconds=30))
    await bench.first.beat()


async def seconds_until_all_is_read(bench: EngineBench, tenants: int, gap: Gap) -> float:
    """After the gap: of tasks that came due in each second of it, written before it."""
    tasks = [await bench.a_task(await bench.a_tenant(), schedule=bench.every(7200)) for _ in range(tenants)]
    await bench.first.own()
    rows = [bench.put(task, bench.clock.now() + timedelta(seconds=number)) for task in tasks for number in range(1, 30)]
    await bench.owner.reader.run_once()
    await gap(bench)
    for number in range(100):
        await bench.owner.reader.run_once()
        if all(bench.owner.board.knows(row) for row in rows):
            return number * 0.2
        bench.clock.advance(0.2)
    return math.inf


@pytest.mark.parametrize("gap", [outage, suspension, step], ids=lambda gap: gap.__name__)
@pytest.mark.parametrize("tenants", [1, 2, 7])
async def test_what_came_due_while_nothing_was_read_is_read_at_once_after_it(
    bench: EngineBench, tenants: int, gap: Gap
) -> None:
    assert await seconds_until_all_is_read(bench, tenants, gap) <= (0.4 if gap is outage else 2.2)


@pytest.mark.parametrize("gap", [suspension, step], ids=lambda gap: gap.__name__)
async def test_a_reader_that_goes_by_its_own_clock_is_caught(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch, gap: Gap
) -> None:
    owe = Reader._owe_what_was_passed

    def by_its_own(self: Reader, now: datetime) -> None:
        self._glanced = now
        owe(self, now)

    monkeypatch.setattr(Reader, "_owe_what_was_passed", by_its_own)
    assert await seconds_until_all_is_read(bench, 7, gap) > 5


async def known_though_the_clock_is_set_on_in_a_round(bench: EngineBench) -> bool:
    """After its beginning, before its look from the margin; by the round that follows."""
    task = await bench.a_task(schedule=bench.every(7200))
    await bench.a_task(await bench.a_tenant(), schedule=bench.every(7200))
    await bench.first.own()
    await bench.owner.reader.run_once()
    await bench.advance(2.0)
    await bench.owner.reader.run_once()
    row = bench.put(task, bench.clock.now() + timedelta(seconds=15))
    sweep = bench.owner.reader._sweep

    async def stepped() -> int:
        await step(bench)
        return await sweep()

    bench.owner.reader._sweep = stepped  # type: ignore[method-assign]
    bench.clock.advance(2.0)
    await bench.owner.reader.run_once()
    bench.owner.reader._sweep = sweep  # type: ignore[method-assign]
    await bench.owner.reader.run_once()
    return bench.owner.board.knows(row)


async def test_a_step_of_the_clock_within_a_round_is_seen(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await known_though_the_clock_is_set_on_in_a_round(bench)
    other = EngineBench()
    await other.start()
    monkeypatch.setattr(Reader, "_owe_what_was_passed", lambda *_: None)
    assert not await known_though_the_clock_is_set_on_in_a_round(other)


async def first_look_is_whole(bench: EngineBench, gap: Gap) -> bool:
    """The first answer after the gap is of what is oldest in all queues."""
    for _ in range(7):
        await bench.a_task(await bench.a_tenant(), schedule=bench.every(7200))
    await bench.first.own()
    await bench.owner.reader.run_once()
    await gap(bench)
    asked: list[list[QueuePage]] = []
    heads = bench.runs.heads

    async def watched(pages: Sequence[QueuePage], lead: float) -> list[Pending]:
        asked.append(list(pages))
        return await heads(pages, lead)

    bench.runs.heads = watched  # type: ignore[method-assign]
    await bench.owner.reader.run_once()
    first = asked[0] if asked else []
    return len({page.tenant_id for page in first}) == 7 and all(page.from_due == EVERYTHING for page in first)


@pytest.mark.parametrize("gap", [outage, suspension, step], ids=lambda gap: gap.__name__)
async def test_what_is_oldest_is_read_first_after_it(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch, gap: Gap
) -> None:
    assert await first_look_is_whole(bench, gap)
    other = EngineBench()
    await other.start()
    monkeypatch.setattr(Reader, "_owe_what_was_passed", lambda *_: None)
    assert not await first_look_is_whole(other, gap)


async def test_an_owner_that_had_no_tenants_does_not_read_all_of_them_twice(bench: EngineBench) -> None:
    await bench.first.own()
    for _ in range(60):
        await bench.advance(0.5)
        await bench.owner.reader.run_once()
    for _ in range(7):
        await bench.a_task(await bench.a_tenant(), schedule=bench.every(7200))
    await bench.first.own()
    whole: list[bool] = []
    heads = bench.runs.heads

    async def watched(pages: Sequence[QueuePage], lead: float) -> list[Pending]:
        whole.extend(page.from_due == EVERYTHING for page in pages)
        return await heads(pages, lead)

    bench.runs.heads = watched  # type: ignore[method-assign]
    await bench.advance(2.0)  # until it sweeps again
    await bench.owner.reader.run_once()
    assert any(whole)
    whole.clear()
    await bench.owner.reader.run_once()
    assert not any(whole)


async def test_a_reader_that_leaves_it_to_the_turns_is_caught(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MARGIN_SECONDS", math.inf)
    monkeypatch.setattr(Reader, "_margin", lambda self: self._database_clock.now() - timedelta(seconds=MARGIN_SECONDS))
    assert await seconds_until_all_is_read(bench, 7, outage) > 5


@pytest.fixture
def passes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a sweep that failed counts as done, and nobody notices that nothing was read for long."""
    run_once = Reader.run_once

    async def passing(self: Reader) -> dict[str, int]:
        last = self._last_sweep
        try:
            return await run_once(self)
        except StoreUnavailableError:
            self._last_sweep = max(last, self._clock.monotonic() - 1.0)
            raise

    monkeypatch.setattr(Reader, "run_once", passing)
    monkeypatch.setattr(Reader, "_owe_what_was_passed", lambda *_: None)


@pytest.mark.usefixtures("passes_over")
async def test_a_reader_that_takes_a_failed_sweep_for_done_is_caught(bench: EngineBench) -> None:
    assert await rounds_that_say_it_is_back(bench) > 0
    other = EngineBench()
    await other.start()
    assert not await every_turn_comes(other)
