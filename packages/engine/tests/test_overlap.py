"""Overlap: what becomes of a run whose task is busy, by each policy, and what that costs others."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from engine_bench import SECOND, EngineBench, a_due_task
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.models import Kind, Misfire, Overlap
from tocsin.common.states import RunState
from tocsin.common.store.rows import BeginItem, BeginResult, Begun, Outcome, SkipReason, Task
from tocsin.engine.begin import Beginner


async def round_of(bench: EngineBench) -> list[Begun]:
    """Begins until nothing changes any more."""
    begun: list[Begun] = []
    while True:
        before = len(bench.runs.begins)
        begun += await bench.first.begin()
        if len(bench.runs.begins) == before:
            return begun


async def test_b37_skip_records_the_slots_of_a_busy_task(bench: EngineBench) -> None:
    task = await a_due_task(bench, schedule=bench.every(2), overlap=Overlap.SKIP)
    (run,) = await round_of(bench)
    for _ in range(3):
        await bench.advance(2)
        assert await round_of(bench) == []
    assert len(bench.running(task)) == 1
    assert len(bench.skips(task, SkipReason.OVERLAP)) >= 2
    await bench.first.end(run)
    await bench.advance(2)
    assert len(await round_of(bench)) == 1


async def test_b37_buffer_one_holds_one_slot_and_the_passed_ones_are_one_skip(bench: EngineBench) -> None:
    task = await a_due_task(bench, schedule=bench.every(2), overlap=Overlap.BUFFER_ONE, misfire=Misfire.SKIP)
    (run,) = await round_of(bench)
    for _ in range(50):
        await bench.advance(2)
        assert await round_of(bench) == []
        assert len(bench.pending(task)) == 1
    await bench.first.end(run)
    (held,) = await round_of(bench)
    (passed,) = bench.skips(task, SkipReason.OVERLAP)
    assert held.slot is not None
    assert (passed.slot, passed.last_slot) == (held.slot + 2 * SECOND, held.slot)
    assert passed.until_slot == bench.clock.now()
    assert passed.skip_count == 49
    assert bench.skips(task, SkipReason.MISFIRE) == []  # its grace did not run
    assert len(bench.running(task)) == 1


async def busy_with_runs_by_hand(bench: EngineBench, overlap: Overlap) -> tuple[Task, Begun]:
    task = await bench.a_task(schedule=bench.every(7200), overlap=overlap)
    bench.put(task, bench.clock.now())
    (run,) = await bench.go()
    for _ in range(20):
        bench.put(task, bench.clock.now())
    await bench.advance(2)
    await bench.first.read()
    return task, run


async def test_b37_runs_by_hand_obey_skip(bench: EngineBench) -> None:
    task, _ = await busy_with_runs_by_hand(bench, Overlap.SKIP)
    assert await round_of(bench) == []
    assert len(bench.running(task)) == 1
    assert len(bench.skips(task, SkipReason.OVERLAP)) == 20


async def test_b37_buffer_one_never_holds_two(bench: EngineBench) -> None:
    task, run = await busy_with_runs_by_hand(bench, Overlap.BUFFER_ONE)
    assert await round_of(bench) == []
    assert len([row for row in bench.pending(task) if row.kind is Kind.NOW]) == 1
    assert len(bench.skips(task, SkipReason.OVERLAP)) == 19
    await bench.first.end(run)
    assert len(await round_of(bench)) == 1
    assert len(bench.running(task)) == 1


async def test_b37_twenty_at_once_are_one_run_and_one_that_waits(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(7200), overlap=Overlap.BUFFER_ONE)
    for _ in range(20):
        bench.put(task, bench.clock.now())
    await bench.first.own()
    await bench.first.read()
    await round_of(bench)
    assert len(bench.running(task)) == 1
    assert len([row for row in bench.pending(task) if row.kind is Kind.NOW]) == 1


async def test_b37_a_run_between_two_attempts_keeps_its_task_busy(bench: EngineBench) -> None:
    task, run = await busy_with_runs_by_hand(bench, Overlap.SKIP)
    await bench.first.end(run, None, retry_in=30)
    assert await round_of(bench) == []
    assert len(bench.skips(task, SkipReason.OVERLAP)) == 20
    await bench.advance(30)
    await bench.first.read()
    (again,) = await round_of(bench)  # and is itself not judged again
    assert (again.run_id, again.fence) == (run.run_id, 2)


async def test_b37_a_forced_run_starts_whatever_runs(bench: EngineBench) -> None:
    task, _ = await busy_with_runs_by_hand(bench, Overlap.SKIP)
    bench.put(task, bench.clock.now(), kind=Kind.FORCED)
    await bench.advance(2)
    await bench.first.read()
    (forced,) = await round_of(bench)
    assert forced.kind is Kind.FORCED
    assert len(bench.running(task)) == 2


async def test_b37_cancel_previous_cancels_what_runs_and_then_starts(bench: EngineBench) -> None:
    task = await a_due_task(bench, schedule=bench.every(10), overlap=Overlap.CANCEL_PREVIOUS)
    (old,) = await round_of(bench)
    await bench.advance(10)
    assert await bench.go() == []
    assert bench.calls.aborted == [old.run_id]
    assert len(bench.running(task)) == 1
    await bench.first.end(old)
    (new,) = await bench.first.begin()
    assert new.slot == (old.slot or bench.clock.now()) + 10 * SECOND
    assert [row.state for row in bench.history(task) if row.run_id == old.run_id] == [RunState.CANCELLED]


async def test_b37_cancel_previous_ends_a_retry_that_waits(bench: EngineBench) -> None:
    task = await a_due_task(bench, schedule=bench.every(10), overlap=Overlap.CANCEL_PREVIOUS)
    (old,) = await round_of(bench)
    await bench.first.end(old, None, retry_in=60)
    await bench.advance(10)
    assert await bench.go() == []
    await bench.advance(0.5)
    (new,) = await bench.first.begin()
    assert new.run_id != old.run_id
    ended = [row for row in bench.history(task) if row.run_id == old.run_id]
    assert [row.outcome for row in ended] == [Outcome.HTTP_ERROR, Outcome.CANCELLED]


async def cancel_of_itself(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> tuple[list[UUID], Begun]:
    """What a row waited for ends by itself, and the row is begun before the cancel that it asked for is sent."""
    task = await a_due_task(bench, schedule=bench.every(10), overlap=Overlap.CANCEL_PREVIOUS)
    (old,) = await round_of(bench)
    await bench.advance(10)
    for _ in range(6):  # tenants, since memory holds a page of each
        filler = await bench.a_task(schedule=bench.every(3600))
        for _ in range(250):
            bench.put(filler, bench.clock.now() + SECOND / 20)
    await bench.first.own()
    while await bench.first.read():
        pass
    begin = bench.runs.begin

    async def ends_meanwhile(*args: Any, **how: Any) -> Any:
        result = await begin(*args, **how)
        if old in bench.running(task):
            await bench.first.end(old)
        return result

    bench.runs.begin = ends_meanwhile  # type: ignore[method-assign]
    settle = Beginner._settle

    def settle_and_return(self: Beginner, items: Sequence[BeginItem], result: BeginResult) -> None:
        settle(self, items, result)
        self._board.return_deferred_of(task.id)

    monkeypatch.setattr(Beginner, "_settle", settle_and_return)
    await bench.first.begin()
    (new,) = bench.running(task)
    assert new.run_id != old.run_id
    return bench.calls.aborted, new


async def test_a_run_is_not_cancelled_by_its_own_wish_for_room(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted, new = await cancel_of_itself(bench, monkeypatch)
    assert new.run_id not in aborted


class NeverDiscards(set[UUID]):
    """Broken: a wish to cancel outlives the wait that made it."""

    def discard(self, element: object, /) -> None:
        """Kept."""


async def test_the_check_catches_a_begin_that_keeps_the_wish(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.owner.beginner._cancel_wanted = NeverDiscards()
    aborted, new = await cancel_of_itself(bench, monkeypatch)
    assert new.run_id in aborted


async def behind_a_busy_task(bench: EngineBench) -> bool:
    """A tenant's other task, behind five hundred runs of a busy one. Whether it starts within a second."""
    tenant = await bench.a_tenant(max_in_flight=50)
    busy = await bench.a_task(tenant, schedule=bench.every(3600), overlap=Overlap.CANCEL_PREVIOUS)
    other = await bench.a_task(tenant, schedule=bench.every(3600))
    for _ in range(500):
        bench.put(busy, bench.clock.now())
    bench.put(other, bench.clock.now() + SECOND)
    await bench.advance(1)
    await bench.first.own()
    for _ in range(20):
        await bench.first.read()
        await bench.first.begin()
        await bench.advance(0.05)
    return other.id in {run.task_id for run in bench.calls.runs}


async def test_a_busy_task_does_not_stand_before_its_tenants_others(bench: EngineBench) -> None:
    assert await behind_a_busy_task(bench)


async def test_the_check_catches_rows_that_are_queued_again_one_by_one(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Beginner, "_wait_for_task", lambda self, later, _items, _result: self._readmit(later))
    assert not await behind_a_busy_task(bench)


@pytest.mark.parametrize("fault", ["refused", "before", "after"])
async def test_rows_that_waited_for_another_of_their_task_outlive_a_begin_that_failed(
    bench: EngineBench, fault: str
) -> None:
    task = await bench.a_task(schedule=bench.every(7200), overlap=Overlap.CANCEL_PREVIOUS)
    rows = {bench.put(task, bench.clock.now()).run_id for _ in range(5)}
    await bench.first.own()
    await bench.first.read()
    if fault == "refused":
        bench.runs.away["begin"] = 1
        with pytest.raises(StoreUnavailableError):
            await bench.first.begin()
    else:
        bench.runs.lose_begin = fault
        await bench.first.begin()
    bench.runs.pages.clear()
    while len(bench.calls.orders) < 5:
        for run in bench.running(task):
            await bench.first.end(run)
        await bench.first.begin()
    assert {run.run_id for run in bench.calls.runs} == rows
    assert bench.runs.pages == []
