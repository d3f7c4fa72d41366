"""A call that met a dead connection of the pool: an attempt like another, made again at once, on a new one, once."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from pool_bench import START, PoolBench
from tocsin.common.models import RetrySpec
from tocsin.common.states import RunState
from tocsin.common.store.rows import Begun, Outcome
from tocsin.executor.pool import CallPool
from tocsin.executor.stale import StaleCalls
from tocsin.executor.transport.port import Failure, Gate, OutgoingRequest, Response


class Endless(StaleCalls):
    """Broken: forgets that the call before was stale too."""

    def result(self, run_id: UUID, result: Response | Failure) -> Response | Failure:
        return result


class OnOldConnections(StaleCalls):
    """Broken: asks for no new connection."""

    def request(self, run_id: UUID, request: OutgoingRequest) -> OutgoingRequest:
        return request


class StalePool(PoolBench):
    """Every call goes out and meets a connection that is dead, as the transport says."""

    def __init__(self, stale: StaleCalls | None = None) -> None:
        super().__init__(CallPool)
        self.pool._stale = stale or StaleCalls()
        self.fresh: list[bool] = []
        self.transport.script = self.die

    async def die(self, request: OutgoingRequest, gate: Gate) -> Failure:
        self.fresh.append(request.fresh)
        response = self.transport.answer(request, gate)
        return Failure(Outcome.CONNECTION_LOST, "closed without an answer", response.started, reused=True)

    async def attempts(self, count: int, *, max_attempts: int = 5) -> list[float | None]:
        """So many attempts of one run: the seconds from the end of each to the next, None where there is none."""
        task = self.a_task(retry=RetrySpec(max_attempts=max_attempts, base_seconds=60))
        first, waits = self.a_run(task), list[float | None]()
        for number in range(1, count + 1):
            waits.append(await self.attempt(replace(first, fence=number)))
        await self.pool.close()
        return waits

    async def attempt(self, run: Begun) -> float | None:
        self.submit(run)
        _, completion, again = (await self.done(run.fence))[-1]
        assert completion is not None
        assert (completion.outcome, completion.sent) == (Outcome.CONNECTION_LOST, True)
        return None if again is None else (again.due_at - self.clock.now()).total_seconds()


async def test_a_stale_call_is_made_again_at_once_on_a_fresh_connection_and_once() -> None:
    bench = StalePool()
    first, second, third = await bench.attempts(3)
    assert (first, third) == (0.0, 0.0)
    assert second is not None
    assert second > 0
    assert bench.fresh == [False, True, False]


async def test_the_check_catches_a_second_call_at_once() -> None:
    first, second = await StalePool(Endless()).attempts(2)
    assert (first, second) == (0.0, 0.0)


async def test_the_check_catches_a_call_that_may_meet_an_old_connection_again() -> None:
    bench = StalePool(OnOldConnections())
    await bench.attempts(2)
    assert bench.fresh == [False, False]


async def test_it_is_an_attempt_in_the_history_and_counts_as_one() -> None:
    bench = StalePool()
    assert await bench.attempts(2, max_attempts=2) == [0.0, None]
    ((run, _, _), (_, end, _)) = bench.listener.released_runs
    assert end is not None
    assert (end.state, end.reason) == (RunState.DEAD, "max_attempts")
    row = min(bench.history(run), key=lambda row: row.fence)
    assert (row.outcome, row.sent, row.started_at) == (Outcome.CONNECTION_LOST, True, START)


async def test_no_call_is_made_at_once_past_the_deadline() -> None:
    bench = StalePool()
    task = bench.a_task(retry=RetrySpec(deadline_seconds=60))
    run = bench.a_run(task)
    bench.clock.advance(61)
    bench.database_clock.sample(START + timedelta(seconds=61), bench.clock.monotonic(), bench.clock.monotonic())
    assert await bench.attempt(run) is None
    await bench.pool.close()


def test_so_many_are_remembered() -> None:
    stale, lost = StaleCalls(size=2), Failure(Outcome.CONNECTION_LOST, "", 1.0, reused=True)
    ids = [UUID(int=number) for number in range(3)]
    for run_id in ids:
        assert stale.result(run_id, lost) is lost
    assert [stale.result(run_id, lost) == lost for run_id in ids[1:]] == [False, False]
    assert stale.result(ids[0], lost) is lost  # forgotten
