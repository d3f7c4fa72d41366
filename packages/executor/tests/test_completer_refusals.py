"""Results that the database refuses: one bad row costs nobody else anything, and no call is made twice."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from completer_bench import CompleterBench, completion_of
from pool_bench import FaultyRuns, PoolBench, until
from tocsin.common.clock import SystemClock
from tocsin.common.errors import RowRefusedError
from tocsin.common.states import RunState
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import Begun, Completion, CompletionResult, Outcome
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.executor.classify import EndReason
from tocsin.executor.completer import Completer, CompleterConfig, minimal

MINIMAL = "the result could not be stored as it was"

BAD: list[dict[str, object]] = [
    {"error": "a\0b"},
    {"error": "\ud800"},
    {"reason": "a\0b"},
    {"http_status": 99_999},
]


@pytest.fixture
async def bench(pauses: list[float]) -> AsyncIterator[CompleterBench]:
    made = CompleterBench()
    yield made
    await made.stop()


async def one_row_at_fault_costs_only_itself(bench: CompleterBench, bad: dict[str, object]) -> None:
    task = bench.pool.a_task()
    runs = [bench.pool.a_run(task) for _ in range(9)]
    for number, run in enumerate(runs):
        bench.end(run, **{"error": f"number {number}", **(bad if number == 5 else {})})
    await bench.told_of(9)
    for number, run in enumerate(runs):
        (row,) = bench.pool.history(run)
        assert row.state is RunState.SUCCEEDED
        assert row.error == (MINIMAL if number == 5 else f"number {number}")


@pytest.mark.parametrize("bad", BAD)
async def test_one_row_that_cannot_be_stored_is_written_minimal_and_others_whole(
    bench: CompleterBench, bad: dict[str, object]
) -> None:
    await one_row_at_fault_costs_only_itself(bench, bad)


async def test_the_check_catches_a_minimal_form_with_texts_of_others(
    bench: CompleterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.executor.completer.minimal", lambda completion: replace(completion, error=MINIMAL))
    with pytest.raises(AssertionError, match="never came true"):
        await one_row_at_fault_costs_only_itself(bench, {"reason": "a\0b"})


def test_the_minimal_form_keeps_the_reasons_that_are_ours() -> None:
    completion = completion_of(PoolBench().a_run(), datetime(2026, 3, 10, tzinfo=UTC), response=b"x", error="y")
    for reason in EndReason:
        least = minimal(replace(completion, reason=reason))
        assert (least.reason, least.error, least.response, least.http_status) == (reason, MINIMAL, None, None)
    assert minimal(replace(completion, reason="another")).reason is None


class PostgresCompleter:
    """A completer at work over PostgreSQL, with one run that is running."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url, size=2)
        self.run = PoolBench().a_run()
        self.told = asyncio.Event()
        config = CompleterConfig(refused_pause=0.01)
        self.completer = Completer(
            self.store.runs, UUID(int=7), SystemClock(), MemoryMeter(), lambda *_: self.told.set(), config
        )

    async def open(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        run = self.run
        await connection.execute(
            "insert into running (run_id, tenant_id, task_id, lease_id, due_at, fence, version, plan_version, priority,"
            " lane, losses, kind) values ($1, $2, $3, $4, $5, $6, 1, 1, 2, 0, 0, $7)",
            *(run.run_id, run.tenant_id, run.task_id, UUID(int=7), run.due_at, run.fence, run.kind),
        )
        await self.store.open()
        self.task = asyncio.create_task(self.completer.run())

    def end(self, **changes: object) -> None:
        retry = {"state": None, "outcome": Outcome.HTTP_ERROR, "retry_at": self.run.due_at + timedelta(seconds=1)}
        self.completer.add(self.run, completion_of(self.run, self.run.due_at, **{**retry, **changes}))

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.store.close()


@pytest.fixture
async def connection(database_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    made = await asyncpg.connect(database_url)
    yield made
    await made.close()


@pytest.fixture
async def postgres(
    database_url: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> AsyncIterator[PostgresCompleter]:
    made = PostgresCompleter(database_url)
    await made.open(connection)
    yield made
    await made.close()


async def test_postgresql_takes_every_minimal_form(
    postgres: PostgresCompleter, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    postgres.end(**{name: value for bad in BAD for name, value in bad.items()})
    await postgres.told.wait()
    row = await connection.fetchrow("select * from history where run_id = $1", postgres.run.run_id)
    assert row is not None
    assert (row["outcome"], row["sent"], row["error"]) == ("http_error", True, MINIMAL)
    fence = await connection.fetchval("select fence from pending where run_id = $1", postgres.run.run_id)
    assert fence == postgres.run.fence


async def test_a_table_of_postgresql_that_refuses_keeps_the_run_in_flight_until_it_is_repaired(
    postgres: PostgresCompleter, connection: "asyncpg.Connection[asyncpg.Record]", caplog: pytest.LogCaptureFixture
) -> None:
    await connection.execute("alter table history add constraint sick check (outcome <> 'http_error') not valid")
    postgres.end()
    while "stays in flight" not in caplog.text:
        await connection.fetch("select 1")  # a turn for the completer, and for the server
    assert not postgres.told.is_set()
    assert await connection.fetchval("select count(*) from running") == 1
    await connection.execute("alter table history drop constraint sick")
    await postgres.told.wait()
    assert await connection.fetchval("select count(*) from running") == 0
    assert await connection.fetchval("select error from history") == MINIMAL


class Refusing(FaultyRuns):
    """Refuses some runs in every form, until it is healed."""

    bad: frozenset[UUID] = frozenset()

    async def complete(self, lease_id: UUID, completions: Sequence[Completion]) -> CompletionResult:
        if any(completion.run_id in self.bad for completion in completions):
            self.completions.append(list(completions))
            raise RowRefusedError("never")
        return await super().complete(lease_id, completions)


def refusing(bench: CompleterBench, *runs: Begun) -> Refusing:
    store = Refusing(bench.pool.database)
    store.bad = frozenset(run.run_id for run in runs)
    bench.completer._runs = store
    return store


async def call_that_was_made_is_not_made_again(bench: CompleterBench) -> None:
    """A result that the database refuses in every form, beside one that it takes.

    What an owner's net puts back is what its lease holds in the database and memory does not: so a run
    that is told to have ended, and is still there, is called again.
    """
    bad, good = bench.pool.a_run(), bench.pool.a_run()
    store = refusing(bench, bad)
    bench.end(bad)
    bench.end(good)
    await bench.told_of(1)
    await until(lambda: len(store.completions) > 20 or len(bench.told) > 1)
    held = {row.run_id for row in await bench.runs.held(bench.pool.lease_id)}
    in_flight = {bad.run_id, good.run_id} - {run.run_id for run, _ in bench.told}
    assert held - in_flight == set(), "the net puts it back as never called"
    assert bench.pool.history(good)[0].state is RunState.SUCCEEDED


async def test_a_call_that_was_made_is_not_made_again_though_its_result_is_refused(bench: CompleterBench) -> None:
    await call_that_was_made_is_not_made_again(bench)
    assert [run for run, _ in bench.told] != []
    assert len(bench.completer) == 1


class TellsAllTheSame(Completer):
    """Broken: takes a result that nobody stored for one that is."""

    async def _complete(self, results: Sequence[tuple[Begun, Completion]]) -> list[tuple[Begun, Completion]]:
        await super()._complete(results)
        return []


async def test_the_check_catches_a_completer_that_tells_of_what_is_not_stored(pauses: list[float]) -> None:
    broken = CompleterBench(TellsAllTheSame)
    with pytest.raises(AssertionError, match="as never called"):
        await call_that_was_made_is_not_made_again(broken)
    await broken.stop()


async def test_what_was_refused_is_stored_once_the_database_takes_it(
    bench: CompleterBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    runs = [bench.pool.a_run() for _ in range(3)]
    store = refusing(bench, *runs)
    for run in runs:
        bench.end(run)
    await until(lambda: len(store.completions) > 100)
    assert (bench.told, len(bench.completer)) == ([], 3)
    assert all(str(run.run_id) in caplog.text for run in runs)
    said = [record.getMessage() for record in caplog.records if "stays in flight" in record.getMessage()]
    assert len(said) == 3, "once for each, however often it is tried"
    store.bad = frozenset()
    await bench.told_of(3)
    assert len(bench.completer) == 0
    assert bench.pool.meter.counters["tocsin_runs_total", "success"] == 3
    assert [bench.pool.history(run)[0].error for run in runs] == [MINIMAL] * 3


async def test_many_that_are_refused_do_not_hold_up_the_others(bench: CompleterBench) -> None:
    """Each time at most a batch of them is tried, in turns."""
    task = bench.pool.a_task()
    runs = [bench.pool.a_run(task) for _ in range(1201)]
    store = refusing(bench, *runs)
    for run in runs:
        bench.end(run)
    await until(lambda: len(bench.completer._refused) == 1201)
    before = len(store.completions)
    good = bench.pool.a_run(task)
    bench.end(good)
    await bench.told_of(1)
    assert len(store.completions) - before <= 2 * 500
    assert max(len(sent) for sent in store.completions) == 500
    store.bad = frozenset()
    await bench.told_of(1202)


async def test_the_next_try_comes_after_a_pause(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda delay, *_: asked.append(delay))
    bench = CompleterBench()
    bench.completer._config = CompleterConfig(gather=0)
    run = bench.pool.a_run()
    refusing(bench, run)
    bench.end(run)
    await until(lambda: asked)
    assert asked == [30.0]
    await bench.stop()
