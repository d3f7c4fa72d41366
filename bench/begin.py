"""Begin: the one statement of every start, beside few and many idle tasks, and under an old transaction."""

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from bench.alone import alone
from bench.frame import Measurement, Network, Options, Screen
from bench.idle import IdleDatabase, idle_database
from bench.reach import REACHES
from bench.report import Environment, Figure, Report, at_least, at_most, exactly, milliseconds
from bench.system import connected, opened
from tocsin.cli.node import collect_garbage_rarely
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids

RUNS = 1000
WANTED: Mapping[Network, int] = {"direct": 55_000, "az": 40_000}
FEW, MANY = 10_000, 1_000_000
PAIRS, SHORT_PAIRS = 60, 20
WARM_UP = 5
IDLE_RATIO = 2.5

BATCHES = (100, 500, 1000)
BATCH_ROUNDS = 10

HELD_TASKS = 500
HELD_SECONDS, SHORT_HELD_SECONDS = 600, 18
HELD_RATIO = 2.0
WINDOWS = 6


BatchSeconds = Mapping[tuple[str, int], Sequence[float]]
"""By what the begins were beside, and their runs."""


@dataclass(frozen=True, slots=True)
class Begins:
    """Seconds of begins: in a row beside few idle tasks; beside few and many, taken in turn; one after a checkpoint.

    Taken in turn, two databases that no life has side by side push each other out of the processor's caches: good for
    their ratio, not for a rate.
    """

    in_a_row: Sequence[float]
    few: Sequence[float]
    many: Sequence[float]
    after_checkpoint: float

    @property
    def ratio(self) -> float:
        return median_ratio(self.few, self.many)


def median_ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """The median of second over first, pair by pair: what disturbs the machine for longer than a pair cancels out."""
    return statistics.median(b / a for a, b in zip(first, second, strict=True))


def worst_growth(rounds: Sequence[float], windows: int) -> float:
    """The greatest median of later windows over the first window's."""
    size = len(rounds) // windows
    medians = [statistics.median(rounds[n * size : (n + 1) * size]) for n in range(windows)]
    return max(medians[1:]) / medians[0]


@asynccontextmanager
async def old_transaction(dsn: str) -> AsyncIterator[None]:
    """A REPEATABLE READ transaction that stays open with its snapshot, as a report's would.

    Raises:
        AssertionError: the server ended it in between.
    """
    async with connected(dsn, idle_in_transaction_session_timeout="0") as connection:
        await connection.execute("begin isolation level repeatable read; select count(*) from leases")
        yield
        held = await connection.fetchval(
            "select backend_xmin is not null from pg_stat_activity where pid = pg_backend_pid()"
        )
        assert held, "the old transaction no longer held its snapshot"
        await connection.execute("rollback")


async def begins(few: IdleDatabase, many: IdleDatabase, count: int, runs: int) -> Begins:
    for _ in range(WARM_UP):
        await few.begin(runs)
    in_a_row = [await few.begin(runs) for _ in range(count)]
    for _ in range(WARM_UP):
        await few.begin(runs)
        await many.begin(runs)
    taken = [(await few.begin(runs), await many.begin(runs)) for _ in range(count)]
    await many.connection.execute("checkpoint")
    after = await many.begin(runs)
    return Begins(in_a_row, [a for a, _ in taken], [b for _, b in taken], after)


async def begins_away(near: IdleDatabase, count: int, runs: int) -> tuple[list[float], Environment]:
    """Begins in a row on the same database from 1 ms away; and how far that was found to be."""
    async with REACHES["az"](near.dsn) as reached, opened(reached.dsn) as store:
        away = replace(near, store=store)
        seconds = [await away.begin(runs) for _ in range(WARM_UP + count)]
    near.asked, near.begun = away.asked, away.begun
    return seconds[WARM_UP:], reached.environment("network_az")


async def by_batch(databases: Mapping[str, IdleDatabase], batches: Sequence[int], rounds: int) -> BatchSeconds:
    """Begins of each size on each database in turn."""
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for batch in batches:
            for name, database in databases.items():
                seconds.setdefault((name, batch), []).append(await database.begin(batch))
    return seconds


async def by_batch_and_snapshot(few: IdleDatabase, many: IdleDatabase, batches: Sequence[int]) -> BatchSeconds:
    """The same without and then with an old transaction in each database."""
    free = await by_batch({"few_idle": few, "many_idle": many}, batches, BATCH_ROUNDS)
    async with old_transaction(few.dsn), old_transaction(many.dsn):
        held = await by_batch({"held_few_idle": few, "held_many_idle": many}, batches, BATCH_ROUNDS)
    return {**free, **held}


async def held(database: IdleDatabase, screen: Screen, rounds: int, every: float, runs: int) -> list[float]:
    """Begins `runs` tasks every `every` seconds beside an old transaction: the same tasks again and again."""
    while len(database.rows) > runs:
        database.rows.pop()
    for _ in range(WARM_UP):
        await database.begin(runs)
    async with old_transaction(database.dsn):
        rounds_done = asyncio.create_task(_rounds(database, rounds, every, runs))

        async def is_done() -> bool:
            return rounds_done.done()

        await screen.wait(f"{runs} tasks each {every:g} s, an old transaction open", rounds * every, is_done)
        return await rounds_done


async def _rounds(database: IdleDatabase, rounds: int, every: float, runs: int) -> list[float]:
    began = time.monotonic()
    taken = []
    for number in range(rounds):
        await asyncio.sleep(max(0.0, began + number * every - time.monotonic()))
        taken.append(await database.begin(runs))
    return taken


async def run(options: Options, screen: Screen) -> Report:
    ids = Ids(SystemClock(), random.Random(options.seed))
    runs = options.amount(RUNS, 10)
    count = SHORT_PAIRS if options.short else PAIRS
    batches = [options.amount(batch, 2) for batch in BATCHES]
    sample = (count + WARM_UP + 1) * runs + 2 * BATCH_ROUNDS * sum(batches)
    collect_garbage_rarely()  # as an executor does
    async with alone(options) as base:
        screen.say(f"seeding {options.amount(FEW):,} and {options.amount(MANY):,} idle tasks")
        async with (
            idle_database(base.dsn, ids, options.amount(FEW, 2 * runs), sample) as few,
            idle_database(base.dsn, ids, options.amount(MANY, 4 * runs), sample) as many,
        ):
            screen.say(f"{count} begins of {runs:,}, and as many pairs")
            found = await begins(few, many, count, runs)
            away, distance = await begins_away(few, count, runs) if options.network == "direct" else ([], {})
            screen.say(f"begins of {', '.join(f'{batch:,}' for batch in batches)}, without and with an old transaction")
            batched = await by_batch_and_snapshot(few, many, batches)
            rounds = SHORT_HELD_SECONDS if options.short else HELD_SECONDS
            tasks = options.amount(HELD_TASKS, 5)
            flat = await held(few, screen, rounds, min(1.0, options.scale), tasks)
            lost = sum(database.asked - database.begun for database in (few, many))
    where = {**base.environment, **distance}
    return report(options, found, batched, flat, lost, runs, where, away)


def report(
    options: Options,
    found: Begins,
    batched: BatchSeconds,
    flat: Sequence[float],
    lost: int,
    runs: int,
    where: Environment,
    away: Sequence[float] = (),
) -> Report:
    """`away`: begins in a row from 1 ms away, where the others are not."""
    rate = runs / statistics.median(found.in_a_row)
    targets = [at_least("begin + plant beside few idle tasks", options.amount(WANTED[options.network]), rate, "runs/s")]
    if away:
        far = runs / statistics.median(away)
        targets.append(at_least("begin + plant, the database 1 ms away", options.amount(WANTED["az"]), far, "runs/s"))
    figures: dict[str, Figure] = {
        "runs_per_statement": runs,
        "pairs": len(found.few),
        "in_a_row_ms": milliseconds(statistics.median(found.in_a_row)),
        "in_a_row_best_ms": milliseconds(min(found.in_a_row)),
        "few_idle_ms": milliseconds(statistics.median(found.few)),
        "many_idle_ms": milliseconds(statistics.median(found.many)),
        "few_idle_best_ms": milliseconds(min(found.few)),
        "many_idle_best_ms": milliseconds(min(found.many)),
        "first_after_checkpoint_ms": milliseconds(found.after_checkpoint),
        "held_first_window_ms": milliseconds(statistics.median(flat[: len(flat) // WINDOWS])),
        "held_last_window_ms": milliseconds(statistics.median(flat[-(len(flat) // WINDOWS) :])),
        "held_rounds": len(flat),
        **{
            f"runs_per_second_{name}_batch_{batch}": round(batch / statistics.median(seconds))
            for (name, batch), seconds in batched.items()
        },
    }
    return Report(
        test="begin",
        environment=where,
        targets=[
            *targets,
            at_most("time beside many idle tasks, times that beside few", IDLE_RATIO, found.ratio),
            at_most("growth under an old transaction", HELD_RATIO, worst_growth(flat, WINDOWS), "x"),
            exactly("rows asked for and not begun", 0, lost),
        ],
        figures=figures,
        lost=lost,
        not_meaning="the rate of the product: one process, one statement at a time, no calls, and the statement alone "
        "is timed (completions run in between). Tasks are picked at random among the idle ones; no checkpoint falls "
        "into the pairs.",
    )


MEASUREMENT = Measurement(
    "begin",
    "begin + plant: >= 55,000 runs/s (40,000 at +1 ms), beside a million idle tasks, flat under an old transaction",
    run,
)
