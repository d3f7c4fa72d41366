"""Tocsin itself at the peers' two tests: the whole product as `tocsin up` starts it."""

import dataclasses
from datetime import datetime, timedelta

from bench.drive import DRAIN_SECONDS, LEAD_SECONDS, Rig, rig
from bench.frame import Options, Screen
from bench.ledger import Judgement, judge
from bench.load import Load, is_over, make_load, recorded, seed
from bench.peers.verdict import OURS, Outcome, Row
from bench.report import Environment

TENANTS = 100
SEEDED_A_SECOND = 3000
"""Tasks, cautiously: the first slot is later than the seeding's end."""

WARM_UP = 200


async def measured(
    options: Options, screen: Screen, count: int, rate: int, seconds: int, wait_ms: int
) -> tuple[Row, Environment]:
    """The drain of `count`, then `rate` a second for `seconds` at an endpoint that answers after `wait_ms`."""
    async with rig(options, screen, min(TENANTS, rate)) as ready:
        await _driven(ready, WARM_UP, 2, 0, at_once=False)  # connections and statements are made once
        drain = await _driven(ready, count, 1, 0, at_once=True)
        steady = await _driven(ready, rate, seconds, wait_ms, at_once=False)
        where = ready.environment
    executors = options.executors
    row = Row(
        OURS,
        "this tree",
        f"as shipped, {min(TENANTS, rate)} tenants",
        drains=[_outcome(drain, executors)],
        steadies=[_outcome(steady, executors)],
    )
    return row, where


async def _driven(ready: Rig, rate: int, seconds: int, wait_ms: int, *, at_once: bool) -> Judgement:
    """`rate` tasks in each of `seconds` seconds, spread over the second or all at its start."""
    ready.loads += 1
    lead = timedelta(seconds=LEAD_SECONDS + 1 + rate // SEEDED_A_SECOND)
    first: datetime = (await ready.connection.fetchval("select clock_timestamp()")).replace(microsecond=0) + lead
    url = f"{ready.endpoint.url}{wait_ms}ms/"
    load = make_load(f"peers {ready.loads}", ready.ids, ready.tenants, rate, first, seconds, url)
    if at_once:
        load = dataclasses.replace(load, plan=load.plan.model_copy(update={"spread_seconds": 0}))
    await ready.endpoint.take()
    await seed(ready.connection, ready.ids, load)
    text = f"tocsin: {load.runs:,} runs {'at one instant' if at_once else f'at {rate:,}/s'}"
    await ready.screen.wait(text, await _seconds_to_end(ready, load))
    await ready.screen.wait(f"{text}: the last to end", DRAIN_SECONDS, lambda: is_over(ready.connection))
    return judge(load.expected(), await ready.endpoint.take(), await recorded(ready.connection, load))


async def _seconds_to_end(ready: Rig, load: Load) -> float:
    now: datetime = await ready.connection.fetchval("select clock_timestamp()")
    return max(0.0, (load.end - now).total_seconds())


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
