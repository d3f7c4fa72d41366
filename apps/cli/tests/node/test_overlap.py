"""B37: what a task's overlap policy says is kept, by slots, by run-nows in parallel, and by runs in back-off."""

import asyncio
from collections import Counter

import pytest

from node_bench import NodeBench
from scripted_endpoint import Request, Said
from tocsin.common.models import Overlap
from tocsin.common.store.rows import Task
from tocsin.engine import plan as plan_module

EXCLUSIVE = [Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.CANCEL_PREVIOUS]


async def live(bench: NodeBench) -> list[Task]:
    """A task of each exclusive policy, every second, with calls that take 1.2 s, and 20 run-nows in between."""
    tenant = await bench.a_tenant()
    bench.start()
    tasks = []
    for overlap in EXCLUSIVE:
        bench.endpoint.take(f"/{overlap}", 1.2)
        tasks.append(await bench.a_task(tenant, f"/{overlap}", overlap=overlap))
    for task in tasks:
        await bench.endpoint.until_seen(task.name)
    await asyncio.gather(*(bench.run_now(task) for task in tasks for _ in range(20)))
    await bench.endpoint.until_seen(f"/{Overlap.SKIP}", 2)
    await bench.quiet(*tasks)
    return tasks


async def test_b37_never_two_at_once_under_slots_and_20_run_nows(bench: NodeBench) -> None:
    tasks = await live(bench)
    await bench.check(*tasks)
    assert {task.name: bench.endpoint.most[task.name] for task in tasks} == {task.name: 1 for task in tasks}
    reasons = Counter(row["reason"] for row in (await bench.rows(tasks[0])).ended("skipped"))
    assert reasons["overlap"] >= 20


async def test_b37_begins_that_do_not_look_are_caught(bench: NodeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "is_exclusive", lambda _row, _spec: False)
    tasks = await live(bench)
    assert max(bench.endpoint.most[task.name] for task in tasks) > 1


async def one_open_and_20_run_nows(bench: NodeBench, overlap: Overlap) -> tuple[Task, asyncio.Event]:
    task = await bench.an_idle_task(await bench.a_tenant(), "/held", overlap=overlap)
    release = bench.endpoint.hold("/held")
    bench.start()
    await bench.run_now(task)
    await bench.endpoint.until_seen("/held")
    await asyncio.gather(*(bench.run_now(task) for _ in range(20)))
    return task, release


async def ended(bench: NodeBench, task: Task, state: str, count: int) -> None:
    async def so_many() -> bool:
        return len((await bench.rows(task)).ended(state)) == count

    await bench.until(so_many, f"{count} runs are {state}")


async def test_b37_skip_records_every_run_now_that_met_another(bench: NodeBench) -> None:
    task, release = await one_open_and_20_run_nows(bench, Overlap.SKIP)
    await ended(bench, task, "skipped", 20)
    release.set()
    await ended(bench, task, "succeeded", 1)
    assert len(bench.endpoint.seen) == 1
    await bench.check(task)


async def test_b37_buffer_one_holds_one(bench: NodeBench) -> None:
    task, release = await one_open_and_20_run_nows(bench, Overlap.BUFFER_ONE)
    await ended(bench, task, "skipped", 19)
    assert len([row for row in (await bench.rows(task)).pending if row["kind"] == "now"]) == 1
    release.set()
    await ended(bench, task, "succeeded", 2)
    assert bench.endpoint.most["/held"] == 1
    await bench.check(task)


async def test_b37_cancel_previous_lets_the_last_one_run(bench: NodeBench) -> None:
    task, release = await one_open_and_20_run_nows(bench, Overlap.CANCEL_PREVIOUS)
    await ended(bench, task, "cancelled", 20)
    release.set()
    await ended(bench, task, "succeeded", 1)
    assert bench.endpoint.most["/held"] == 1
    await bench.check(task)


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        (Overlap.SKIP, {"succeeded": 1, "skipped": 1}),
        (Overlap.BUFFER_ONE, {"succeeded": 2}),
        (Overlap.CANCEL_PREVIOUS, {"succeeded": 1, "cancelled": 1}),
    ],
)
async def test_b37_a_run_in_back_off_counts_as_running(
    bench: NodeBench, overlap: Overlap, states: dict[str, int]
) -> None:
    async def later(request: Request) -> int | Said:
        return 200 if request.attempt > 1 or len(bench.endpoint.seen) > 1 else Said(503, "Retry-After: 1")

    bench.endpoint.answers["/busy"] = later
    task = await bench.an_idle_task(await bench.a_tenant(), "/busy", overlap=overlap)
    bench.start()
    first = await bench.run_now(task)
    await bench.until(lambda: bench.history_of(first), "the first attempt has failed")
    second = await bench.run_now(task)
    rows = await bench.until_ended(first, second)
    assert Counter(row["state"] for row in rows) == states
    assert bench.endpoint.most["/busy"] == 1
    if overlap is not Overlap.CANCEL_PREVIOUS:
        assert [request.attempt for request in bench.endpoint.of_run(first)] == [1, 2]
    await bench.check(task)


@pytest.mark.parametrize("overlap", EXCLUSIVE)
async def test_b37_a_forced_run_starts_beside_whatever_runs(bench: NodeBench, overlap: Overlap) -> None:
    task = await bench.an_idle_task(await bench.a_tenant(), "/forced", overlap=overlap)
    release = bench.endpoint.hold("/forced")
    bench.start()
    runs = [await bench.run_now(task)]
    await bench.endpoint.until_seen("/forced")
    runs += [await bench.run_now(task, force=True) for _ in range(3)]
    await bench.endpoint.until_seen("/forced", 4)
    assert bench.endpoint.most["/forced"] == 4
    release.set()
    assert {row["state"] for row in await bench.until_ended(*runs)} == {"succeeded"}
    await bench.check(task)
