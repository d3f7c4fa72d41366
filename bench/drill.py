"""Drills: a fault put into the running product under load, and what two independent ledgers say of it.

One second's calls are open at the endpoint when the fault comes, so that a duplicate has every chance.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

from bench.drive import judgement_figures
from bench.endpoint import Endpoint
from bench.environment import environment
from bench.faults import FAULTS, Fault, Scene
from bench.frame import Measurement, Options, Screen
from bench.ledger import Arrival, Judgement, delay_figures, judge, percentile
from bench.load import Load, is_over, make_load, recorded, seed, seed_tenants
from bench.product import Product, started
from bench.report import Environment, Report, Target, at_most, exactly
from bench.system import Connection, connected, opened, work_folder
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids

RATE = 200
TENANTS = 50
ANSWER_SECONDS = 1.0
"""How long each call stays open: RATE of them at any time."""

COMMIT_SECONDS = 0.1
"""From an answer to its commit: until then the call counts as in flight."""

SILENCE_SECONDS = 2.0
"""A longer time without a call is the fault's; what was in flight then is what may be called again."""

CALM_SECONDS = 10
"""Before the fault."""

LEAD_SECONDS = 4
DRAIN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Drilled:
    """`open_calls` were in flight at the fault, or when the calls then ceased; `again` calls came for runs that had
    been called before, the first of them `first_again` seconds after the fault. `others` are the delays of the tenants
    not concerned."""

    fault: Fault
    judgement: Judgement
    open_calls: int
    again: int
    first_again: float
    quiet: float
    others: Sequence[float]
    before: Sequence[float]


def find(
    fault: Fault, load: Load, arrivals: Sequence[Arrival], judgement: Judgement, at: float, concerned: set[UUID]
) -> Drilled:
    """Reads the endpoint's log around the fault at Unix second `at`."""
    by_run: dict[UUID, list[float]] = defaultdict(list)
    for arrival in arrivals:
        by_run[arrival.run_id].append(arrival.at)
    repeated = [sorted(times)[1:] for times in by_run.values() if len(times) > 1]
    after = sorted(arrival.at for arrival in arrivals if arrival.at > at)
    tenant_of = dict(load.tasks)
    due = load.expected()
    first: dict[tuple[UUID, datetime], float] = {}
    for arrival in arrivals:
        key = (arrival.task_id, arrival.slot)
        first[key] = min(arrival.at, first.get(key, math.inf))
    delays = [(due[key], seen - due[key], tenant_of[key[0]]) for key, seen in first.items() if key in due]
    gaps = [(later - earlier, earlier) for earlier, later in pairwise([at, *after])]
    quiet, since = max(gaps, default=(math.nan, at))
    ceased = since if quiet > SILENCE_SECONDS else at
    in_flight = ANSWER_SECONDS + COMMIT_SECONDS
    return Drilled(
        fault=fault,
        judgement=judgement,
        open_calls=sum(1 for arrival in arrivals if arrival.at <= ceased < arrival.at + in_flight),
        again=sum(len(times) for times in repeated),
        first_again=min((time for times in repeated for time in times), default=math.nan) - at,
        quiet=quiet,
        others=sorted(delay for _, delay, tenant in delays if tenant not in concerned),
        before=sorted(delay for when, delay, _ in delays if when < at - ANSWER_SECONDS),
    )


async def drill(
    fault: Fault,
    product: Product,
    connection: Connection,
    endpoint: Endpoint,
    ids: Ids,
    screen: Screen,
    tenants: Sequence[UUID],
    rate: int,
) -> Drilled:
    """One load with one fault in it."""
    seconds = CALM_SECONDS + fault.seconds
    now: datetime = await connection.fetchval("select clock_timestamp()")
    first = now.replace(microsecond=0) + timedelta(seconds=LEAD_SECONDS + 1)
    url = f"{endpoint.url}{round(ANSWER_SECONDS * 1000)}ms/"
    load = make_load(f"drill {fault.name} {now:%H%M%S}", ids, tenants, rate, first, seconds, url)
    await seed(connection, ids, load)
    await screen.wait(f"{fault.name}: calm", (first - now).total_seconds() + CALM_SECONDS)
    scene = Scene(product, connection, tenants, screen)
    at = await fault.strike(scene)
    still: datetime = await product.now()
    await screen.wait(f"{fault.name}: after the fault", max(0.0, (load.end - still).total_seconds()))
    async with connected(product.dsn) as fresh:
        await screen.wait(f"{fault.name}: the last to end", DRAIN_SECONDS, lambda: is_over(fresh))
        history = await recorded(fresh, load)
    arrivals = await endpoint.take()
    judgement = judge(load.expected(), arrivals, history)
    return find(fault, load, arrivals, judgement, at, scene.concerned)


async def run(options: Options, screen: Screen) -> Report:
    names = options.faults or tuple(name for name, fault in FAULTS.items() if fault.short or not options.short)
    done: list[Drilled] = []
    where: Environment = {}
    for name in names:
        fault = FAULTS[name]
        drilled, where = await _one(fault, options, screen)
        done.append(drilled)
        screen.say(
            f"{name}: lost {drilled.judgement.lost}, called again {drilled.again} of {drilled.open_calls} open, "
            f"first again after {drilled.first_again:.1f} s, quiet for {drilled.quiet:.1f} s, "
            f"worst delay {percentile(drilled.judgement.delays, 1.0):.1f} s"
        )
    return report(done, where)


async def _one(fault: Fault, options: Options, screen: Screen) -> tuple[Drilled, Environment]:
    ids = Ids(SystemClock(), options.rng())
    async with (
        work_folder(options.work_dir) as folder,
        Endpoint(folder) as endpoint,
        started(fault.runtime, folder, fault.executors, screen) as product,
        opened(product.dsn) as store,
        connected(product.dsn) as connection,
    ):
        tenants = await seed_tenants(store, ids, TENANTS)
        where = await environment(connection, folder, runtime=product.runtime)
        rate = options.amount(RATE)
        return await drill(fault, product, connection, endpoint, ids, screen, tenants, rate), where


def report(done: Sequence[Drilled], where: Environment) -> Report:
    targets: list[Target] = []
    figures: dict[str, float | int | str | bool | None] = {"runs_per_second": RATE, "answer_seconds": ANSWER_SECONDS}
    for one in done:
        name = one.fault.name
        targets.append(exactly(f"{name}: lost", 0, one.judgement.lost))
        targets.append(exactly(f"{name}: calls without a recorded attempt", 0, one.judgement.duplicates))
        targets.append(at_most(f"{name}: called again", one.open_calls if one.fault.kills else 0, one.again, "calls"))
        worst = percentile(one.judgement.delays, 1.0)
        targets.append(at_most(f"{name}: worst start delay", one.fault.worst_delay, worst, "s"))
        found = {
            "open_calls": one.open_calls,
            "called_again": one.again,
            "first_again_s": None if math.isnan(one.first_again) else round(one.first_again, 2),
            "quiet_s": round(one.quiet, 2),
            "p99_before_ms": round(1000 * percentile(one.before, 0.99), 1),
            "others_p99_ms": round(1000 * percentile(one.others, 0.99), 1),
            **judgement_figures(one.judgement),
            **delay_figures(one.judgement),
        }
        figures |= {f"{name}: {key}": value for key, value in found.items()}
    return Report(
        test="drill",
        environment=where,
        targets=targets,
        figures=figures,
        lost=sum(one.judgement.lost for one in done),
        duplicates=sum(one.again for one in done),
        not_meaning="a proof: each fault is struck once, at one moment; the property tests strike everywhere. All "
        "processes share one machine, so a death is proven by its pid; on several machines it takes a lease's ttl.",
    )


MEASUREMENT = Measurement("drill", "faults under load: lost 0, repeated calls within the calls in flight", run)
