"""P2: the highest rate that the whole product sustains on this machine, endpoint and database included, and what a run
costs at it.

Climbed twice, with the database beside the executors and with it in another zone. As many executors as `tocsin up`
starts: one for every two cores, so one on the two cores that the targets are for; `--executors` tries others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.delays import delay_charts
from bench.drive import Outcome, Rig, judgement_figures, rig
from bench.frame import Measurement, Network, Options, Screen
from bench.ledger import SlotKey, delay_figures, percentile
from bench.report import Environment, Figure, Report, Target, at_least, at_most, exactly

TENANTS = 100
"""With the default limits: 1,000 calls in flight each."""

PATH = "150ms/"
WANTED: dict[Network, int] = {"direct": 10_000, "az": 6_000}
P99_SECONDS = 1.0
BEHIND = 0.02
"""The part of a step's runs that may not have been called when it ends."""

STEPS = (2000, 3000, 4500, 6000, 8000, 10_000, 12_000)
STEP_SECONDS = 60
SHORT_STEPS: dict[Network, tuple[int, ...]] = {
    "direct": (10_000, 8000, 6000, 4500, 3000),
    "az": (6000, 4500, 3000),
}
"""From the target down, so that one step is enough where it is held."""

SHORT_STEP_SECONDS = 6
MOST_DOWN = 2
"""Steps that are tried on a network on the way down."""

SURE = 0.8
"""Of the calls a second that came at a step too fast, what the next one may ask for: it is to be held."""

SETTLE_SECONDS = 60
"""From a checkpoint on: pages are written to the WAL whole the first time that they are changed after it."""

COST_SECONDS = 60
SHORT_SETTLE_SECONDS = 10
SHORT_COST_SECONDS = 10
CPU_MS = 0.2
WAL_BYTES = 2048
COMMITS = 0.02
PRODUCT = ("executors", "database", "ray")
"""The parts whose processor time counts; the endpoint and the proxy are not the product's."""


def is_held(outcome: Outcome) -> bool:
    """Nothing lost, doubled, skipped or failed; 99 in 100 runs started within a second of their due instant; and at
    the end there was no backlog, which a short step would not see in its delays."""
    judgement = outcome.judgement
    behind = outcome.behind / judgement.expected
    return judgement.clean and behind <= BEHIND and percentile(judgement.delays, 0.99) <= P99_SECONDS


def verdict(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The highest step that was held of those below every one that was not, in whatever order they were tried."""
    too_fast = min((outcome.rate for outcome in outcomes if not is_held(outcome)), default=math.inf)
    held = [outcome for outcome in outcomes if is_held(outcome) and outcome.rate < too_fast]
    return max(held, key=lambda outcome: outcome.rate, default=None)


def next_step(steps: Sequence[int], done: Sequence[Outcome]) -> int | None:
    """Which of rising or falling steps, in runs a second, comes after those done; None where no other does.

    Rising ones go on while they are held. Falling ones go on until one is held, `MOST_DOWN` in all, and next to the
    highest that is not above `SURE` of the calls a second that came at the last one.
    """
    if not done:
        return steps[0]
    last = done[-1]
    if steps[0] <= steps[-1]:
        return next((step for step in steps if step > last.rate), None) if is_held(last) else None
    lower = [step for step in steps if step < last.rate]
    if is_held(last) or not lower or len(done) >= MOST_DOWN:
        return None
    return next((step for step in lower if step <= SURE * last.arrived / last.seconds), lower[-1])


async def run(options: Options, screen: Screen) -> Report:
    climbs: dict[Network, list[Outcome]] = {}
    where: dict[Network, Environment] = {}
    costs: Outcome | None = None
    used: dict[str, Figure] = {}
    networks: Sequence[Network] = tuple(WANTED) if options.network == "direct" else (options.network,)
    for network in networks:
        there = replace(options, network=network)
        async with rig(there, screen, options.amount(TENANTS), part=network) as ready:
            climbs[network] = await _climb(ready, network)
            where[network] = ready.environment
            held = verdict(climbs[network])
            if network == networks[0] and held is not None:
                costs = await _cost(ready, held.rate)
                used = {**ready.usage(), **await ready.profiled(held.rate, PATH)}
    return report(options, climbs, costs, on_both(where), used)


def on_both(where: Mapping[Network, Environment]) -> Environment:
    """The environment of the first network, with what is known of the other one's way."""
    (_, first), *others = where.items()
    ways = {
        name.replace("network", f"network_{network}", 1): value
        for network, other in others
        for name, value in other.items()
        if name.startswith("network")
    }
    return {**first, **ways}


async def _climb(ready: Rig, network: Network) -> list[Outcome]:
    options = ready.options
    wanted = options.steps or (SHORT_STEPS[network] if options.short else STEPS)
    steps = [options.amount(step) for step in wanted]
    seconds = options.step_seconds or (SHORT_STEP_SECONDS if options.short else STEP_SECONDS)
    outcomes: list[Outcome] = []
    await ready.drive(max(1, steps[0] // 4), min(3, seconds), PATH)  # connections and statements are made once
    while (step := next_step(steps, outcomes)) is not None:
        outcome = await ready.drive(step, seconds, PATH)
        outcomes.append(outcome)
        p99 = percentile(outcome.judgement.delays, 0.99)
        found = "held" if is_held(outcome) else "not held"
        ready.screen.say(
            f"{network}, {outcome.rate:,} runs/s: p99 {p99:.3f} s, {outcome.behind:,} behind at the end, {found}"
        )
    return outcomes


async def _cost(ready: Rig, rate: int) -> Outcome:
    settle, seconds = settle_and_seconds(ready.options)
    await ready.connection.execute("checkpoint")
    return await ready.drive(rate, settle + seconds, PATH, settle)


def settle_and_seconds(options: Options) -> tuple[int, int]:
    """How long after a checkpoint costs are counted from, and for how long."""
    if options.step_seconds:
        return min(SETTLE_SECONDS, options.step_seconds), options.step_seconds
    return (SHORT_SETTLE_SECONDS, SHORT_COST_SECONDS) if options.short else (SETTLE_SECONDS, COST_SECONDS)


def report(
    options: Options,
    climbs: dict[Network, list[Outcome]],
    costs: Outcome | None,
    where: Environment,
    used: dict[str, Figure],
) -> Report:
    """The verdict on the steps: lost and doubled runs count in every one, also in the one that was too fast."""
    every = [outcome for outcomes in climbs.values() for outcome in outcomes] + ([costs] if costs else [])
    lost = sum(outcome.judgement.lost for outcome in every)
    duplicates = sum(outcome.judgement.duplicates for outcome in every)
    targets: list[Target] = []
    figures: dict[str, Figure] = {}
    delays: dict[str, Mapping[SlotKey, float]] = {}
    for network, outcomes in climbs.items():
        held = verdict(outcomes)
        shown = held or min(outcomes, key=lambda outcome: outcome.rate)
        delays[f"{network}, {shown.rate:,} runs/s"] = shown.judgement.delay_of
        p99 = percentile(held.judgement.delays, 0.99) if held else math.nan
        wanted = options.amount(WANTED[network])
        targets += [
            at_least(f"{network}: highest rate held", wanted, held.rate if held else 0, "runs/s"),
            at_most(f"{network}: start delay p99 at that rate", P99_SECONDS, p99, "s"),
        ]
        found = _climb_figures(outcomes, shown)
        figures |= {f"{network}_{name}": value for name, value in found.items()}
    return Report(
        test="p2",
        environment=where,
        targets=[
            *targets,
            *_cost_targets(costs),
            exactly("lost, all steps", 0, lost),
            exactly("duplicates, all steps", 0, duplicates),
        ],
        figures={**figures, **_cost_figures(options, costs), **used},
        lost=lost,
        duplicates=duplicates,
        charts=delay_charts(delays),
        not_meaning="what distant or TLS endpoints allow: the endpoint answers after 150 ms on loopback, and shares "
        "the machine with the database and the executors. Tasks were seeded by SQL: creating them costs nothing here. "
        "The other zone is a proxy that needs a part of the same cores."
        + (" The short form tries no rate above the target." if options.short and not options.steps else ""),
    )


def _climb_figures(outcomes: Sequence[Outcome], shown: Outcome) -> dict[str, Figure]:
    """Of the highest step held, or of the lowest where none was."""
    figures: dict[str, Figure] = {
        "of_the_step": shown.rate,
        "step_seconds": shown.seconds,
        "arrived_per_second": round(shown.arrived / shown.seconds, 1),
        "behind_at_the_end": shown.behind,
        **judgement_figures(shown.judgement),
        **delay_figures(shown.judgement),
        **{f"{part}_core_percent": round(100 * s / shown.elapsed) for part, s in shown.processor.items()},
    }
    for outcome in outcomes:
        figures[f"p99_ms_at_{outcome.rate}"] = round(percentile(outcome.judgement.delays, 0.99) * 1000, 1)
    return figures


def cpu_ms_per_run(outcome: Outcome) -> float:
    """Processor milliseconds of the product's processes for each run; nan where none came."""
    spent = sum(outcome.processor.get(part, 0.0) for part in PRODUCT)
    return 1000 * spent / outcome.arrived if outcome.arrived else math.nan


def _cost_targets(costs: Outcome | None) -> list[Target]:
    runs = costs.arrived if costs else 0
    cpu = cpu_ms_per_run(costs) if costs else math.nan
    wal = costs.wal_bytes / runs if costs and runs else math.nan
    commits = costs.commits / runs if costs and runs else math.nan
    return [
        at_most("processor time of the product a run", CPU_MS, cpu, "ms"),
        at_most("WAL a run", WAL_BYTES, wal, "B"),
        at_most("commits a run", COMMITS, commits),
    ]


def _cost_figures(options: Options, costs: Outcome | None) -> dict[str, Figure]:
    if costs is None:
        return {}
    settle, seconds = settle_and_seconds(options)
    parts = {
        f"cost_{part}_us_a_run": round(1e6 * spent / costs.arrived)
        for part, spent in costs.processor.items()
        if costs.arrived
    }
    return {
        "cost_at_rate": costs.rate,
        "cost_counted_from_s_after_a_checkpoint": settle,
        "cost_counted_seconds": seconds,
        **parts,
        **{f"cost_{name}": value for name, value in delay_figures(costs.judgement).items()},
    }


MEASUREMENT = Measurement(
    "p2", "capacity: >= 10,000 runs/s direct and 6,000 with the database 1 ms away, p99 <= 1 s; what a run costs", run
)
