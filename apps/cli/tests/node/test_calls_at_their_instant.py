"""A task that was created is called once, at its instant, and never early by the database's clock."""

import asyncio
from datetime import datetime
from functools import partial

import pytest

from node_bench import NodeBench, WrongClock
from tocsin.cli import node as node_module
from tocsin.common.clock import Clock, DatabaseClock
from tocsin.common.models import AtSchedule
from tocsin.engine.owner import OwnerConfig
from tocsin.engine.read import ReadConfig


async def database_minus_monotonic(bench: NodeBench, clock: Clock) -> tuple[float, float]:
    """Bounds of the database's clock less this process's monotonic one, in seconds: the tightest of some looks."""
    low, high = -1e12, 1e12
    for _ in range(20):
        sent = clock.monotonic()
        now = (await bench.now()).timestamp()
        low, high = max(low, now - clock.monotonic()), min(high, now - sent)
    return low, high


@pytest.mark.parametrize("wrong_by", [600, -600], ids=["a node 10 min ahead", "a node 10 min behind"])
async def test_promise_8_b35_one_call_at_the_instant_and_never_early(bench: NodeBench, wrong_by: int) -> None:
    tenant = await bench.a_tenant()
    bench.start(clock=WrongClock(wrong_by))
    at = await bench.soon()
    task = await bench.a_task(tenant, "/once", schedule=AtSchedule(at=at))
    (request,) = await bench.endpoint.until_seen("/once")
    _, high = await database_minus_monotonic(bench, bench.clock)
    assert request.at + high >= at.timestamp(), "early"
    assert request.at + high <= at.timestamp() + 1.0
    assert request.scheduled_for == at.strftime("%Y-%m-%dT%H:%M:%SZ")
    (row,) = await bench.until_ended(request.run_id)
    assert (row["state"], row["slot"], row["fence"]) == ("succeeded", at, 1)
    assert row["started_at"] >= at
    assert len(bench.endpoint.seen) == 1
    await bench.check(task, next_rows=0)


async def lateness_of_slots(bench: NodeBench) -> list[float]:
    """Seconds between slot and call, by the database's clock, for five tasks of one tenant and two slots each."""
    tenant = await bench.a_tenant()
    bench.start()
    tasks = [await bench.a_task(tenant, f"/{n}") for n in range(5)]
    for n in range(5):
        await bench.endpoint.until_seen(f"/{n}", 2)
    _, high = await database_minus_monotonic(bench, bench.clock)
    await bench.quiet(*tasks)
    await bench.check(*tasks)
    slots = [datetime.fromisoformat(request.scheduled_for) for request in bench.endpoint.seen]
    assert all(slot.microsecond == 0 for slot in slots)
    return [request.at + high - slot.timestamp() for request, slot in zip(bench.endpoint.seen, slots, strict=True)]


async def test_b29_promise_8_one_run_per_slot_each_on_its_second(bench: NodeBench) -> None:
    late = await lateness_of_slots(bench)
    assert min(late) >= 0
    assert max(late) <= 1.0


async def test_promise_8_a_timer_that_is_10_ms_early_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = DatabaseClock.monotonic_at
    monkeypatch.setattr(DatabaseClock, "monotonic_at", lambda self, instant: exact(self, instant) - 0.01)
    assert min(await lateness_of_slots(bench)) < 0


async def run_now_comes(bench: NodeBench, within: float) -> bool:
    """Whether a run-now is called, on a node that has read everything once and never sweeps again."""
    tenant = await bench.a_tenant()
    task = await bench.an_idle_task(tenant, "/now")
    first = await bench.run_now(task)
    bench.start()
    await bench.until_ended(first)
    await bench.until(lambda: bench.points.reached["a", "beat.after"] > 2, "the node has settled")
    asked = bench.clock.monotonic()
    run_id = await bench.run_now(task)
    try:
        await bench.endpoint.until_seen("/now", 2, within)
    except AssertionError:
        return False
    assert bench.endpoint.seen[-1].run_id == run_id
    return bench.endpoint.seen[-1].at - asked < within


@pytest.mark.parametrize("notifying", [True, False], ids=["told", "broken: nobody is told"])
async def test_a_run_now_does_not_wait_for_the_sweep(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch, *, notifying: bool
) -> None:
    never = partial(OwnerConfig, read=ReadConfig(sweep_every=1e6))
    monkeypatch.setattr(node_module, "OwnerConfig", never)
    bench.notifying = notifying
    assert await run_now_comes(bench, within=1.5 if notifying else 0.7) is notifying


async def test_a_task_created_while_its_tenant_is_new_is_called_at_once(bench: NodeBench) -> None:
    """A tenant that comes while the node runs needs no wait for the next look at the shards."""
    node = bench.start(ttl=60)
    await bench.ready(node)
    asked = bench.clock.monotonic()
    task = await bench.an_idle_task(await bench.a_tenant(), "/new")
    await bench.run_now(task)
    (request,) = await bench.endpoint.until_seen("/new")
    assert request.at - asked < 3
    await asyncio.wait_for(bench.until_ended(request.run_id), 5)


async def test_b64_no_transaction_is_open_while_calls_are(bench: NodeBench) -> None:
    """A call may take minutes; a transaction as long would keep every dead row that the peaks leave."""
    release = bench.endpoint.hold("/slow")
    node = bench.start()
    await bench.ready(node)
    task = await bench.an_idle_task(await bench.a_tenant(), "/slow")
    runs = [await bench.run_now(task, force=True) for _ in range(5)]
    await bench.endpoint.until_seen("/slow", 5)
    open_ones = await bench.fetch(
        "select query from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'"
    )
    assert open_ones == []
    release.set()
    await bench.until_ended(*runs)
