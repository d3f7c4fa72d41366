"""The pool: a run that is cancelled, or whose call meets a fault of our own, still ends."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from pool_bench import START, PoolBench, hanging, late_connection, turns, until
from tocsin.common.states import RunState
from tocsin.common.store.rows import Outcome
from tocsin.executor.pool import CallPool, clean
from tocsin.executor.transport.port import Gate, OutgoingRequest, Response


async def test_an_aborted_run_that_waits_makes_no_connection(bench: PoolBench) -> None:
    run = bench.a_run(due_in=0.125)
    bench.submit(run)
    bench.pool.abort(run.run_id)
    await bench.advance(0.125)
    ((_, completion, _),) = await bench.done()
    assert completion is not None
    assert (completion.outcome, completion.state, completion.sent) == (Outcome.CANCELLED, RunState.CANCELLED, False)
    assert bench.transport.calls == 0


class CancelsAtOnce(CallPool):
    """Broken: cancels the call's task, though it may not have come to its first step."""

    def abort(self, run_id: UUID) -> None:
        call = self._calls.get(run_id)
        if call is not None:
            call.aborted = True
            if call.task is not None:
                call.task.cancel()


async def abort_before_the_first_step(bench: PoolBench) -> bool:
    """The timer has fired, and the call's task has not run yet. Whether the run ends."""
    run = bench.a_run(due_in=0.125)
    bench.submit(run)
    bench.clock.advance(0.125)
    bench.pool._timers.fire()
    bench.pool.abort(run.run_id)
    await turns(200)
    return bool(bench.listener.released_runs)


async def test_an_abort_before_the_calls_first_step_loses_no_run(bench: PoolBench) -> None:
    assert await abort_before_the_first_step(bench)
    assert bench.transport.calls == 0


async def test_the_check_catches_an_abort_that_cancels_at_once() -> None:
    bench = PoolBench(CancelsAtOnce)
    assert not await abort_before_the_first_step(bench)
    await bench.pool.close()


@pytest.mark.parametrize("sent", [False, True])
async def test_an_aborted_call_is_recorded_as_sent_if_it_was(bench: PoolBench, sent: bool) -> None:
    hangs = await hanging(bench.transport, sent=sent)
    run = bench.a_run()
    bench.submit(run)
    await hangs.wait()
    bench.pool.abort(run.run_id)
    bench.pool.abort(run.run_id)  # told twice
    ((_, completion, again),) = await bench.done()
    assert completion is not None
    assert (completion.outcome, completion.state, completion.sent) == (Outcome.CANCELLED, RunState.CANCELLED, sent)
    assert again is None


async def test_a_second_abort_does_not_disturb_the_closing_of_the_first(bench: PoolBench) -> None:
    closing, closed = asyncio.Event(), []

    async def closes_slowly(request: OutgoingRequest, gate: Gate) -> Response:
        bench.transport.answer(request, gate)
        try:
            await asyncio.Event().wait()
        finally:
            closing.set()
            await turns(5)
            closed.append(True)
        raise AssertionError

    bench.transport.script = closes_slowly
    run = bench.a_run()
    bench.submit(run)
    await until(lambda: bench.transport.sent)
    bench.pool.abort(run.run_id)
    await closing.wait()
    bench.pool.abort(run.run_id)
    await bench.done()
    assert closed == [True]


async def test_an_abort_while_it_asks_whether_it_still_holds(bench: PoolBench) -> None:
    run = await late_connection(bench)
    asking, go_on = asyncio.Event(), asyncio.Event()
    recheck = bench.runs.recheck

    async def slow(*args: Any) -> Any:
        asking.set()
        await go_on.wait()
        return await recheck(*args)

    bench.runs.recheck = slow  # type: ignore[method-assign,assignment]
    bench.submit(run)
    await asking.wait()
    bench.pool.abort(run.run_id)
    ((_, completion, _),) = await bench.done()
    go_on.set()
    assert completion is not None
    assert (completion.outcome, completion.sent) == (Outcome.CANCELLED, False)
    assert bench.transport.sent == []
    await turns()


async def test_an_abort_of_an_unknown_or_ended_run_changes_nothing(bench: PoolBench) -> None:
    run = bench.a_run()
    bench.pool.abort(UUID(int=1))
    bench.submit(run)
    await bench.done()
    bench.pool.abort(run.run_id)
    assert bench.history(run)[0].state is RunState.SUCCEEDED


# --- faults of our own ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [False, True])
async def test_an_exception_inside_the_transport_is_a_failed_attempt(bench: PoolBench, sent: bool) -> None:
    async def breaks(request: OutgoingRequest, gate: Gate) -> Response:
        if sent:
            bench.transport.answer(request, gate)
        raise KeyError("inside")

    bench.transport.script = breaks
    run = bench.a_run()
    bench.submit(run)
    ((_, completion, again),) = await bench.done()
    assert completion is not None
    assert (completion.outcome, completion.sent) == (Outcome.PROTOCOL_ERROR, sent)
    assert completion.error == "internal fault: KeyError"
    assert again is not None


async def test_a_secret_that_cannot_be_used_is_a_failed_attempt(bench: PoolBench) -> None:
    run = bench.a_run()
    bench.submit(run, secrets=("not base64!",))
    ((_, completion, again),) = await bench.done()
    assert completion is not None
    assert (completion.outcome, completion.sent) == (Outcome.PROTOCOL_ERROR, False)
    assert again is not None
    assert bench.transport.calls == 0


async def ends_though_it_cannot_be_judged(bench: PoolBench, monkeypatch: pytest.MonkeyPatch, fence: int) -> bool:
    def raises(*_args: object, **_how: object) -> None:
        raise OverflowError("a fault of our own")

    monkeypatch.setattr("tocsin.executor.pool.classify", raises)
    bench.submit(bench.a_run(fence=fence))
    await turns(200)
    return bool(bench.listener.released_runs)


@pytest.mark.parametrize(("fence", "state"), [(1, None), (3, RunState.DEAD)])
async def test_a_result_that_cannot_be_judged_is_an_attempt(
    bench: PoolBench, monkeypatch: pytest.MonkeyPatch, fence: int, state: RunState | None
) -> None:
    assert await ends_though_it_cannot_be_judged(bench, monkeypatch, fence)
    ((_, completion, again),) = bench.listener.released_runs
    assert completion is not None
    assert (completion.outcome, completion.sent, completion.state) == (Outcome.PROTOCOL_ERROR, True, state)
    assert (again is None) == (state is not None)


class JudgesBare(CallPool):
    """Broken: a fault in the judgement takes the run with it."""

    def _finish(self, call: Any, result: Any) -> None:
        try:
            self._verdict(call.order, result, START)
        except OverflowError:
            return
        super()._finish(call, result)


async def test_the_check_catches_a_pool_that_loses_what_it_cannot_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = PoolBench(JudgesBare)
    assert not await ends_though_it_cannot_be_judged(bench, monkeypatch, 1)
    await bench.pool.close()


def test_texts_are_cleaned_for_the_store() -> None:
    assert clean("a\0b\ud800c" + "x" * 1000) == "a\ufffdb?c" + "x" * 495
