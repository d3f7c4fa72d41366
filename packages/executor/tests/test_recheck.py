"""The re-check: one statement for all that ask, and an answer for each."""

import asyncio
from dataclasses import replace

import pytest

from pool_bench import PoolBench, turns
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.models import TaskState
from tocsin.executor.recheck import Rechecker


async def test_those_that_ask_in_one_step_share_a_statement(bench: PoolBench) -> None:
    rechecker = Rechecker(bench.runs, bench.lease_id)
    runs = [bench.a_run() for _ in range(50)]
    answers = await asyncio.gather(*(rechecker.ask(run) for run in runs))
    assert [answer.run_id for answer in answers if answer is not None] == [run.run_id for run in runs]
    assert [len(asked) for asked in bench.runs.rechecks] == [50]


async def test_those_that_ask_during_a_statement_share_the_next(bench: PoolBench) -> None:
    rechecker = Rechecker(bench.runs, bench.lease_id)
    inside, go_on = asyncio.Event(), asyncio.Event()
    recheck = bench.runs.recheck

    async def slow(*args: object) -> object:
        inside.set()
        await go_on.wait()
        return await recheck(*args)  # type: ignore[arg-type]

    bench.runs.recheck = slow  # type: ignore[method-assign,assignment]
    first = asyncio.create_task(rechecker.ask(bench.a_run()))
    await inside.wait()
    others = [asyncio.create_task(rechecker.ask(bench.a_run())) for _ in range(7)]
    await turns()
    go_on.set()
    await asyncio.gather(first, *others)
    assert [len(asked) for asked in bench.runs.rechecks] == [1, 7]


async def test_each_gets_its_own_answer(bench: PoolBench) -> None:
    rechecker = Rechecker(bench.runs, bench.lease_id)
    good, edited, paused, cancelled, gone, refenced = runs = [bench.a_run() for _ in range(6)]
    bench.edit(bench.database.tasks[edited.task_id], version=2)
    bench.edit(bench.database.tasks[paused.task_id], state=TaskState.PAUSED)
    bench.database.running[cancelled.run_id].cancelled = True
    del bench.database.running[gone.run_id]
    bench.database.running[refenced.run_id].run = replace(refenced, fence=2)
    answers = await asyncio.gather(*(rechecker.ask(run) for run in runs))
    found = [None if answer is None else (answer.current, answer.cancelled) for answer in answers]
    assert found == [(True, False), (False, False), (False, False), (True, True), None, None]
    assert good.run_id in bench.database.running


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), TypeError("a fault of our own")])
async def test_a_statement_that_fails_is_everybodys_answer_and_the_next_is_asked_anew(
    bench: PoolBench, error: Exception
) -> None:
    rechecker = Rechecker(bench.runs, bench.lease_id)
    recheck = bench.runs.recheck

    async def fails(*_args: object) -> object:
        raise error

    bench.runs.recheck = fails  # type: ignore[method-assign,assignment]
    runs = [bench.a_run() for _ in range(3)]
    answers = await asyncio.gather(*(rechecker.ask(run) for run in runs), return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(error)] * 3
    bench.runs.recheck = recheck  # type: ignore[method-assign]
    assert (await rechecker.ask(runs[0])) is not None


async def test_one_that_no_longer_waits_harms_nobody(bench: PoolBench) -> None:
    rechecker = Rechecker(bench.runs, bench.lease_id)
    leaving, staying = bench.a_run(), bench.a_run()
    left = asyncio.create_task(rechecker.ask(leaving))
    stayed = asyncio.create_task(rechecker.ask(staying))
    await asyncio.sleep(0)
    left.cancel()
    assert (await stayed) is not None
    with pytest.raises(asyncio.CancelledError):
        await left
