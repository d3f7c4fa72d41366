"""Rule 8: the call of a cancelled run is aborted when the owner hears of it, and only where the database says so."""

import asyncio
from uuid import UUID

import pytest

from engine_bench import EngineBench
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.states import RunState
from tocsin.common.store.rows import Begun
from tocsin.engine.owner import Owner


async def in_flight(bench: EngineBench, count: int) -> list[Begun]:
    """So many runs of one task, each given to the executor."""
    task = await bench.a_task(schedule=bench.every(3600))
    for _ in range(count):
        bench.put(task, bench.clock.now())
    runs = await bench.go()
    assert len(runs) == count
    return runs


async def cancel(bench: EngineBench, run: Begun) -> None:
    assert await bench.tasks.cancel(run.tenant_id, run.run_id) is RunState.RUNNING


async def aborted_when_one_of_two_was_cancelled() -> tuple[UUID, list[UUID]]:
    """A running owner is told that both of two runs were cancelled; one was. That one, and what was aborted."""
    bench = EngineBench()
    owner = asyncio.create_task(bench.owner.run())
    while not bench.owner.ownership.shards:
        await asyncio.sleep(0)
    task = await bench.a_task(schedule=bench.every(3600))
    forged, marked = bench.put(task, bench.clock.now()), bench.put(task, bench.clock.now())
    bench.owner._ownership_service.wake()
    async with asyncio.timeout(10):
        while len(bench.calls.orders) < 2:
            bench.calls.submitted.clear()
            await bench.calls.submitted.wait()
    assert await bench.tasks.cancel(task.tenant_id, marked.run_id) is RunState.RUNNING
    bench.first.wakeups.cancelled([forged.run_id, marked.run_id])
    await asyncio.wait_for(bench.calls.was_aborted.wait(), 10)
    assert await bench.owner.drain(10)
    await asyncio.wait_for(owner, 10)
    return marked.run_id, bench.calls.aborted


async def test_a_call_is_aborted_when_its_cancel_is_heard_of_and_no_other() -> None:
    marked, aborted = await aborted_when_one_of_two_was_cancelled()
    assert aborted == [marked]


async def test_the_check_catches_an_owner_that_believes_what_it_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    async def believing(owner: Owner) -> dict[str, int]:
        said, owner._said_cancelled = owner._said_cancelled, set()
        for run_id, _ in owner.board.in_flight:
            if run_id in said:
                owner.calls.abort(run_id)
        return {}

    monkeypatch.setattr(Owner, "_abort_once", believing)
    marked, aborted = await aborted_when_one_of_two_was_cancelled()
    assert len(aborted) == 2
    assert marked in aborted


async def test_what_is_heard_together_is_asked_in_one_statement(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await in_flight(bench, 5)
    for run in runs[1:]:
        await cancel(bench, run)
    asked = []
    recheck = bench.runs.recheck

    async def noted(lease_id: UUID, pairs: list[tuple[UUID, int]]) -> object:
        asked.append(len(pairs))
        return await recheck(lease_id, pairs)

    monkeypatch.setattr(bench.runs, "recheck", noted)
    bench.owner._cancels_heard([run.run_id for run in runs[:3]])
    bench.owner._cancels_heard([run.run_id for run in runs[3:]])
    assert await bench.owner._abort_once() == {"aborted": 4}
    assert sorted(bench.calls.aborted) == sorted(run.run_id for run in runs[1:])
    assert asked == [5]
    assert await bench.owner._abort_once() == {}
    assert asked == [5]


async def test_a_run_that_is_not_in_flight_here_is_nobodys_question(bench: EngineBench) -> None:
    (run,) = await in_flight(bench, 1)
    await cancel(bench, run)
    await bench.first.end(run)
    bench.runs.away["recheck"] = 1
    bench.owner._cancels_heard([run.run_id, bench.ids.new()])
    assert await bench.owner._abort_once() == {}
    assert bench.calls.aborted == []


async def test_a_cancel_heard_of_in_an_outage_is_asked_again(bench: EngineBench) -> None:
    (run,) = await in_flight(bench, 1)
    await cancel(bench, run)
    bench.runs.away["recheck"] = 1
    bench.owner._cancels_heard([run.run_id])
    with pytest.raises(StoreUnavailableError):
        await bench.owner._abort_once()
    assert bench.calls.aborted == []
    await bench.owner._abort_once()
    assert bench.calls.aborted == [run.run_id]
