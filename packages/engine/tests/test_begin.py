"""Begin: within its lead, within every cap, once; lost answers, outages, and what overlap makes of a busy task."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from engine_bench import SECOND, EngineBench
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.models import CallSpec, Kind, Misfire, Overlap, Priority
from tocsin.common.states import RunState
from tocsin.common.store.rows import Backend, BeginItem, BeginResult, Begun, Held, Outcome, SkipReason, Task
from tocsin.engine.begin import Beginner, planted


async def a_due_task(bench: EngineBench, **plan: Any) -> Task:
    """A task whose first slot is due now, known to the owner."""
    schedule = plan.setdefault("schedule", bench.every(60))
    task = await bench.a_task(**plan)
    await bench.advance(schedule.every_seconds)
    await bench.first.own()
    await bench.first.read()
    return task


# --- the plain way --------------------------------------------------------------------------------------------------


async def test_a_run_is_begun_within_its_lead_and_not_before(bench: EngineBench) -> None:
    await bench.a_task()
    await bench.advance(0.89)
    assert await bench.go() == []
    await bench.advance(0.011)
    (run,) = await bench.first.begin()
    assert run.due_at - bench.clock.now() > timedelta(milliseconds=90)


async def test_an_order_says_when_its_begin_was_sent(bench: EngineBench) -> None:
    await a_due_task(bench)

    async def slow() -> None:
        bench.clock.advance(0.2)

    sent = bench.clock.monotonic()
    bench.runs.before_begin = slow
    await bench.first.begin()
    (order,) = bench.calls.orders
    assert order.begin_sent == sent
    assert order.run.fence == 1
    assert order.task.version == order.run.version


async def test_the_successor_is_known_without_another_read(bench: EngineBench) -> None:
    await a_due_task(bench, schedule=bench.every(2))
    bench.runs.pages.clear()
    for _ in range(4):
        await bench.advance(2)
        assert len(await bench.first.begin()) == 1
    assert bench.runs.pages == []


async def test_what_was_planted_is_known_as_it_was_stored(bench: EngineBench) -> None:
    task = await a_due_task(bench, misfire=Misfire.FIRE_ALL, max_catchup=5, priority=Priority.HIGH, grace_seconds=60)
    await bench.advance(180)
    await bench.first.begin()
    (item,) = bench.runs.begins[-1]
    stored = {row.run_id: row for row in bench.pending(task)}
    for plant in item.plants:
        known = planted(item.row, plant, max(plant.due_at, bench.clock.now()))
        assert known == stored[plant.run_id]
    assert {row.priority for row in stored.values() if row.kind is Kind.CATCHUP} == {Priority.LOW}


async def test_a_thousand_at_most_a_begin_and_no_more_than_one_begin_at_a_time(bench: EngineBench) -> None:
    for _ in range(10):
        task = await bench.a_task(schedule=bench.every(3600))
        for _ in range(230):
            bench.put(task, bench.clock.now())
    await bench.first.own()
    while await bench.first.read():
        pass
    under_way = 0
    begin = bench.runs.begin

    async def counted(*args: Any, **how: Any) -> Any:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        result = await begin(*args, **how)
        under_way -= 1
        return result

    bench.runs.begin = counted  # type: ignore[method-assign]
    await asyncio.gather(bench.owner.beginner.run_once(), bench.owner.beginner.run_once())
    while await bench.first.read() or await bench.first.begin():
        pass
    assert len(bench.calls.orders) == 2300
    assert max(len(items) for items in bench.runs.begins) == 1000


async def test_no_begin_while_results_wait_for_the_database(bench: EngineBench) -> None:
    await a_due_task(bench)
    bench.calls.waiting_results = 10_000
    assert await bench.first.begin() == []
    bench.calls.waiting_results = 9_999
    assert len(await bench.first.begin()) == 1


async def test_no_begin_after_stopping(bench: EngineBench) -> None:
    await a_due_task(bench)
    bench.owner.beginner.stopped = True
    assert await bench.first.begin() == []


async def test_no_begin_while_no_call_may_start(bench: EngineBench) -> None:
    """Each begin would be put back, and each putting back is a loss, of which a run has five."""
    task = await a_due_task(bench)
    bench.clock.suspend(9)
    assert await bench.first.begin() == []
    await bench.first.beat()
    (run,) = await bench.first.begin()
    assert (run.task_id, run.losses) == (task.id, 0)


async def test_a_row_that_is_gone_or_of_another_fence_is_forgotten(bench: EngineBench) -> None:
    task = await a_due_task(bench)
    row = bench.next_row(task)
    bench.database.pending.remove(row.run_id)
    assert await bench.first.begin() == []
    assert not bench.owner.board.knows(row)
    bench.database.pending.add(replace(row, fence=3, kind=Kind.SLOT))
    await bench.advance(2)
    (run,) = await bench.go()
    assert run.fence == 4


# --- lost answers ---------------------------------------------------------------------------------------------------


async def lose(bench: EngineBench, when: str, *, seconds: float = 0.0) -> Task:
    """A begin's answer is lost; ending its server process takes `seconds`, and a late commit happens in it."""
    task = await a_due_task(bench)

    async def end_backend(backend: Backend, wait: float) -> bool:
        assert backend.pid == 7 or when == "after"
        bench.clock.advance(seconds)
        await bench.runs.commit_late()
        return True

    bench.store.leases.end_backend = end_backend  # type: ignore[method-assign]
    bench.runs.lose_begin = when
    assert await bench.first.begin() == [order.run for order in bench.calls.orders]
    return task


def in_flight(bench: EngineBench) -> list[Begun]:
    return list(bench.owner.board.in_flight.values())


async def test_a_begin_that_did_not_happen_is_done_again(bench: EngineBench) -> None:
    task = await lose(bench, "before")
    assert in_flight(bench) == []
    (run,) = await bench.first.begin()
    assert (run.task_id, run.fence) == (task.id, 1)


@pytest.mark.parametrize("when", ["after", "late"])
async def test_a_begin_that_happened_is_adopted_once_its_server_process_is_gone(bench: EngineBench, when: str) -> None:
    task = await lose(bench, when)
    assert bench.calls.runs == in_flight(bench) == bench.running(task)
    assert bench.calls.back == []
    assert await bench.first.begin() == []


async def test_what_was_adopted_is_vouched_for_no_longer_than_from_its_own_begin(bench: EngineBench) -> None:
    """What the begin read of the task was read before the answer was waited for: the executor asks again."""
    await lose(bench, "after", seconds=0.1)
    (order,) = bench.calls.orders
    assert bench.clock.monotonic() - order.begin_sent >= 0.1


async def test_the_successor_of_an_adopted_run_is_known(bench: EngineBench) -> None:
    task = await a_due_task(bench, schedule=bench.every(2))
    bench.runs.lose_begin = "after"
    await bench.first.begin()
    bench.runs.pages.clear()
    await bench.advance(2)
    (run,) = await bench.first.begin()
    assert run.task_id == task.id
    assert bench.runs.pages == []


async def test_what_is_older_than_a_quarter_of_a_second_is_put_back(bench: EngineBench) -> None:
    task = await lose(bench, "after", seconds=0.3)
    assert bench.calls.orders == []
    assert bench.calls.back == in_flight(bench) == bench.running(task)
    await bench.first.put_back()
    assert in_flight(bench) == []
    (run,) = await bench.first.begin()
    assert (run.fence, run.losses, run.attempt) == (2, 1, 1)


async def test_closing_goes_on_until_the_store_is_back(bench: EngineBench) -> None:
    bench.runs.away["held"] = 2
    task = await lose(bench, "after")
    assert in_flight(bench) == bench.running(task) == [*bench.calls.runs, *bench.calls.back]


async def test_the_check_catches_a_begin_that_reads_before_it_has_closed(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unclosed(self: Beginner, _backends: Sequence[Backend]) -> list[Held]:
        return await self._store.runs.held(self._lease.id)

    monkeypatch.setattr(Beginner, "_closed", unclosed)
    task = await lose(bench, "late")
    await bench.runs.commit_late()
    assert await bench.first.begin() == []
    assert bench.running(task) != in_flight(bench)  # runs, and nobody here knows of it


# --- a store that is away -------------------------------------------------------------------------------------------


async def test_nothing_is_lost_when_the_store_refuses_a_begin(bench: EngineBench) -> None:
    await a_due_task(bench)
    for _ in range(3):
        bench.runs.away["begin"] = 1
        with pytest.raises(StoreUnavailableError):
            await bench.first.begin()
    assert len(await bench.first.begin()) == 1


async def edit_during_a_begin(bench: EngineBench, *, away: bool = False, again: bool = False) -> Task:
    """The task is edited between the plan and the commit of its begin (and `again` after it)."""
    task = await a_due_task(bench, schedule=bench.every(60))

    async def edit() -> None:
        await bench.tasks.edit(task.tenant_id, task.id, lambda old, _now: replace(old, name=old.name + "!"))
        bench.database.unavailable = False

    definitions = bench.store.tasks.definitions

    async def edited_again(task_ids: Sequence[UUID]) -> Any:
        if away:
            raise StoreUnavailableError("away")
        read = await definitions(task_ids)
        if again:
            stored = bench.database.tasks[task.id]
            bench.database.tasks[task.id] = replace(stored, version=stored.version + 1)
            return await definitions(task_ids)
        return read

    bench.runs.before_begin = edit
    bench.store.tasks.definitions = edited_again  # type: ignore[method-assign]
    await bench.first.begin()
    bench.store.tasks.definitions = definitions  # type: ignore[method-assign]
    return task


async def test_a_run_is_called_as_its_begin_found_the_task(bench: EngineBench) -> None:
    await edit_during_a_begin(bench)
    (order,) = bench.calls.orders
    assert order.run.version == order.task.version == 2
    assert order.task.name == "task!"


@pytest.mark.parametrize("how", ["away", "again"])
async def test_a_run_whose_definition_is_not_at_hand_is_put_back(bench: EngineBench, how: str) -> None:
    task = await edit_during_a_begin(bench, **{how: True})
    assert bench.calls.orders == []
    assert bench.calls.back == bench.running(task)
    await bench.first.put_back()
    (run,) = await bench.first.begin()
    assert bench.calls.orders[0].task.version == run.version
    assert run.attempt == 1


# --- caps -----------------------------------------------------------------------------------------------------------


async def test_a_tenants_cap_holds_and_its_runs_go_on_as_others_end(bench: EngineBench) -> None:
    tenant = await bench.a_tenant(max_in_flight=3)
    task = await bench.a_task(tenant, schedule=bench.every(3600))
    for _ in range(10):
        bench.put(task, bench.clock.now())
    begun = await bench.go()
    assert len(begun) == 3
    assert await bench.first.begin() == []
    for run in begun[:2]:
        await bench.first.end(run)
    assert len(await bench.first.begin()) == 2
    assert len(bench.running(task)) == 3


async def test_a_cap_counts_what_another_live_lease_holds(bench: EngineBench) -> None:
    tenant = await bench.a_tenant(max_in_flight=3)
    task = await bench.a_task(tenant, schedule=bench.every(3600))
    for _ in range(10):
        bench.put(task, bench.clock.now())
    begun = await bench.go()
    await bench.first.end(begun[0])
    bench.owner.lease.draining = True
    await bench.first.beat()
    await bench.owner.ownership.give_all()
    second = bench.executor()
    await second.start()
    assert len(await second.go()) == 1
    assert len(bench.running(task)) == 3
    for run in begun[1:]:
        await bench.first.end(run)
    await second.own()
    assert len(await second.begin()) == 2
    assert len(bench.running(task)) == 3


async def test_an_endpoints_cap_holds_and_its_tenants_other_endpoints_go_on(bench: EngineBench) -> None:
    tenant = await bench.a_tenant(max_in_flight_per_endpoint=2)
    tasks = [
        await bench.a_task(tenant, CallSpec(url=f"https://{host}.example/"), schedule=bench.every(3600))
        for host in ("a", "b")
    ]
    for n in range(12):
        bench.put(tasks[n // 6], bench.clock.now())
    begun = await bench.go()
    assert Counter(run.task_id for run in begun) == {tasks[0].id: 2, tasks[1].id: 2}
    await bench.first.end(begun[0])
    assert [run.task_id for run in await bench.first.begin()] == [begun[0].task_id]


# --- overlap --------------------------------------------------------------------------------------------------------


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
    filler = await bench.a_task(schedule=bench.every(3600))
    for _ in range(1500):
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
