"""P5: slow endpoints. 4,800 runs whose endpoints take 10 to 30 s, with a timeout that fits them and one that does not.

With 20 s half of all calls are given up, so of three attempts each one run in eight ends dead: arithmetic says how
many, and how far chance may lead away from it.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from bench.day import faults
from bench.drive import Rig, judgement_figures, rig
from bench.frame import Measurement, Options, Screen
from bench.ledger import Judgement, delay_figures, judge
from bench.load import is_over, make_load, recorded, seed
from bench.manners import manner_of, possible_ends
from bench.report import Environment, Figure, Report, Target, at_most, exactly
from tocsin.common.models import RetrySpec

RUNS = 4_800
TENANTS = 100
SPAN_SECONDS = 60
FASTEST_SECONDS, SLOWEST_SECONDS = 10.0, 30.0
FITTING_SECONDS, SHORT_SECONDS = 30.0, 20.0
"""The timeouts."""

ATTEMPTS = 3
BACKOFF_SECONDS = 5.0
SIGMAS = 3.0

SHORTENED = 0.15
"""Of the short form: endpoints, timeouts, back-off and the span take so much of their time."""

_LEAD_SECONDS = 3
_SLACK = 0.1
"""Of the timeout, within which it and an answer may have come in either order."""

_MORE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What to expect of so many runs, and its standard deviation, where attempts are late independently."""

    dead: float
    dead_sigma: float
    abandoned: float
    abandoned_sigma: float


def arithmetic(runs: int, late: float, attempts: int = ATTEMPTS) -> Arithmetic:
    """`late`: the probability that a call takes longer than its timeout. Abandoned calls are those."""
    dead = late**attempts
    chances = [late**n * (1 - late) for n in range(attempts)] + [dead]  # of so many abandoned calls of one run
    mean = sum(n * chance for n, chance in enumerate(chances))
    variance = sum((n - mean) ** 2 * chance for n, chance in enumerate(chances))
    return Arithmetic(runs * dead, math.sqrt(runs * dead * (1 - dead)), runs * mean, math.sqrt(runs * variance))


async def run(options: Options, screen: Screen) -> Report:
    patience = SHORTENED if options.short else 1.0
    async with rig(options, screen, options.amount(TENANTS, 2)) as ready:
        judgements = {
            timeout: await drive(ready, options, timeout, patience) for timeout in (FITTING_SECONDS, SHORT_SECONDS)
        }
        where, used = ready.environment, ready.usage()
    return report(options, judgements[FITTING_SECONDS], judgements[SHORT_SECONDS], where, used)


async def drive(ready: Rig, options: Options, timeout: float, patience: float) -> Judgement:
    """The runs with this timeout, all times multiplied by `patience`, once all have ended."""
    span = max(1, round(SPAN_SECONDS * patience))
    rate = options.amount(round(RUNS / span), 2)
    manner = f"{round(FASTEST_SECONDS * patience * 1000)}-{round(SLOWEST_SECONDS * patience * 1000)}ms"
    load = make_load(
        f"timeout {timeout:g}",
        ready.ids,
        ready.tenants,
        rate,
        await ready.instant(_LEAD_SECONDS),
        span,
        f"{ready.endpoint.url}{manner}/",
        timeout * patience,
        RetrySpec(max_attempts=ATTEMPTS, base_seconds=BACKOFF_SECONDS * patience),
    )
    await seed(ready.connection, ready.ids, load)
    text = f"{load.runs:,} runs, timeout {timeout * patience:g} s"
    await ready.screen.wait(text, await ready.until(load.end))
    longest = (ATTEMPTS * timeout + 3 * BACKOFF_SECONDS) * patience + _MORE_SECONDS
    await ready.screen.wait(f"{text}: the last to end", longest, lambda: is_over(ready.connection))
    arrivals, history = await ready.endpoint.take(), await recorded(ready.connection, load)
    behaviour = manner_of(manner.encode())

    def ends(task_id: UUID, run_id: UUID) -> Collection[str]:
        return possible_ends(
            lambda attempt: behaviour.answer(str(run_id).encode(), str(attempt).encode()),
            ATTEMPTS,
            timeout * patience,
            _SLACK * timeout * patience,
        )

    return judge(load.expected(), arrivals, history, ends)


def report(
    options: Options, fitting: Judgement, short: Judgement, where: Environment, used: Mapping[str, Figure]
) -> Report:
    """The verdict: with the fitting timeout all succeed; with the other, the dead and the abandoned are as many as
    arithmetic has it, within three standard deviations."""
    late = (SLOWEST_SECONDS - SHORT_SECONDS) / (SLOWEST_SECONDS - FASTEST_SECONDS)
    wanted = arithmetic(short.expected, late)
    dead = short.ended.get("dead", 0)
    abandoned = short.retried + dead
    figures: dict[str, Figure] = {
        **{f"timeout_30_{name}": value for name, value in _figures(fitting).items()},
        **{f"timeout_20_{name}": value for name, value in _figures(short).items()},
        "dead_by_arithmetic": round(wanted.dead, 1),
        "dead_sigma": round(wanted.dead_sigma, 1),
        "dead": dead,
        "abandoned_by_arithmetic": round(wanted.abandoned, 1),
        "abandoned_sigma": round(wanted.abandoned_sigma, 1),
        "abandoned": abandoned,
        **used,
    }
    return Report(
        test="p5",
        environment=where,
        targets=[
            exactly("30 s timeout: not succeeded", 0, fitting.expected - fitting.ended.get("succeeded", 0)),
            _near("20 s timeout: dead", dead, wanted.dead, wanted.dead_sigma),
            _near("20 s timeout: calls given up", abandoned, wanted.abandoned, wanted.abandoned_sigma),
            *faults((fitting, short)),
        ],
        figures=figures,
        lost=fitting.lost + short.lost,
        duplicates=fitting.duplicates + short.duplicates,
        not_meaning="how many slow calls can be held at once: about 1,600 are. What is given up here goes on at the "
        "endpoint, as it would in life."
        + (
            f" In the short form all times are {SHORTENED:.0%} of these, so as many are in flight."
            if options.short
            else ""
        ),
    )


def _near(name: str, found: int, wanted: float, sigma: float) -> Target:
    """A count, by its distance from what is to be expected."""
    return at_most(f"{name}, from {wanted:,.0f}", SIGMAS, abs(found - wanted) / sigma, "standard deviations")


def _figures(judgement: Judgement) -> dict[str, Figure]:
    states = {f"ended_{state}": count for state, count in sorted(judgement.ended.items())}
    return {**judgement_figures(judgement), **delay_figures(judgement), **states}


MEASUREMENT = Measurement(
    "p5", "slow endpoints: with 30 s for 10 to 30 s all succeed; with 20 s as many die as arithmetic says", run
)
