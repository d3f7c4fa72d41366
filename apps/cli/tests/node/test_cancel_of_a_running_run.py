"""B46: a cancel while the call is in flight. The call is aborted; where nobody is told, its result is recorded.

The other cases of B46, each at its own instant, are the store's: `test_store_races.py`, `store_checks_cancels.py`.
"""

import asyncio
import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from node_bench import NodeBench
from tocsin.common.errors import ConflictError
from tocsin.common.states import RunState
from tocsin.common.store.postgres.wakeups import cancel_payload
from tocsin.common.store.rows import Task
from tocsin.engine.owner import Owner

ROUNDS = 200
SOON = 1.0
"""Seconds within which the endpoint sees that nobody waits for its answer any more."""


async def called(bench: NodeBench, path: str) -> tuple[Task, UUID]:
    """A run whose call is open at the endpoint."""
    task = await bench.an_idle_task(await bench.a_tenant(), path)
    run_id = await bench.run_now(task)
    await bench.endpoint.until_seen(path)
    return task, run_id


async def cancel(bench: NodeBench, task: Task, run_id: UUID, told: Sequence[UUID]) -> None:
    """As the API does it: the mark, and after its commit the wake-up, here with the runs that it is to name."""
    assert await bench.tasks.cancel(task.tenant_id, run_id) is RunState.RUNNING
    if told:
        await bench.store.tasks.notify(cancel_payload(told))


async def until_closed(bench: NodeBench, path: str, within: float = SOON) -> None:
    await bench.endpoint.until(lambda: bench.endpoint.open[path] == 0, f"the call of {path} is closed", within)


async def test_b46_a_call_in_flight_is_aborted_and_not_made_again(bench: NodeBench) -> None:
    bench.endpoint.take("/slow", 5)
    bench.start()
    task, run_id = await called(bench, "/slow")
    await cancel(bench, task, run_id, [run_id])
    await until_closed(bench, "/slow")
    (row,) = await bench.until_ended(run_id)
    assert (row["state"], row["outcome"], row["sent"]) == ("cancelled", "cancelled", True)
    assert len(await bench.history_of(run_id)) == 1
    assert not await bench.fetch("select from pending where run_id = $1", run_id)
    assert len(bench.endpoint.seen) == 1
    await bench.check(task)


async def test_b46_a_lost_wake_up_costs_the_rest_of_the_call(bench: NodeBench) -> None:
    release = bench.endpoint.hold("/held")
    bench.start()
    task, run_id = await called(bench, "/held")
    await cancel(bench, task, run_id, [])
    release.set()
    (row,) = await bench.until_ended(run_id)
    assert (row["state"], row["outcome"], row["http_status"]) == ("cancelled", "success", 200)
    assert len(bench.endpoint.seen) == 1
    await bench.check(task)


async def one_cancelled_and_one_named_only(bench: NodeBench) -> str:
    """Two calls in flight; a wake-up names both, and one run was cancelled. How the other one ends."""
    release = bench.endpoint.hold("/named")
    bench.endpoint.hold("/cancelled")
    bench.start()
    _, named = await called(bench, "/named")
    task, cancelled = await called(bench, "/cancelled")
    await cancel(bench, task, cancelled, [named, cancelled])
    await until_closed(bench, "/cancelled")
    release.set()
    rows = {row["run_id"]: row["state"] for row in await bench.until_ended(named, cancelled)}
    assert rows[cancelled] == "cancelled"
    return str(rows[named])


async def test_b46_a_wake_up_alone_cancels_nothing(bench: NodeBench) -> None:
    assert await one_cancelled_and_one_named_only(bench) == "succeeded"


async def test_b46_an_owner_that_believes_a_wake_up_is_caught(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def believing(owner: Owner) -> dict[str, int]:
        said, owner._said_cancelled = owner._said_cancelled, set()
        for run_id in said:
            owner.calls.abort(run_id)
        return {}

    monkeypatch.setattr(Owner, "_abort_once", believing)
    assert await one_cancelled_and_one_named_only(bench) == "cancelled"


async def test_b46_b_the_answer_to_a_cancel_and_the_state_agree(bench: NodeBench) -> None:
    """Cancels before the begin, in the call, with the completion and after it; chance says which."""
    task = await bench.an_idle_task(await bench.a_tenant(), "/any")
    bench.endpoint.take("/any", 0.02)
    node = bench.start()
    await bench.ready(node, tenants=1)
    chance = random.Random(46)

    async def cancelled_after(seconds: float) -> tuple[UUID, bool]:
        run_id = await bench.run_now(task)
        await asyncio.sleep(seconds)
        try:
            await bench.tasks.cancel(task.tenant_id, run_id)
        except ConflictError:
            return run_id, False
        return run_id, True

    answers = await asyncio.gather(*(cancelled_after(chance.uniform(0, 0.15)) for _ in range(ROUNDS)))
    await bench.until_ended(*(run_id for run_id, _ in answers))
    for run_id, cancelled in answers:
        (state,) = [row["state"] for row in await bench.history_of(run_id) if row["state"] is not None]
        assert state == ("cancelled" if cancelled else "succeeded")
        assert len(bench.endpoint.of_run(run_id)) <= 1
    assert {cancelled for _, cancelled in answers} == {True, False}
    await bench.check(task)
