"""The pool: never early, never on old trust or old knowledge, and no run is lost whatever its call does."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from pool_bench import START, PoolBench, hanging, late_connection, turns, until
from tocsin.common.clock import DatabaseClock, ManualClock
from tocsin.common.models import TaskState
from tocsin.common.states import RunState
from tocsin.common.store.rows import Outcome
from tocsin.executor import pool as module
from tocsin.executor.pool import VOUCHED_SECONDS, CallPool
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
    run = bench.a_run(due_in=0.24)
    bench.submit(run)
    while not bench.transport.sent:
        await bench.advance(0.01)
    await bench.pool.close()
    return (bench.clock.now() - run.due_at).total_seconds()


async def test_a_call_never_starts_before_its_due_instant_on_the_databases_clock() -> None:
    assert 0 <= await database_time_at_start(DatabaseClock) < 0.011


async def test_the_check_catches_a_clock_that_is_not_a_lower_bound() -> None:
    assert await database_time_at_start(UpperBound) < -0.2


class GoesByWhatWasSaidAtFirst(CallPool):
    """Broken: the instant of a call is reckoned once."""

    def _call_when_due(self, call: Any) -> None:
        self._timers._due = self._call_now
        super()._call_when_due(call)

    def _call_now(self, call: Any) -> None:
        call.task = asyncio.create_task(self._attempt(call))


def set_back(bench: PoolBench, seconds: float) -> None:
    """A heartbeat tells of it."""
    now = bench.clock.monotonic()
    bench.database_clock.sample(bench.database_clock.now() - timedelta(seconds=seconds), now, now)


async def started_after_a_set_back(pool: type[CallPool]) -> float:
    """Seconds from a run's due instant to its call, by a clock of the database's that is set back while it waits."""
    bench = PoolBench(pool)
    run = bench.a_run(due_in=0.1)
    bench.submit(run)
    set_back(bench, 0.1)
    while not bench.transport.sent:
        await bench.advance(0.01)
    await bench.pool.close()
    return (bench.database_clock.now() - run.due_at).total_seconds()


async def test_a_call_waits_on_where_the_databases_clock_is_set_back_meanwhile() -> None:
    assert 0 <= await started_after_a_set_back(CallPool) < 0.011
    assert await started_after_a_set_back(GoesByWhatWasSaidAtFirst) < -0.08


@pytest.mark.parametrize("first", [False, True])
async def test_a_run_that_a_set_back_puts_off_for_long_is_put_back_uncalled(bench: PoolBench, *, first: bool) -> None:
    run = bench.a_run(due_in=0.1)
    if first:
        set_back(bench, 3600)
    bench.submit(run)
    if not first:
        set_back(bench, 3600)
    await bench.advance(0.1)
    await asyncio.wait_for(bench.pool.drained(), 10)
    ((_, completion, again),) = await bench.done()
    assert (completion, bench.transport.calls, bench.history(run)) == (None, 0, [])
    assert again is not None
    assert (again.due_at, again.losses) == (run.due_at, 1)


async def test_an_aborted_run_is_not_held_until_it_is_due_again(bench: PoolBench) -> None:
    run = bench.a_run(due_in=0.1)
    bench.submit(run)
    set_back(bench, 3600)
    bench.pool.abort(run.run_id)
    await bench.advance(0.1)
    ((_, completion, _),) = await bench.done()
    assert completion is not None
    assert (completion.state, bench.transport.calls) == (RunState.CANCELLED, 0)


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
    waiting = bench.a_run(due_in=0.2)
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
    bench.submit(bench.a_run(due_in=0.2))
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
