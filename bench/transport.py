"""The transports side by side: calls a second and processor time of one process, with so many calls in flight.

Each case has a client process and an endpoint process of its own. The endpoint's share of the machine is not counted,
but taken from it: on two cores, a client that needs little is held up by the endpoint.
"""

import resource
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from bench.caller import Case, Phase, Result, run_case
from bench.clients import CLIENTS, DEFAULT, SHIPPED
from bench.conformance import run_suite
from bench.endpoint import Endpoint
from bench.environment import machine
from bench.frame import Measurement, Options, Screen
from bench.report import Figure, Report, exactly
from bench.series import Cell, Charts, Table
from bench.system import work_folder
from bench.tls_endpoint import TlsEndpoint

LEVELS = ((100, 0), (1_000, 50), (8_000, 150))
"""Calls in flight, and milliseconds that the endpoint takes for each: about as many as are in flight at once."""

SHORT_LEVELS = LEVELS[:2]
SECONDS = 5.0
SHORT_SECONDS = 1.0
_SPARE_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One case and what came out. `tls`: or plain."""

    client: str
    tls: bool
    in_flight: int
    result: Result

    @property
    def failed(self) -> int:
        return self.result.cold.failed + self.result.warm.failed


async def run(options: Options, screen: Screen) -> Report:
    where = machine()
    levels = [(options.amount(calls, 2), delay) for calls, delay in (SHORT_LEVELS if options.short else LEVELS)]
    seconds = (SHORT_SECONDS if options.short else SECONDS) * min(1.0, options.scale * 5)
    measured = []
    async with work_folder(options.work_dir) as folder:
        for tls in (False, True):
            for in_flight, delay in levels:
                for client in CLIENTS:
                    measured.append(
                        await _measure(folder, client, tls, min(in_flight, most_in_flight()), delay, seconds)
                    )
                    screen.say(said(measured[-1]))
    verdicts: dict[str, dict[str, str]] = {}
    for client in () if options.short else CLIENTS:
        screen.say(f"{client}: the conformance suite")
        verdicts[client] = await run_suite(client)
    return report(measured, verdicts, where)


async def _measure(folder: Path, client: str, tls: bool, in_flight: int, delay: int, seconds: float) -> Measured:
    async with TlsEndpoint(folder, ["127.0.0.1"]) if tls else Endpoint(folder) as endpoint:
        case = Case(client, f"{endpoint.url}{delay}ms/", in_flight, seconds)
        return Measured(client, tls, in_flight, await run_case(case, endpoint.settings))


def most_in_flight() -> int:
    """What the limit of open files leaves to one process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1_000_000 if limit == resource.RLIM_INFINITY else limit - _SPARE_FILES


def said(one: Measured) -> str:
    """One line for who waits."""
    cold, warm = one.result.cold, one.result.warm
    return (
        f"{one.client}, {_kind(one)}: warm {_rate(warm):,.0f}/s at {_micros(warm):,.0f} us, "
        f"p99 {warm.p99 * 1000:,.0f} ms; cold {_micros(cold):,.0f} us"
    )


def report(
    measured: Sequence[Measured],
    verdicts: Mapping[str, Mapping[str, str]],
    where: Mapping[str, Figure | Mapping[str, str]],
) -> Report:
    """`verdicts`: by client, each check of the suite with what was wrong; empty where the suite was not run."""
    passing = {client for client, checks in verdicts.items() if not any(checks.values())} or set(SHIPPED)
    costs = {client: cost for client, cost in typical_cost(measured).items() if client in passing}
    targets = [
        exactly(f"{client}: calls that failed", 0, sum(one.failed for one in measured if one.client == client))
        for client in SHIPPED
    ]
    targets += [
        exactly(f"{client}: checks of the suite that fail", 0, sum(map(bool, verdicts[client].values())))
        for client in SHIPPED
        if client in verdicts
    ]
    cheaper = [client for client, cost in costs.items() if DEFAULT not in costs or cost < costs[DEFAULT]]
    targets.append(exactly("transports cheaper than the default that pass everything", 0, len(cheaper)))
    return Report(
        test="transport",
        environment=where,
        targets=targets,
        figures={**dict(_figures(measured)), **dict(_failing(verdicts))},
        not_meaning="calls over a network, or of the whole product: one process that does nothing else, one host, "
        "answers of two bytes, the endpoint in Python on the same machine, which holds up whoever is cheaper than it.",
        charts=Charts(tables=[_table(measured)]),
    )


def typical_cost(measured: Sequence[Measured]) -> dict[str, float]:
    """Processor microseconds of a warm call by client: the geometric mean over its cases, which all clients share."""
    costs: dict[str, list[float]] = {}
    for one in measured:
        costs.setdefault(one.client, []).append(_micros(one.result.warm))
    return {client: geometric_mean(values) for client, values in costs.items()}


def _failing(verdicts: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, Figure]]:
    for client, checks in verdicts.items():
        failing = {name: fault for name, fault in checks.items() if fault}
        yield f"{client}: checks passed", f"{len(checks) - len(failing)} of {len(checks)}"
        yield from ((f"{client} fails {name}", fault) for name, fault in failing.items())


def _figures(measured: Sequence[Measured]) -> Iterator[tuple[str, Figure]]:
    for one in measured:
        for name, phase in (("cold", one.result.cold), ("warm", one.result.warm)):
            case = f"{one.client}, {_kind(one)}, {name}"
            yield f"{case}: calls/s", round(_rate(phase))
            yield f"{case}: CPU us a call", round(_micros(phase), 1)
        if one.result.fault:
            yield f"{one.client}, {_kind(one)}: failed", f"{one.failed}, for example {one.result.fault}"


_COLUMNS = (
    *("transport", "TLS", "in flight", "calls/s, warm", "CPU us a call, warm", "p50, ms, warm", "p99, ms, warm"),
    *("burst, s, cold", "CPU us a call, cold", "p99, ms, cold", "RSS, MB", "failed"),
)


def _table(measured: Sequence[Measured]) -> Table:
    return Table("Transports", _COLUMNS, [_row(one) for one in measured], ("calls/s, warm", "CPU us a call, warm"))


def _row(one: Measured) -> Sequence[Cell]:
    cold, warm = one.result.cold, one.result.warm
    return (
        *(one.client, one.tls, one.in_flight, round(_rate(warm)), round(_micros(warm), 1)),
        *(round(warm.p50 * 1000, 1), round(warm.p99 * 1000, 1)),
        *(round(cold.seconds, 3), round(_micros(cold), 1), round(cold.p99 * 1000, 1)),
        *(round(one.result.rss / 1e6), one.failed),
    )


def _kind(one: Measured) -> str:
    return f"{'TLS' if one.tls else 'plain'}, {one.in_flight:,} in flight"


def _rate(phase: Phase) -> float:
    return phase.requests / phase.seconds


def _micros(phase: Phase) -> float:
    return phase.cpu / phase.requests * 1e6


MEASUREMENT = Measurement("transport", "the transports and a Rust client, 100 to 8,000 in flight, plain and TLS", run)
