"""Completion: the one statement of every end, in batches and one row at a time, and under an old transaction."""

import random
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

from bench.alone import alone
from bench.begin import median_ratio, old_transaction
from bench.frame import Measurement, Options, Screen
from bench.idle import completion, new_database
from bench.report import Environment, Figure, Report, at_least, at_most, exactly
from bench.system import Connection, connected, opened, prepare
from tocsin.cli.node import collect_garbage_rarely
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids, lane_of
from tocsin.common.models import Kind, Priority
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import Begun, Completion, Outcome
from tocsin.common.store.tenants import Process

BATCHES = (100, 500, 1000)
COMPARED = 500
"""The batch that is compared with one row at a time."""

SINGLES = 100
"""Rows that are completed one at a time in each round."""

ROUNDS, SHORT_ROUNDS = 60, 20
WARM_UP = 3
BATCH_GAIN = 10.0
HELD_RATIO = 1.5

Ending = Literal["terminal", "retry", "mixed"]
ENDINGS: Sequence[Ending] = ("terminal", "retry", "mixed")
MIXED_RETRIES = 5
"""Of a mixed batch, one in so many is a retry."""

_TENANTS = 100
_TTL = 86_400.0
_AGAIN = timedelta(days=1)
_RUNNING = (
    "run_id",
    "tenant_id",
    "task_id",
    "lease_id",
    "due_at",
    "slot",
    "fence",
    "version",
    "plan_version",
    "priority",
    "lane",
    "losses",
    "kind",
)

Variant = tuple[str, int]
"""How its runs end (or `singly`), and the rows that are timed together."""

Seconds = Mapping[Variant, Sequence[float]]


@dataclass(slots=True)
class RunningDatabase:
    """Runs that are running under a lease, to be completed; `running` is as small as it is in life."""

    dsn: str
    connection: Connection
    store: PostgresStore
    lease_id: UUID
    ids: Ids
    tenants: Sequence[UUID]
    asked: int = 0
    applied: int = 0

    async def complete(self, ending: Ending, count: int) -> float:
        """Completes `count` runs in one statement; the seconds."""
        return await self._timed([await self._ended(ending, count)])

    async def complete_singly(self, count: int) -> float:
        """Completes `count` runs in as many statements, one after the other; the seconds."""
        return await self._timed([[one] for one in await self._ended("terminal", count)])

    async def _timed(self, batches: Sequence[Sequence[Completion]]) -> float:
        began = time.perf_counter()
        results = [await self.store.runs.complete(self.lease_id, batch) for batch in batches]
        seconds = time.perf_counter() - began
        self.asked += sum(len(batch) for batch in batches)
        self.applied += sum(len(result.applied) for result in results)
        return seconds

    async def _ended(self, ending: Ending, count: int) -> list[Completion]:
        """The ends of as many runs that are put into `running` now."""
        now = datetime.now(UTC)
        runs = [self._run(number, now) for number in range(count)]
        records = [
            (
                *(run.run_id, run.tenant_id, run.task_id, self.lease_id, run.due_at, run.slot, run.fence, run.version),
                *(run.plan_version, run.priority, run.lane, run.losses, run.kind),
            )
            for run in runs
        ]
        await self.connection.copy_records_to_table("running", records=records, columns=_RUNNING)
        return [
            _retried(completion(run, now), now) if is_retry(ending, number) else completion(run, now)
            for number, run in enumerate(runs)
        ]

    def _run(self, number: int, now: datetime) -> Begun:
        task_id = self.ids.new()
        return Begun(
            run_id=self.ids.new(),
            fence=1,
            tenant_id=self.tenants[number % len(self.tenants)],
            task_id=task_id,
            priority=Priority.NORMAL,
            due_at=now,
            slot=now,
            last_slot=None,
            lane=lane_of(task_id),
            kind=Kind.SLOT,
            plan_version=1,
            losses=0,
            version=1,
        )


def is_retry(ending: Ending, number: int) -> bool:
    """Whether the run at this place of a batch is to be tried again."""
    return ending == "retry" or (ending == "mixed" and number % MIXED_RETRIES == 0)


def _retried(end: Completion, now: datetime) -> Completion:
    return replace(end, outcome=Outcome.HTTP_ERROR, http_status=503, state=None, retry_at=now + _AGAIN)


@asynccontextmanager
async def running_database(server_dsn: str, name: str, ids: Ids) -> AsyncIterator[RunningDatabase]:
    async with new_database(server_dsn, name) as dsn, opened(dsn) as store, connected(dsn) as connection:
        await prepare(dsn, store)
        lease_id = ids.new()
        await store.leases.register(lease_id, "shared", 0, Process("bench", "", "", 0, 0.0), "", _TTL)
        yield RunningDatabase(dsn, connection, store, lease_id, ids, [ids.new() for _ in range(_TENANTS)])


async def in_turn(
    databases: Sequence[RunningDatabase], batches: Sequence[int], singles: int, rounds: int
) -> list[dict[Variant, list[float]]]:
    """Every variant once a round, on each database in turn; the seconds of each database, without the first rounds."""
    taken: list[dict[Variant, list[float]]] = [{} for _ in databases]
    for _ in range(WARM_UP + rounds):
        for batch in batches:
            for ending in ENDINGS:
                for database, seconds in zip(databases, taken, strict=True):
                    seconds.setdefault((ending, batch), []).append(await database.complete(ending, batch))
        for database, seconds in zip(databases, taken, strict=True):
            seconds.setdefault(("singly", singles), []).append(await database.complete_singly(singles))
    return [{variant: times[WARM_UP:] for variant, times in seconds.items()} for seconds in taken]


async def run(options: Options, screen: Screen) -> Report:
    ids = Ids(SystemClock(), random.Random(options.seed))
    batches = [options.amount(batch) for batch in BATCHES]
    rounds = options.amount(SHORT_ROUNDS if options.short else ROUNDS, 3)
    collect_garbage_rarely()  # as an executor does
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(alone(options))
        free = await stack.enter_async_context(running_database(base.dsn, "free", ids))
        held = await stack.enter_async_context(running_database(base.dsn, "held", ids))
        await stack.enter_async_context(old_transaction(held.dsn))  # it holds back its own database alone
        screen.say(f"{rounds} rounds of completions, without and with an old transaction in turn")
        taken = await in_turn((free, held), batches, options.amount(SINGLES), rounds)
    lost = free.asked - free.applied + held.asked - held.applied
    return report(taken[0], taken[1], options.amount(COMPARED), lost, base.environment)


def rate(seconds: Seconds, variant: Variant) -> float:
    """Rows a second by the median."""
    return variant[1] / statistics.median(seconds[variant])


def gain(seconds: Seconds, batch: int) -> float:
    """Rows a second in batches of this size, times those of one row at a time, by the medians of terminal ends."""
    (singly,) = (variant for variant in seconds if variant[0] == "singly")
    return rate(seconds, ("terminal", batch)) / rate(seconds, singly)


def worst_ratio(free: Seconds, held: Seconds) -> float:
    """The greatest of the variants' ratios of times under an old transaction to those without."""
    return max(median_ratio(free[variant], held[variant]) for variant in free)


def report(free: Seconds, held: Seconds, compared: int, lost: int, where: Environment) -> Report:
    figures: dict[str, Figure] = {"rounds": len(next(iter(free.values())))}
    for name, seconds in (("", free), ("held_", held)):
        for variant in seconds:
            figures[f"{name}rows_per_second_{variant[0]}_{variant[1]}"] = round(rate(seconds, variant))
    return Report(
        test="completion",
        environment=where,
        targets=[
            at_least(
                f"rows a second in batches of {compared}, times those one at a time", BATCH_GAIN, gain(free, compared)
            ),
            at_most("time under an old transaction, times that without", HELD_RATIO, worst_ratio(free, held)),
            exactly("completions asked for and not applied", 0, lost),
        ],
        figures=figures,
        lost=lost,
        not_meaning="the rate of the product: one process, one statement at a time, and no begins or calls beside it. "
        f"Of a mixed batch one run in {MIXED_RETRIES} is a retry. No response is kept.",
    )


MEASUREMENT = Measurement(
    "completion", "completions: batches of 100 to 1,000 against one row at a time, and under an old transaction", run
)
