"""The completer: batches, answers that were lost, and outages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from completer_bench import CompleterBench
from pool_bench import turns
from tocsin.common.store.memory.database import Running
from tocsin.common.store.rows import Begun, Completion, Outcome
from tocsin.executor.completer import Completer, Result, T


@pytest.fixture
async def bench(pauses: list[float]) -> AsyncIterator[CompleterBench]:
    made = CompleterBench()
    yield made
    await made.stop()


async def test_results_go_in_batches(bench: CompleterBench) -> None:
    task = bench.pool.a_task()
    runs = [bench.pool.a_run(task) for _ in range(1200)]
    for run in runs:
        bench.end(run)
    assert len(bench.completer) == 1200
    await bench.told_of(1200)
    assert [len(batch) for batch in bench.runs.completions] == [500, 500, 200]
    assert [run for run, _ in bench.told] == runs
    assert len(bench.completer) == 0
    assert bench.pool.database.running == {}
    assert bench.pool.meter.counters["tocsin_runs_total", "success"] == 1200


async def test_results_that_come_one_by_one_join(bench: CompleterBench) -> None:
    for _ in range(5):
        bench.end(bench.pool.a_run())
        await asyncio.sleep(0)
    await bench.told_of(5)
    assert len(bench.runs.completions) < 5


async def test_a_run_that_was_never_called_goes_back(bench: CompleterBench) -> None:
    run = bench.pool.a_run()
    bench.completer.put_back(run)
    await bench.told_of(1)
    assert bench.told == [(run, None)]
    row = bench.pool.pending(run)
    assert row is not None
    assert (row.fence, row.losses, row.due_at) == (1, 1, run.due_at)
    assert bench.pool.history(run) == []


async def lost_answer(bench: CompleterBench) -> list[Completion]:
    """The answer to a completion is lost; in the meantime the clock goes on. What was sent."""
    run = bench.pool.a_run()
    bench.runs.lost["complete"] = 2
    bench.end(run, state=None, outcome=Outcome.HTTP_ERROR, retry_at=bench.pool.clock.now() + timedelta(seconds=5))
    complete = bench.runs.complete

    async def time_passes(lease_id: UUID, completions: list[Completion]) -> object:
        bench.pool.clock.advance(1)
        return await complete(lease_id, completions)

    bench.runs.complete = time_passes  # type: ignore[method-assign,assignment]
    await bench.told_of(1)
    assert len(bench.pool.history(run)) == 1, "one attempt, and recorded twice"
    return [completion for batch in bench.runs.completions for completion in batch]


async def test_a_completion_of_unknown_outcome_is_sent_again_unchanged(bench: CompleterBench) -> None:
    sent = await lost_answer(bench)
    assert len(sent) == 3
    assert len(set(sent)) == 1
    assert bench.pool.meter.counters["tocsin_stale_writes_total",] == 0


class StampsAnew(Completer):
    """Broken: each sending has the time of its own."""

    async def _complete(self, results: Sequence[Result]) -> list[Result]:
        return await super()._complete(
            [
                (run, replace(completion, ended_at=completion.ended_at + timedelta(seconds=self._clock.monotonic())))
                for run, completion in results
            ]
        )


async def test_the_check_catches_a_completer_that_stamps_anew(pauses: list[float]) -> None:
    broken = CompleterBench(StampsAnew)
    with pytest.raises(AssertionError, match="recorded twice"):
        await lost_answer(broken)
    await broken.stop()


async def test_an_outage_keeps_results_and_says_so_to_the_engine(bench: CompleterBench, pauses: list[float]) -> None:
    bench.pool.database.unavailable = True
    runs = [bench.pool.a_run() for _ in range(700)]
    for run in runs:
        bench.end(run)
    bench.completer.put_back(bench.pool.a_run())
    await turns(200)
    assert len(bench.completer) == 701
    assert bench.told == []
    bench.pool.database.unavailable = False
    await bench.told_of(701)
    assert len(bench.completer) == 0
    assert max(pauses) == 0.5
    assert min(pauses) == 0.05


async def survives(bench: CompleterBench) -> int:
    """A fault that nobody foresaw, and then results as ever. How many of three are told."""
    bench.end(bench.pool.a_run())
    await turns()
    bench.runs.raises = TypeError("a fault of our own")
    bench.end(bench.pool.a_run())
    await turns(100)
    bench.end(bench.pool.a_run())
    await turns(100)
    return len(bench.told)


async def test_a_fault_of_our_own_does_not_end_the_completer(bench: CompleterBench) -> None:
    assert await survives(bench) == 3


class Fragile(Completer):
    """Broken: foresees outages, and nothing else."""

    async def _insist(self, write: Callable[[], Awaitable[T]]) -> T:
        return await write()


async def test_the_check_catches_a_completer_that_ends(pauses: list[float]) -> None:
    broken = CompleterBench(Fragile)
    assert await survives(broken) < 3
    await broken.stop()


async def test_an_engine_that_fails_when_it_is_told_does_not_end_the_completer(bench: CompleterBench) -> None:
    tell = bench.completer._committed

    def fails_once(run: Begun, completion: Completion | None) -> None:
        bench.completer._committed = tell
        raise TypeError("a fault of the engine")

    bench.completer._committed = fails_once
    bench.end(bench.pool.a_run())
    bench.end(bench.pool.a_run())
    await bench.told_of(1)
    await turns()
    assert bench.pool.database.running == {}
    assert len(bench.completer) == 0


async def test_a_stored_result_is_told_though_what_goes_back_must_wait(bench: CompleterBench) -> None:
    """Else the run's next attempt could be begun before the engine knows that this one has ended."""
    bench.runs.away["put_back"] = 10**6
    run = bench.pool.a_run()
    bench.completer.put_back(bench.pool.a_run())
    bench.end(run)
    await bench.told_of(1)
    assert bench.told[0][0] is run
    assert len(bench.completer) == 1


async def test_a_result_whose_fence_no_longer_holds_is_counted_and_changes_nothing(bench: CompleterBench) -> None:
    run = bench.pool.a_run()
    newer = replace(run, fence=2)
    bench.pool.database.running[run.run_id] = Running(newer, UUID(int=9), bench.pool.clock.now())
    bench.end(run)
    await bench.told_of(1)
    assert bench.pool.meter.counters["tocsin_stale_writes_total",] == 1
    assert bench.pool.database.running[run.run_id].run == newer
    (row,) = bench.pool.history(run)
    assert (row.stale, row.state) == (True, None)
