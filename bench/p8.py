"""P8: the network to the database is gone for 30 s under load, with a second's calls in flight when it goes.

Once as a black hole, in which nothing arrives and what was sent comes late, and once as resets and refusals. The server
itself stays up and cannot tell a cut from a client that says nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from bench.delays import delay_charts
from bench.drive import Played, Rig, judgement_figures, rig
from bench.frame import Measurement, Options, Screen
from bench.ledger import Judgement, delay_figures, judge, percentile
from bench.load import Load
from bench.reach import Reached, at_port
from bench.report import Environment, Figure, Report, Target, at_most, exactly
from property_tests.network.proxy import Proxy
from tocsin.common.clock import SystemClock

Kind = Literal["black hole", "reset"]

RATE = 200
TENANTS = 50
PATH = "1000ms/"
CALM_SECONDS = 5
CUT_SECONDS = 30
AFTER_SECONDS, SHORT_AFTER_SECONDS = 10, 5
WORST_SECONDS = 2.0
"""Beyond the cut itself, for the worst start delay."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut of `seconds`: what was found. `again`: calls of a run beyond its first."""

    kind: Kind
    seconds: int
    judgement: Judgement
    again: int


async def run(options: Options, screen: Screen) -> Report:
    kinds: Sequence[Kind] = ("black hole",) if options.short else ("black hole", "reset")
    cuts: list[Cut] = []
    where: Environment = {}
    figures: dict[str, Figure] = {}
    for kind in kinds:
        proxies: list[Proxy] = []

        @asynccontextmanager
        async def reach(dsn: str, proxies: list[Proxy] = proxies) -> AsyncIterator[Reached]:
            port = urlsplit(dsn).port
            assert port is not None
            async with Proxy(lambda: ("127.0.0.1", port), SystemClock()) as proxy:
                proxies.append(proxy)
                yield Reached(at_port(dsn, proxy.port), "direct, through a proxy that cuts")

        async with rig(options, screen, TENANTS, reach=reach, part=kind) as ready:
            cuts.append(await cut(ready, proxies[0], kind))
            where = ready.environment
            figures |= {f"{kind}: {name}": value for name, value in ready.usage().items()}
    return report(cuts, where, figures)


async def cut(ready: Rig, proxy: Proxy, kind: Kind) -> Cut:
    options = ready.options
    seconds = options.amount(CUT_SECONDS)

    async def strike(load: Load) -> None:
        await asyncio.sleep(CALM_SECONDS)
        if kind == "black hole":
            proxy.hold(lambda application: True)
        else:
            proxy.refusing = True
            proxy.cut()
        ready.screen.say(f"the network is cut for {seconds} s: {kind}")
        await asyncio.sleep(seconds)
        proxy.refusing = False
        proxy.release()

    rate = options.amount(RATE, 20)
    await ready.drive(rate, 2)
    after = SHORT_AFTER_SECONDS if options.short else AFTER_SECONDS
    load = await ready.seeded(rate, CALM_SECONDS + seconds + after, PATH)
    return found(kind, seconds, await ready.play(load, meanwhile=strike))


def found(kind: Kind, seconds: int, played: Played) -> Cut:
    judgement = judge(played.load.expected(), played.arrivals, played.history)
    again = len(played.arrivals) - len({arrival.run_id for arrival in played.arrivals})
    return Cut(kind, seconds, judgement, again)


def report(cuts: Sequence[Cut], where: Environment, used: dict[str, Figure]) -> Report:
    targets: list[Target] = []
    figures: dict[str, Figure] = {"runs_per_second": RATE, "answer_seconds": 1.0}
    for one in cuts:
        worst = percentile(one.judgement.delays, 1.0)
        targets += [
            exactly(f"{one.kind}: lost", 0, one.judgement.lost),
            exactly(f"{one.kind}: called again", 0, one.again),
            exactly(f"{one.kind}: calls without a recorded attempt", 0, one.judgement.duplicates),
            at_most(f"{one.kind}: worst start delay", one.seconds + WORST_SECONDS, worst, "s"),
        ]
        figures[f"{one.kind}: cut_seconds"] = one.seconds
        found = {**judgement_figures(one.judgement), **delay_figures(one.judgement)}
        figures |= {f"{one.kind}: {name}": value for name, value in found.items()}
    return Report(
        test="p8",
        environment=where,
        targets=targets,
        figures={**figures, **used},
        lost=sum(one.judgement.lost for one in cuts),
        duplicates=sum(one.again for one in cuts),
        charts=delay_charts({one.kind: one.judgement.delay_of for one in cuts}),
        not_meaning="a database that fails over or loses commits: it stays as it was, only nobody reaches it. "
        "The drill stops the server itself.",
    )


MEASUREMENT = Measurement("p8", "the database's network cut for 30 s: 0 lost, 0 duplicates, worst start <= 32 s", run)
