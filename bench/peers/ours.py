"""Tocsin itself at the peers' two tests: the whole product as `tocsin up` starts it."""

import dataclasses
from dataclasses import dataclass

from bench.drive import LEAD_SECONDS, Rig, rig
from bench.frame import Options, Screen
from bench.ledger import Judgement, judge
from bench.load import Load, make_load, seed
from bench.peers.verdict import OURS, Outcome, Row
from bench.report import Environment
from tocsin.common.settings import Settings

TRANSPORT = Settings.model_fields["transport"].default
"""What the executors call with: no setting of the caller's own reaches them."""

TENANTS = 100
SEEDED_A_SECOND = 3000
"""Tasks, cautiously: the first slot is later than the seeding's end."""


@dataclass(frozen=True, slots=True)
class Work:
    """The two tests: `drain` runs at one instant at an endpoint that answers at once, then `rate` a second for
    `seconds` at one that answers after `wait_ms`; each after `warm_up` runs at one instant at the same endpoint."""

    warm_up: int
    drain: int
    rate: int
    seconds: int
    wait_ms: int


async def measured(options: Options, screen: Screen, work: Work) -> tuple[Row, Environment]:
    """Our row, and where all of it ran."""
    tenants = min(TENANTS, work.rate)
    async with rig(options, screen, tenants) as ready:
        await _judged(ready, await _at_one_instant(ready, work.warm_up, "0ms/"))
        drain = await _judged(ready, await _at_one_instant(ready, work.drain, "0ms/"))
        path = f"{work.wait_ms}ms/"
        await _judged(ready, await _at_one_instant(ready, work.warm_up, path))
        steady = await _judged(ready, await ready.seeded(work.rate, work.seconds, path))
        where = ready.environment
    executors = options.executors
    row = Row(
        OURS,
        "this tree",
        f"as shipped, {tenants} tenants, transport {TRANSPORT}",
        drains=[_outcome(drain, executors)],
        steadies=[_outcome(steady, executors)],
    )
    return row, where


async def _at_one_instant(ready: Rig, count: int, path: str) -> Load:
    """Puts in `count` tasks of one run each, all due at the same instant: what `Rig.seeded` spreads over a second."""
    ready.loads += 1
    first = await ready.instant(LEAD_SECONDS + count // SEEDED_A_SECOND)
    load = make_load(f"load {ready.loads}", ready.ids, ready.tenants, count, first, 1, ready.endpoint.url + path)
    load = dataclasses.replace(load, plan=load.plan.model_copy(update={"spread_seconds": 0}))
    await seed(ready.connection, ready.ids, load)
    return load


async def _judged(ready: Rig, load: Load) -> Judgement:
    """Settling lasts as long as the load: the rig is to count nothing beside it."""
    played = await ready.play(load, settle=load.seconds)
    return judge(load.expected(), played.arrivals, played.history)


def _outcome(judgement: Judgement, executors: int) -> Outcome:
    """What the ledgers say, in the terms in which peers are judged; a run without its result in history is lost."""
    return Outcome(
        processes=executors,
        expected=judgement.expected,
        delays=judgement.delays,
        lost=judgement.lost,
        duplicates=judgement.duplicates,
        early=judgement.early,
        kept=judgement.expected - judgement.lost - judgement.failed - judgement.skipped,
    )
