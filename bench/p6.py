"""P6: a noisy neighbour. One of the ten largest tenants hangs to its timeout; how late do the others become?"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from bench.day import SHORTER, Lived, delay_figures_of, end_town, live, next_window, town_of, town_rig
from bench.frame import Measurement, Options, Screen
from bench.ledger import percentile
from bench.report import Environment, Figure, Report, at_most, exactly

NOISY = 0
"""The number of the tenant that hangs: one of the largest."""

RATIO = 0.05
SECONDS = 0.02
ROUNDS = 2
AFTER = timedelta(seconds=10)


async def run(options: Options, screen: Screen) -> Report:
    rounds = 1 if options.short else ROUNDS
    quiet: list[Lived] = []
    noisy: list[Lived] = []
    async with town_rig(options, screen) as ready:
        for number in range(1, rounds + 1):
            for name, lived, hangs in (("quiet", quiet, False), ("noisy", noisy, True)):
                window = await next_window(ready, options, AFTER, at_once=True)
                town = town_of(options, window, peak=False)
                if hangs:
                    town = town.with_manner(NOISY, "hang")
                lived.append(await live(ready, town, window, f"{name} {number}"))
                await end_town(ready)
        where, used = ready.environment, ready.usage()
    return report(options, quiet, noisy, where, used)


def others(days: Sequence[Lived]) -> list[float]:
    """Start delays in seconds, rising, of all tenants but the noisy one."""
    delays = (day.delays(lambda slot: True, of=lambda task: task.tenant != NOISY) for day in days)
    return sorted(delay for day in delays for delay in day)


def report(
    options: Options,
    quiet: Sequence[Lived],
    noisy: Sequence[Lived],
    where: Environment,
    used: Mapping[str, Figure],
) -> Report:
    """The verdict on the others' p99 with the noisy tenant beside them, against the same load without."""
    before, after = others(quiet), others(noisy)
    p99, with_noise = percentile(before, 0.99), percentile(after, 0.99)
    judgements = [day.judgement for day in (*quiet, *noisy)]
    lost = sum(judgement.lost for judgement in judgements)
    duplicates = sum(judgement.duplicates for judgement in judgements)
    hanging = [delay for day in noisy for delay in day.delays(lambda slot: True, of=lambda task: task.tenant == NOISY)]
    return Report(
        test="p6",
        environment=where,
        targets=[
            at_most(
                "others' start delay p99, more than without (5 % or 20 ms)",
                max(RATIO * p99, SECONDS) * 1000,
                (with_noise - p99) * 1000,
                "ms",
            ),
            exactly("lost", 0, lost),
            exactly("duplicates", 0, duplicates),
            exactly(
                "skipped, early, unexpected, not ended as the endpoint had it",
                0,
                sum(judgement.other_faults for judgement in judgements),
            ),
        ],
        figures={
            **delay_figures_of("others_without_it", before),
            **delay_figures_of("others_with_it", after),
            **delay_figures_of("the_one_that_hangs", sorted(hanging)),
            "runs": sum(judgement.expected for judgement in judgements),
            **used,
        },
        lost=lost,
        duplicates=duplicates,
        not_meaning="a tenant that floods: the noisy one has no more runs than before, it only holds each to its "
        "timeout. The load is the ordinary day's with one five-minute mark, at which p99 is decided."
        + (SHORTER if options.short else ""),
    )


MEASUREMENT = Measurement(
    "p6", "a noisy neighbour: one of the largest tenants hangs, the others' p99 stays within +5 % or +20 ms", run
)
