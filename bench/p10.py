"""P10: the peak over TLS. 30,000 runs to 2,000 host names, due at one instant, on connections that have to be opened.

Twice, each time by executors that have called nobody yet: cold, where the database tells of the peak a second before
it, and ahead, where it has been known for long and connections may be opened before it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from bench.drive import Rig, judgement_figures, rig
from bench.frame import Measurement, Options, Screen
from bench.ledger import Judgement, judge, percentile
from bench.load import Planned, is_over, recorded_by_name, seed_tasks
from bench.names import ZONE, NameServer, host_of
from bench.report import Environment, Figure, Report, Target, at_most, exactly
from bench.series import Charts, log_histogram
from bench.tls_endpoint import TlsEndpoint
from tocsin.common.models import AtSchedule, CallSpec, PlanSpec

RUNS = 30_000
HOSTS = 2_000
SHORT_PART = 0.25
"""Of runs and hosts in the short form, as many runs a host; the bounds stay."""

MANNER = "150ms"
DRAIN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Peak:
    """How a peak becomes known. Its rows are written `lead` seconds before it, and are to be seen from `told` seconds
    before it on: as soon as they are written, where that is longer. All are to be started within `limit` seconds."""

    name: str
    lead: float
    told: float
    limit: float


PEAKS = (Peak("cold", 5.0, 1.0, 15.0), Peak("ahead", 15.0, 15.0, 6.0))


async def run(options: Options, screen: Screen) -> Report:
    part = SHORT_PART if options.short else 1.0
    runs, hosts = (options.amount(round(amount * part), 2) for amount in (RUNS, HOSTS))
    judgements: dict[str, Judgement] = {}
    where: Environment = {}
    async with NameServer() as names:
        settings = {"TOCSIN_DNS_SERVERS": names.address}
        for peak in PEAKS:
            made = rig(options, screen, hosts, part=peak.name, settings=settings, make_endpoint=_tls)
            async with made as ready:
                judgements[peak.name] = await _pass(ready, peak, runs)
                where = ready.environment
    return report(judgements, runs, hosts, where)


def _tls(folder: Path) -> TlsEndpoint:
    return TlsEndpoint(folder, [f"*.{ZONE}"])


async def _pass(ready: Rig, peak: Peak, runs: int) -> Judgement:
    """One peak, and the judgement on it once all runs have ended.

    Raises:
        RuntimeError: seeding took so long that the peak would have been known too late.
    """
    now: datetime = await ready.connection.fetchval("select clock_timestamp()")
    at = now.replace(microsecond=0) + timedelta(seconds=1 + peak.lead)
    tasks = planned(ready, runs, at)
    ready.screen.say(f"{peak.name}: seeding {runs:,} runs, due at one instant")
    async with ready.connection.transaction():  # the executors see nothing before its end
        await seed_tasks(ready.connection, ready.ids, peak.name, tasks)
        left = await ready.until(at) - peak.told
        if left < 0 and peak.told < peak.lead:
            raise RuntimeError("the peak was seeded too late: it is nearly due")
        await ready.connection.execute("select pg_sleep($1)", max(0.0, left))
    await ready.screen.wait(f"{peak.name}: due in a moment", await ready.until(at))
    await ready.screen.wait(f"{peak.name}: the last to end", DRAIN_SECONDS, lambda: is_over(ready.connection))
    expected = {(task.task_id, at): at.timestamp() for task in tasks}
    arrivals, history = await ready.endpoint.take(), await recorded_by_name(ready.connection, peak.name)
    return await asyncio.to_thread(judge, expected, arrivals, history)


def planned(ready: Rig, runs: int, at: datetime) -> list[Planned]:
    """`runs` tasks that are due then, spread over the tenants in turn, each of whom has a host name of its own."""
    plan = PlanSpec(schedule=AtSchedule(at=at))
    urls = [f"https://{host_of(number)}:{ready.endpoint.port}/{MANNER}/" for number in range(len(ready.tenants))]
    calls = [CallSpec(url=url) for url in urls]
    places = [number % len(calls) for number in range(runs)]
    return [Planned(ready.ids.new(), ready.tenants[place], plan, calls[place], at) for place in places]


def report(judgements: Mapping[str, Judgement], runs: int, hosts: int, where: Environment) -> Report:
    """`judgements` by the peaks' names."""
    part = runs / RUNS
    figures: dict[str, Figure] = {"runs": runs, "hosts": hosts, "part_of_the_peak_percent": round(100 * part, 1)}
    targets: list[Target] = []
    for peak in PEAKS:
        judgement = judgements[peak.name]
        targets.append(at_most(f"{peak.name}: all started within", peak.limit, percentile(judgement.delays, 1.0), "s"))
        for share in (0.5, 0.99):
            figures[f"{peak.name}_start_delay_p{share * 100:g}_ms"] = round(
                percentile(judgement.delays, share) * 1e3, 1
            )
        figures.update((f"{peak.name}_{name}", value) for name, value in judgement_figures(judgement).items())
    lost, duplicates = (sum(getattr(j, name) for j in judgements.values()) for name in ("lost", "duplicates"))
    targets += [
        exactly("lost", 0, lost),
        exactly("duplicates", 0, duplicates),
        exactly("skipped, failed, early, unexpected", 0, sum(j.other_faults for j in judgements.values())),
    ]
    delays = {name: judgement.delays for name, judgement in judgements.items()}
    return Report(
        test="p10",
        environment=where,
        targets=targets,
        figures=figures,
        lost=lost,
        duplicates=duplicates,
        not_meaning="handshakes over a network: the endpoint is one process on loopback that answers after 150 ms and "
        "does its half of every handshake on the same cores; all names lead to one address, and have one certificate."
        + (f" Only {part:.1%} of the peak's runs and hosts were played, within the bounds of all." if part < 1 else ""),
        charts=Charts(histograms=[log_histogram("Start delay", delays)]),
    )


MEASUREMENT = Measurement(
    "p10", "30,000 due at one instant to 2,000 host names over TLS: started <= 15 s cold, <= 6 s ahead", run
)
