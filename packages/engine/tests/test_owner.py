"""The owner as a whole: its services together, its end with its lease, and how it drains."""

import asyncio

import pytest

from engine_bench import EngineBench, Executor
from tocsin.common.errors import LeaseLostError
from tocsin.common.states import RunState
from tocsin.engine import owner as module
from tocsin.engine.owner import Owner


async def running(executor: Executor) -> asyncio.Task[None]:
    """The owner with all its services, once it has its lease and its shards."""
    task = asyncio.create_task(executor.owner.run())
    while not executor.owner.ownership.shards:
        await asyncio.sleep(0)
    return task


async def test_the_services_together_begin_what_is_due() -> None:
    bench = EngineBench()
    task = await bench.a_task(schedule=bench.every(1))
    bench.clock.advance(1)
    owner = await running(bench.first)
    await asyncio.wait_for(bench.calls.submitted.wait(), 10)
    assert bench.calls.runs[0].task_id == task.id
    assert await bench.owner.drain(10)
    await asyncio.wait_for(owner, 10)


async def test_the_end_of_the_lease_ends_everything() -> None:
    bench = EngineBench()
    owner = await running(bench.first)
    bench.database.leases[bench.first.lease_id].expired_at = bench.clock.now()
    bench.owner._services[0].wake()
    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(owner, 10)


async def test_draining_gives_the_shards_at_once_finishes_and_ends_the_lease() -> None:
    bench = EngineBench()
    owner = await running(bench.first)
    in_flight = asyncio.Event()

    async def drained() -> None:
        assert all(shard.owner is None for shard in bench.database.shards.values())
        assert bench.database.leases[bench.first.lease_id].expired_at is None  # the heartbeat goes on
        await in_flight.wait()

    bench.calls.drained = drained  # type: ignore[method-assign]
    draining = asyncio.create_task(bench.owner.drain(60))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not draining.done()
    in_flight.set()
    assert await asyncio.wait_for(draining, 10)
    await asyncio.wait_for(owner, 10)
    assert bench.database.leases[bench.first.lease_id].expired_at is not None


async def test_what_does_not_end_within_the_grace_is_not_waited_for() -> None:
    bench = EngineBench()
    owner = await running(bench.first)

    async def never() -> None:
        await asyncio.Event().wait()

    bench.calls.drained = never  # type: ignore[method-assign]
    assert not await bench.owner.drain(0.05)
    await asyncio.wait_for(owner, 10)


async def test_a_drain_before_the_lease_takes_none() -> None:
    bench = EngineBench()
    bench.owner.lease.draining = True
    await asyncio.wait_for(bench.owner.run(), 10)
    assert bench.database.leases == {}


async def test_no_call_starts_once_the_lease_is_given_up() -> None:
    """Between the lease's end and the closing of the calls a timer may still fire."""
    bench = EngineBench()
    owner = await running(bench.first)
    before = bench.owner.lease.trusted
    assert await bench.owner.drain(10)
    assert (before, bench.owner.lease.trusted) == (True, False)
    await asyncio.wait_for(owner, 10)


async def test_draining_ends_with_a_lease_that_is_lost_meanwhile() -> None:
    """Its calls were dropped with it: there is nothing left to wait for."""
    bench = EngineBench()
    owner = await running(bench.first)

    async def never() -> None:
        await asyncio.Event().wait()

    bench.calls.drained = never  # type: ignore[method-assign]
    draining = asyncio.create_task(bench.owner.drain(3600))
    bench.database.leases[bench.first.lease_id].expired_at = bench.clock.now()
    bench.owner._services[0].wake()
    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(owner, 10)
    assert not await asyncio.wait_for(draining, 10)


async def woken_by_the_heartbeat() -> set[str]:
    """The services that are woken by the first heartbeat after an outage; none by those before."""
    bench = EngineBench()
    await bench.start()
    beat, *others = bench.owner._services
    bench.database.unavailable = True
    pauses = [await beat._round() for _ in range(10)]
    assert max(pauses) <= 0.5, "it is the first to see that the database is back"
    assert not any(service._wake.is_set() for service in others)
    bench.database.unavailable = False
    await beat._round()
    woken = {service.name for service in others if service._wake.is_set()}
    for service in others:
        service._wake.clear()
    await beat._round()
    assert not any(service._wake.is_set() for service in others)
    return woken


ALL_BUT_THE_HEARTBEAT = {"judge", "ownership", "give back", "read", "begin", "abort"}


async def test_the_first_heartbeat_after_an_outage_ends_the_pauses_of_all_others() -> None:
    assert await woken_by_the_heartbeat() == ALL_BUT_THE_HEARTBEAT


async def test_an_owner_whose_services_wait_out_their_pauses_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Owner, "_wake_all", lambda _self: None)
    assert await woken_by_the_heartbeat() != ALL_BUT_THE_HEARTBEAT


async def drains_through_an_outage(monkeypatch: pytest.MonkeyPatch) -> bool:
    """The database is away when draining begins, and is back within the grace."""
    monkeypatch.setattr(module, "_INSIST_PAUSE", 0)
    bench = EngineBench()
    await bench.start()
    bench.database.unavailable = True
    draining = asyncio.create_task(bench.owner.drain(60))
    for _ in range(50):
        await asyncio.sleep(0)
    bench.database.unavailable = False
    return await asyncio.wait_for(draining, 10)


async def test_draining_waits_out_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in flight then would be called a second time by another."""
    assert await drains_through_an_outage(monkeypatch)


async def test_the_check_catches_an_owner_that_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def once(step: object) -> None:
        try:
            await step()  # type: ignore[operator]
        except Exception as error:
            raise TimeoutError from error

    monkeypatch.setattr(module, "_insist", once)
    assert not await drains_through_an_outage(monkeypatch)


async def test_a_run_that_lands_makes_room_and_returns_when_it_is_due_soon() -> None:
    bench = EngineBench()
    await bench.start()
    task = await bench.a_task(await bench.a_tenant(max_in_flight=1), schedule=bench.every(3600))
    bench.put(task, bench.clock.now())
    (run,) = await bench.go()
    bench.runs.pages.clear()
    await bench.first.end(run, None, retry_in=1)
    assert await bench.first.begin() == []
    await bench.advance(1)
    (again,) = await bench.first.begin()
    assert (again.run_id, again.fence) == (run.run_id, 2)
    await bench.first.end(again, RunState.SUCCEEDED)
    assert bench.owner.board.in_flight == {}
    assert bench.runs.pages == []


async def drains_a_long_queue(bench: EngineBench) -> int:
    """Begins 2,000 due runs of one queue with all services; says in how many looks at the reader's own pace it may."""
    task = await bench.a_task(await bench.a_tenant(max_in_flight=10_000), schedule=bench.every(3600))
    for _ in range(2000):
        bench.put(task, bench.clock.now())
    owner = await running(bench.first)
    rounds = 0
    while len(bench.calls.orders) < 2000 and rounds < 5_000:
        await asyncio.sleep(0)
        rounds += 1
    begun = len(bench.calls.orders)
    owner.cancel()
    await asyncio.gather(owner, return_exceptions=True)
    return begun


async def test_a_long_queue_is_read_on_as_fast_as_it_is_begun() -> None:
    """Without waiting for the reader's own turn, five times a second."""
    assert await drains_a_long_queue(EngineBench()) == 2000


async def test_an_owner_that_leaves_reading_to_its_pace_is_caught() -> None:
    bench = EngineBench()
    bench.owner.reader.hungry = lambda: False  # type: ignore[method-assign]
    assert await drains_a_long_queue(bench) < 2000
