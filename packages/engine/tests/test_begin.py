"""Begin: within its lead, within every cap, once; lost answers, outages, and what overlap makes of a busy task."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from engine_bench import EngineBench, a_due_task
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.models import CallSpec, Kind, Misfire, Priority
from tocsin.common.store.rows import Backend, BeginItem, BeginResult, Begun, Held, Task
from tocsin.engine import begin as begin_module
from tocsin.engine.begin import Beginner, planted

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


async def begun_one_tenant_at_a_time(bench: EngineBench) -> int:
    """Begins 2,300 runs of three tenants; says how many begins were under way together at most."""
    for _ in range(3):
        tenant = await bench.a_tenant(max_in_flight=10_000)
        task = await bench.a_task(tenant, schedule=bench.every(3600))
        for _ in range(766):
            bench.put(task, bench.clock.now())
    await bench.first.own()
    while await bench.first.read():
        pass
    under_way: set[UUID] = set()
    together = most = 0
    begin = bench.runs.begin

    async def counted(lease_id: UUID, items: Sequence[BeginItem], note: Any = None) -> BeginResult:
        nonlocal together, most
        tenants = {item.row.tenant_id for item in items}
        assert not tenants & under_way
        assert len(items) <= 1000
        under_way.update(tenants)
        together += 1
        most = max(most, together)
        await asyncio.sleep(0)
        result = await begin(lease_id, items, note)
        together -= 1
        under_way.difference_update(tenants)
        return result

    bench.runs.begin = counted  # type: ignore[method-assign]
    await asyncio.gather(bench.owner.beginner.run_once(), bench.owner.beginner.run_once())
    while await bench.first.read() or await bench.first.begin():
        pass
    assert len(bench.calls.orders) == 3 * 766
    return most


async def test_a_large_begin_goes_over_two_connections_and_no_tenant_over_both(bench: EngineBench) -> None:
    assert await begun_one_tenant_at_a_time(bench) == 2


async def test_parting_a_tenants_rows_is_caught(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begin_module, "parts", lambda rows: [rows[::2], rows[1::2]] if len(rows) > 1 else [rows])
    with pytest.raises(AssertionError):
        await begun_one_tenant_at_a_time(bench)


async def test_a_begin_that_fails_leaves_the_other_settled(bench: EngineBench) -> None:
    for _ in range(2):
        task = await bench.a_task(await bench.a_tenant(max_in_flight=10_000), schedule=bench.every(3600))
        for _ in range(400):
            bench.put(task, bench.clock.now())
    await bench.first.own()
    while await bench.first.read():
        pass
    begin, asked = bench.runs.begin, 0

    async def refused(*args: Any, **how: Any) -> BeginResult:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise StoreUnavailableError("away")
        return await begin(*args, **how)

    bench.runs.begin = refused  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError):
        await bench.owner.beginner.run_once()
    assert len(bench.calls.orders) == len(bench.owner.board.in_flight) == 400
    await bench.owner.beginner.run_once()
    assert len(bench.calls.orders) == 800


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


async def test_a_call_is_signed_also_when_its_tenant_was_dropped_and_taken_up_again(bench: EngineBench) -> None:
    """Definitions outlive the tenant's place on the board; its secrets do not."""
    await a_due_task(bench)
    bench.owner.board.secrets.clear()
    await bench.first.begin()
    (order,) = bench.calls.orders
    assert order.secrets == ("c2VjcmV0",)


async def test_a_run_that_could_not_be_signed_is_put_back(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    await a_due_task(bench)
    bench.owner.board.secrets.clear()

    async def nothing(*_args: Any, **_how: Any) -> None:
        """The tenant is gone meanwhile."""

    monkeypatch.setattr(bench.owner.beginner._planner, "load", nothing)
    await bench.first.begin()
    assert bench.calls.orders == []
    assert len(bench.calls.back) == 1
