"""P2: the highest rate that the whole product sustains on this machine, endpoint and database included."""

import math
from collections.abc import Sequence

from bench.drive import Outcome, judgement_figures, rig
from bench.frame import Measurement, Options, Screen
from bench.ledger import delay_figures, percentile
from bench.report import Environment, Figure, Report, at_least, at_most, exactly

TENANTS = 100
WANTED = 3000
P99_SECONDS = 1.0
BEHIND = 0.02
"""The part of a step's runs that may not have been called when it ends."""

STEPS = (1000, 2000, 3000, 4000, 5000, 6000, 8000, 10_000)
STEP_SECONDS = 60
SHORT_STEPS = (3000, 4000)
SHORT_STEP_SECONDS = 10


def is_held(outcome: Outcome) -> bool:
    """Nothing lost, doubled, skipped or failed; 99 in 100 runs started within a second of their due instant; and at
    the end there was no backlog, which a short step would not see in its delays."""
    judgement = outcome.judgement
    behind = outcome.behind / judgement.expected
    return judgement.clean and behind <= BEHIND and percentile(judgement.delays, 0.99) <= P99_SECONDS


def verdict(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The highest step that was held before the first that was not."""
    held = None
    for outcome in outcomes:
        if not is_held(outcome):
            break
        held = outcome
    return held


async def run(options: Options, screen: Screen) -> Report:
    steps = options.steps or (SHORT_STEPS if options.short else STEPS)
    seconds = options.step_seconds or (SHORT_STEP_SECONDS if options.short else STEP_SECONDS)
    outcomes: list[Outcome] = []
    async with rig(options, screen, options.amount(TENANTS)) as ready:
        await ready.drive(options.amount(steps[0] // 4), 3)  # connections and statements are made once
        for step in steps:
            outcome = await ready.drive(options.amount(step), seconds)
            outcomes.append(outcome)
            p99 = percentile(outcome.judgement.delays, 0.99)
            found = "held" if is_held(outcome) else "not held"
            screen.say(f"{outcome.rate:,} runs/s: p99 {p99:.3f} s, {outcome.behind:,} behind at the end, {found}")
            if not is_held(outcome):
                break
        where = ready.environment
    return report(options, outcomes, where)


def report(options: Options, outcomes: Sequence[Outcome], where: Environment) -> Report:
    """The verdict on the steps: lost and doubled runs count in every one, also in the one that was too fast.

    Figures are those of the highest step held, or of the first where none was.
    """
    held = verdict(outcomes)
    lost = sum(outcome.judgement.lost for outcome in outcomes)
    duplicates = sum(outcome.judgement.duplicates for outcome in outcomes)
    shown = held or outcomes[0]
    p99 = percentile(held.judgement.delays, 0.99) if held else math.nan
    figures: dict[str, Figure] = {
        "highest_rate_held": held.rate if held else 0,
        "of_the_step": shown.rate,
        "step_seconds": shown.seconds,
        "arrived_per_second": round(shown.arrived / shown.seconds, 1),
        "behind_at_the_end": shown.behind,
        **judgement_figures(shown.judgement),
        **delay_figures(shown.judgement),
        **_costs(shown),
    }
    for outcome in outcomes:
        figures[f"p99_ms_at_{outcome.rate}"] = round(percentile(outcome.judgement.delays, 0.99) * 1000, 1)
    wanted = options.amount(WANTED)
    return Report(
        test="p2",
        environment=where,
        targets=[
            at_least("highest rate held", wanted, held.rate if held else 0, "runs/s"),
            at_most("start delay p99 at that rate", P99_SECONDS, p99, "s"),
            exactly("lost, all steps", 0, lost),
            exactly("duplicates, all steps", 0, duplicates),
        ],
        figures=figures,
        lost=lost,
        duplicates=duplicates,
        not_meaning="what slow, distant or TLS endpoints allow: the endpoint answers at once on loopback, and shares "
        "the machine with the database and the executors. Tasks were seeded by SQL: creating them costs nothing here.",
    )


def _costs(outcome: Outcome) -> dict[str, Figure]:
    """What a run cost, and what part of one core each part of the system took."""
    busy = {f"{part}_core_percent": round(100 * s / outcome.elapsed) for part, s in outcome.processor.items()}
    per_run = {
        f"{part}_us_per_run": round(1e6 * s / outcome.arrived)
        for part, s in outcome.processor.items()
        if outcome.arrived
    }
    written = {
        "wal_bytes_per_run": round(outcome.wal_bytes / max(1, outcome.arrived)),
        "commits_per_second": round(outcome.commits / outcome.elapsed, 1),
    }
    return {**busy, **per_run, **written}


MEASUREMENT = Measurement(
    "p2", "capacity on this machine: >= 3,000 runs/s at start delay p99 <= 1 s, nothing lost", run
)
