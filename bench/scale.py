"""Scale: a million idle tasks beside a driven load; what is due starts as it does beside ten thousand."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bench.begin import IDLE_RATIO, median_ratio
from bench.drive import Outcome, Rig, judgement_figures, rig
from bench.frame import Measurement, Options, Screen
from bench.idle import IdleDatabase, beginning, seed_idle
from bench.ledger import percentile
from bench.report import Environment, Figure, Report, at_most, exactly, median_milliseconds
from bench.system import opened
from tocsin.cli.node import collect_garbage_rarely
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids

FEW, MANY = 10_000, 1_000_000
TENANTS = 100
RATE = 1000
PAIRS, SHORT_PAIRS = 7, 3
SECONDS, SHORT_SECONDS = 30, 3
WARM_UP_SECONDS = 2
DELAY_RATIO = 1.2

BEGUN = 1000
BEGINS, SHORT_BEGINS = 30, 10
BEGIN_WARM_UP = 3


@asynccontextmanager
async def idle_rig(options: Options, screen: Screen, tasks: int, part: str) -> AsyncIterator[Rig]:
    """The running product over a database with idle tasks, of the tenants that the load is of: in the same queues."""
    async with rig(options, screen, options.amount(TENANTS), part=part) as ready:
        screen.say(f"seeding {tasks:,} idle tasks")
        await seed_idle(ready.connection, ready.tenants, tasks)
        await ready.connection.execute("checkpoint")
        yield ready


@asynccontextmanager
async def begins_of(ready: Rig, ids: Ids, sample: int) -> AsyncIterator[IdleDatabase]:
    """Single begins of the idle tasks of a rig."""
    async with opened(ready.dsn) as store:
        idle = await beginning(ready.dsn, ready.connection, store, ids, sample)
        yield idle
        await store.leases.leave(idle.lease_id)


async def driven(few: Rig, many: Rig, rate: int, seconds: int, pairs: int) -> list[tuple[Outcome, Outcome]]:
    """The same load on both, one after the other, time after time; which is first changes."""
    for each in (few, many):
        await each.drive(max(1, rate // 4), WARM_UP_SECONDS)  # connections and statements are made once
    outcomes = []
    for number in range(pairs):
        if number % 2:
            after = await many.drive(rate, seconds)
            outcomes.append((await few.drive(rate, seconds), after))
        else:
            outcomes.append((await few.drive(rate, seconds), await many.drive(rate, seconds)))
    return outcomes


async def begun(few: IdleDatabase, many: IdleDatabase, count: int, runs: int) -> list[tuple[float, float]]:
    """Begins on both in turn, in seconds, while no load is driven."""
    taken = [(await few.begin(runs), await many.begin(runs)) for _ in range(BEGIN_WARM_UP + count)]
    return taken[BEGIN_WARM_UP:]


async def run(options: Options, screen: Screen) -> Report:
    ids = Ids(SystemClock(), random.Random(options.seed))
    rate, runs = options.amount(RATE), options.amount(BEGUN, 5)
    pairs = SHORT_PAIRS if options.short else PAIRS
    seconds = SHORT_SECONDS if options.short else SECONDS
    begins = SHORT_BEGINS if options.short else BEGINS
    sample = (BEGIN_WARM_UP + begins) * runs
    collect_garbage_rarely()  # as an executor does
    async with (
        idle_rig(options, screen, options.amount(FEW, 2 * runs), "few") as few,
        idle_rig(options, screen, options.amount(MANY, 4 * runs), "many") as many,
    ):
        outcomes = await driven(few, many, rate, seconds, pairs)
        screen.say(f"{begins} pairs of begins of {runs:,} idle tasks")
        async with begins_of(few, ids, sample) as of_few, begins_of(many, ids, sample) as of_many:
            taken = await begun(of_few, of_many, begins, runs)
        not_begun = sum(idle.asked - idle.begun for idle in (of_few, of_many))
        where = many.environment
    return report(outcomes, taken, not_begun, where)


def p99(outcome: Outcome) -> float:
    return percentile(outcome.judgement.delays, 0.99)


def report(
    outcomes: Sequence[tuple[Outcome, Outcome]],
    begins: Sequence[tuple[float, float]],
    not_begun: int,
    where: Environment,
) -> Report:
    """`outcomes` and `begins` are pairs: beside few idle tasks, and beside many."""
    few, many = zip(*outcomes, strict=True)
    delays = [(p99(a), p99(b)) for a, b in outcomes]
    judgements = [outcome.judgement for outcome in (*few, *many)]
    lost, duplicates = sum(j.lost for j in judgements), sum(j.duplicates for j in judgements)
    figures: dict[str, Figure] = {
        "pairs": len(outcomes),
        "measured": "after each other, in turn, while both products run",
        "runs_per_second": few[0].rate,
        "seconds_each": few[0].seconds,
        **judgement_figures(many[-1].judgement),
        "start_delay_p99_ms_beside_few": median_milliseconds([a for a, _ in delays]),
        "start_delay_p99_ms_beside_many": median_milliseconds([b for _, b in delays]),
        "begin_ms_beside_few": median_milliseconds([a for a, _ in begins]),
        "begin_ms_beside_many": median_milliseconds([b for _, b in begins]),
    }
    return Report(
        test="scale",
        environment=where,
        targets=[
            at_most("start delay p99 beside many idle tasks, times that beside few", DELAY_RATIO, _ratio(delays)),
            at_most("time of a begin beside many idle tasks, times that beside few", IDLE_RATIO, _ratio(begins)),
            exactly("lost", 0, lost),
            exactly("duplicates", 0, duplicates),
            exactly("idle tasks asked for and not begun", 0, not_begun),
        ],
        figures=figures,
        lost=lost,
        duplicates=duplicates,
        not_meaning="a rate: two products, one beside few and one beside many idle tasks, share the machine, and one "
        "idles while the other is driven. Idle tasks were seeded by SQL, and the database fits into memory.",
    )


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return median_ratio(*zip(*pairs, strict=True))


MEASUREMENT = Measurement(
    "scale", "1,000,000 idle tasks: start delay p99 within 1.2 times that beside 10,000, begin within 2.5", run
)
