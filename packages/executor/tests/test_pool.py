"""The pool: never early, never on old trust or old knowledge, and no run is lost whatever its call does."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from pool_bench import START, PoolBench, ScriptedTransport, turns, until
from tocsin.common.clock import DatabaseClock, ManualClock
from tocsin.common.models import TaskState
from tocsin.common.states import RunState
from tocsin.common.store.rows import Begun, Outcome
from tocsin.executor import pool as module
from tocsin.executor.pool import VOUCHED_SECONDS, CallPool, clean
from tocsin.executor.transport.port import Failure, Gate, OutgoingRequest, Response

# --- never early ----------------------------------------------------------------------------------------------------


class UpperBound(DatabaseClock):
    """Broken: takes the database's time as read when the question was sent."""

    def sample(self, t_db: datetime, sent: float, received: float) -> None:
        super().sample(t_db, sent, sent)


async def database_time_at_start(clock_class: type[DatabaseClock]) -> float:
    """Seconds of the database's clock between a run's due instant and its call.

    The database reads its clock just before the answer arrives, 0.3 s after the question was sent.
    """
    bench = PoolBench()
    database_clock = clock_class(bench.clock)
    bench.pool._database_clock = database_clock
    sent = bench.clock.monotonic()
    bench.clock.advance(0.3)
    database_clock.sample(bench.clock.now(), sent, bench.clock.monotonic())
    run = bench.a_run(due_in=2)
    bench.submit(run)
    while not bench.transport.sent:
        await bench.advance(0.01)
    await bench.pool.close()
    return (bench.clock.now() - run.due_at).total_seconds()


async def test_a_call_never_starts_before_its_due_instant_on_the_databases_clock() -> None:
    assert 0 <= await database_time_at_start(DatabaseClock) < 0.011


async def test_the_check_catches_a_clock_that_is_not_a_lower_bound() -> None:
    assert await database_time_at_start(UpperBound) < -0.2


async def test_what_is_due_already_starts_at_once_and_its_delay_is_told(bench: PoolBench) -> None:
    bench.submit(bench.a_run(due_in=-3))
    ((_, completion, again),) = await bench.done()
    assert completion is not None
    assert (completion.state, again) == (RunState.SUCCEEDED, None)
    assert bench.meter.sums["tocsin_start_delay_seconds", "normal"] == pytest.approx(3)
    assert bench.listener.begun[0].due_at == START - timedelta(seconds=3)


# --- what ends ------------------------------------------------------------------------------------------------------


async def test_a_result_is_stored_as_it_was(bench: PoolBench) -> None:
    async def answers(request: OutgoingRequest, gate: Gate) -> Response:
        await gate.ready()
        gate.check()
        started = bench.clock.monotonic()
        bench.clock.advance(1.5)
        return Response(200, (), b"fine", truncated=False, started=started)

    bench.transport.script = answers
    run = bench.a_run()
    bench.submit(run)
    await bench.done()
    (row,) = bench.history(run)
    assert (row.state, row.outcome, row.http_status, row.response) == (
        RunState.SUCCEEDED,
        Outcome.SUCCESS,
        200,
        b"fine",
    )
    assert row.sent
    assert row.started_at == START
    assert row.ended_at == START + timedelta(seconds=1.5)
    assert bench.database.running == {}


async def test_a_failed_attempt_is_due_again_and_the_engine_hears_of_it(bench: PoolBench) -> None:
    async def fails(request: OutgoingRequest, gate: Gate) -> Response:
        return bench.transport.answer(request, gate, status=500)

    bench.transport.script = fails
    run = bench.a_run()
    bench.submit(run)
    ((_, completion, again),) = await bench.done()
    assert completion is not None
    assert again is not None
    assert completion.state is None
    row = bench.pending(run)
    assert row is not None
    assert (again.run_id, again.fence, again.losses, again.due_at) == (row.run_id, 1, 0, completion.retry_at)


async def test_max_attempts_end_a_run(bench: PoolBench) -> None:
    async def refused(request: OutgoingRequest, gate: Gate) -> Failure:
        return Failure(Outcome.CONNECT_ERROR, "refused")

    bench.transport.script = refused
    run = bench.a_run(fence=3)
    bench.submit(run)
    ((_, completion, again),) = await bench.done()
    assert completion is not None
    assert (completion.state, completion.sent, completion.reason, again) == (
        RunState.DEAD,
        False,
        "max_attempts",
        None,
    )


# --- the trust window -----------------------------------------------------------------------------------------------


class WithoutTrust(CallPool):
    """Broken: the lease's age is not looked at."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trust = type("Blind", (), {"trusted": True})()


async def call_without_trust(bench: PoolBench) -> int:
    """The trust window passes while the connection opens. Requests that went out."""

    async def slow_connect(request: OutgoingRequest, gate: Gate) -> Response:
        bench.trust.trusted = False
        await gate.ready()
        return bench.transport.answer(request, gate)

    bench.transport.script = slow_connect
    bench.submit(bench.a_run())
    await bench.done()
    return len(bench.transport.sent)


async def test_no_call_starts_once_the_lease_is_not_trusted_and_the_run_goes_back(bench: PoolBench) -> None:
    assert await call_without_trust(bench) == 0
    ((run, completion, again),) = bench.listener.released_runs
    row = bench.pending(run)
    assert completion is None
    assert row == again
    assert row is not None
    assert (row.fence, row.losses, row.due_at) == (1, 1, run.due_at)
    assert bench.history(run) == []
    assert bench.listener.begun == []


async def test_the_check_catches_a_pool_that_does_not_look_at_its_lease() -> None:
    bench = PoolBench(WithoutTrust)
    assert await call_without_trust(bench) == 1
    await bench.pool.close()


# --- what the begin read, and for how long it holds -------------------------------------------------------------------


async def late_connection(bench: PoolBench, seconds: float = 0.3) -> Begun:
    """A call whose connection opens so long after its begin was sent."""

    async def slow_connect(request: OutgoingRequest, gate: Gate) -> Response:
        bench.clock.advance(seconds)
        await gate.ready()
        return bench.transport.answer(request, gate)

    bench.transport.script = slow_connect
    return bench.a_run()


@pytest.mark.parametrize(("seconds", "asked"), [(VOUCHED_SECONDS - 0.01, 0), (VOUCHED_SECONDS + 0.01, 1)])
async def test_a_call_asks_again_if_it_could_not_start_within_a_quarter_second(
    bench: PoolBench, seconds: float, asked: int
) -> None:
    bench.submit(await late_connection(bench, seconds))
    await bench.done()
    assert len(bench.runs.rechecks) == asked
    assert len(bench.transport.sent) == 1


async def late_call_of_an_edited_task(bench: PoolBench) -> int:
    """The task is edited after the begin; the connection opens late. Requests that went out."""
    run = await late_connection(bench)
    bench.submit(run)
    bench.edit(bench.database.tasks[run.task_id], version=2)
    await bench.done()
    return len(bench.transport.sent)


async def test_no_late_call_of_an_old_version(bench: PoolBench) -> None:
    assert await late_call_of_an_edited_task(bench) == 0
    ((run, completion, _),) = bench.listener.released_runs
    assert completion is None
    row = bench.pending(run)
    assert row is not None
    assert row.losses == 1


async def test_the_check_catches_a_pool_that_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VOUCHED_SECONDS", 1e9)
    bench = PoolBench()
    assert await late_call_of_an_edited_task(bench) == 1
    await bench.pool.close()


async def test_no_late_call_of_a_paused_task(bench: PoolBench) -> None:
    run = await late_connection(bench)
    bench.submit(run)
    bench.edit(bench.database.tasks[run.task_id], state=TaskState.PAUSED)
    await bench.done()
    assert bench.transport.sent == []
    assert bench.pending(run) is not None


async def test_no_late_call_of_a_cancelled_run(bench: PoolBench) -> None:
    run = await late_connection(bench)
    bench.submit(run)
    bench.database.running[run.run_id].cancelled = True
    await bench.done()
    assert bench.transport.sent == []
    (row,) = bench.history(run)
    assert (row.state, row.outcome, row.sent) == (RunState.CANCELLED, Outcome.CANCELLED, False)


async def test_of_a_run_that_is_no_longer_ours_nothing_is_called_or_written(bench: PoolBench) -> None:
    run = await late_connection(bench)
    bench.submit(run)
    bench.database.running[run.run_id].lease_id = UUID(int=5)
    assert await bench.done() == [(run, None, None)]
    await turns()
    assert bench.transport.sent == []
    assert bench.runs.completions == []
    assert bench.runs.put_backs == []


async def test_a_store_that_does_not_answer_sends_the_run_back(bench: PoolBench) -> None:
    run = await late_connection(bench)
    bench.runs.away["recheck"] = 1
    bench.submit(run)
    await bench.done()
    assert bench.transport.sent == []
    row = bench.pending(run)
    assert row is not None
    assert (row.fence, row.losses) == (1, 1)


async def test_what_the_engine_sends_back_goes_back_without_a_call(bench: PoolBench) -> None:
    run = bench.a_run()
    bench.pool.put_back(run)
    ((_, completion, again),) = await bench.done()
    assert completion is None
    assert bench.pending(run) == again
    assert bench.transport.calls == 0


# --- cancelling -----------------------------------------------------------------------------------------------------


async def test_an_aborted_run_that_waits_makes_no_connection(bench: PoolBench) -> None:
    run = bench.a_run(due_in=5)
    bench.submit(run)
    bench.pool.abort(run.run_id)
    await bench.advance(5)
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
    run = bench.a_run(due_in=5)
    bench.submit(run)
    bench.clock.advance(5)
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


async def hanging(transport: ScriptedTransport, *, sent: bool) -> asyncio.Event:
    """A call that hangs once its request is out, or before that. The event: it hangs."""
    hangs = asyncio.Event()

    async def script(request: OutgoingRequest, gate: Gate) -> Response:
        if sent:
            transport.answer(request, gate)
        hangs.set()
        await asyncio.Event().wait()
        raise AssertionError

    transport.script = script
    return hangs


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


def test_texts_are_cleaned_for_the_store() -> None:
    assert clean("a\0b\ud800c" + "x" * 1000) == "a\ufffdb?c" + "x" * 495


# --- back-pressure and stopping ---------------------------------------------------------------------------------------


async def test_results_that_wait_show_in_the_backlog(bench: PoolBench, pauses: list[float]) -> None:
    bench.database.unavailable = True
    runs = [bench.a_run() for _ in range(20)]
    for run in runs:
        bench.submit(run)
    await until(lambda: bench.pool.backlog() == 20)
    assert len(bench.pool) == 0
    assert bench.listener.released_runs == []
    bench.database.unavailable = False
    await bench.done(20)
    assert bench.pool.backlog() == 0


async def test_drained_waits_for_calls_and_for_their_results(bench: PoolBench, pauses: list[float]) -> None:
    await asyncio.wait_for(bench.pool.drained(), 10)
    release = asyncio.Event()

    async def answers_later(request: OutgoingRequest, gate: Gate) -> Response:
        response = bench.transport.answer(request, gate)
        await release.wait()
        return response

    bench.transport.script = answers_later
    bench.submit(bench.a_run())
    waiting = bench.a_run(due_in=1)
    bench.submit(waiting)
    drained = asyncio.create_task(bench.pool.drained())
    await bench.advance(1)
    bench.database.unavailable = True
    release.set()
    await turns(100)
    assert not drained.done()
    bench.database.unavailable = False
    await asyncio.wait_for(drained, 10)
    assert bench.database.running == {}


async def test_closing_drops_everything_and_writes_nothing(bench: PoolBench) -> None:
    hangs = await hanging(bench.transport, sent=True)
    bench.submit(bench.a_run())
    bench.submit(bench.a_run(due_in=3600))
    await hangs.wait()
    await bench.pool.close()
    assert len(bench.pool) == 0
    assert bench.transport.closed
    assert bench.runs.completions == []
    assert bench.runs.put_backs == []
    assert len(bench.database.running) == 2  # given back by whoever finds the lease gone


async def test_one_attempt_after_another_of_one_run(bench: PoolBench) -> None:
    first = bench.a_run()
    bench.submit(first)
    await bench.done()
    second = replace(first, fence=2)
    bench.submit(second)
    await bench.done(2)
    assert [run.fence for run, _, _ in bench.listener.released_runs] == [1, 2]
    assert [dict(request.headers)["Tocsin-Attempt"] for request in bench.transport.sent] == ["1", "2"]


def test_a_clock_without_a_sample_says_nothing() -> None:
    with pytest.raises(RuntimeError):
        DatabaseClock(ManualClock(datetime(2026, 1, 1, tzinfo=UTC))).monotonic_at(START)
