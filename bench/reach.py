"""How the product reaches a server in a measurement: directly, or by a proxy whose delay is measured before its use."""

import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import asyncpg
from redis.asyncio import Redis

from bench.frame import Network
from bench.network import AZ, Latency, LatencyProxy, Server
from bench.report import Figure, Report, at_most

ADDED_MS = 0.3
"""How far the proxy's round trip may be from the one that was asked for."""

_ROUND_TRIPS = 300
_ROUND_TRIP = "_round_trip_ms"
_ADDED = f"_added{_ROUND_TRIP}"

Ask: TypeAlias = Callable[[str], Awaitable[float]]
"""The milliseconds of a round trip to the server at an address."""


def server_at(url: str) -> Server:
    """Where the server of an address listens."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return Path(unquote(parts.path))
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def at_port(dsn: str, port: int) -> str:
    """The same database by another port of this machine."""
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}").geturl()


def redis_at_port(url: str, port: int) -> str:
    """The same Redis, which asks for no password, by a port of this machine."""
    return f"redis://127.0.0.1:{port}/"


async def select_ms(dsn: str, count: int = _ROUND_TRIPS) -> float:
    """The median of `count` times that `select 1` takes, in milliseconds."""
    connection = await asyncpg.connect(dsn)
    try:
        ask = await connection.prepare("select 1")
        return await _median_ms(ask.fetchval, count)
    finally:
        await connection.close()


async def ping_ms(url: str, count: int = _ROUND_TRIPS) -> float:
    """The median of `count` times that a Redis takes for a `ping`, in milliseconds."""
    async with Redis.from_url(url) as redis:
        return await _median_ms(redis.ping, count)


async def _median_ms(ask: Callable[[], Awaitable[object]], count: int) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


@dataclass(frozen=True, slots=True)
class Calibration:
    """Medians of a round trip in milliseconds: without the proxy, through it alone, and with its delay. `asked`: what
    the server was asked for."""

    direct_ms: float
    proxy_ms: float
    delayed_ms: float
    asked: str = "select 1"

    @property
    def added_ms(self) -> float:
        return self.delayed_ms - self.direct_ms

    def figures(self, name: str = "network") -> dict[str, Figure]:
        """For the environment of a report."""
        return {
            f"{name}{_ADDED}": round(self.added_ms, 3),
            f"{name}_direct{_ROUND_TRIP}": round(self.direct_ms, 3),
            f"{name}_whole{_ROUND_TRIP}": round(self.delayed_ms, 3),
        }

    def __str__(self) -> str:
        return (
            f"{self.added_ms:+.2f} ms a round trip by a proxy ({self.asked}: {self.direct_ms:.2f} ms direct, "
            f"{self.proxy_ms:.2f} through the proxy alone, {self.delayed_ms:.2f} with its delay)"
        )


@dataclass(frozen=True, slots=True)
class Reached:
    """A server as the product reaches it. `text` says how, for the report; `pids` are the processes between, and
    `calibration` is what was found of a proxy."""

    dsn: str
    text: str = "direct"
    pids: Sequence[int] = ()
    calibration: Calibration | None = None

    def environment(self, name: str = "network") -> dict[str, Figure]:
        """How it was reached, and the round trips of a proxy, for a report."""
        measured = {} if self.calibration is None else self.calibration.figures(name)
        return {name: self.text, **measured}


Reach: TypeAlias = Callable[[str], AbstractAsyncContextManager[Reached]]
"""From the server's own address."""


@asynccontextmanager
async def direct(dsn: str) -> AsyncIterator[Reached]:
    yield Reached(dsn)


def distant(
    latency: Latency, ask: Ask = select_ms, by_port: Callable[[str, int], str] = at_port, asked: str = "select 1"
) -> Reach:
    """Through a proxy with this latency, which is measured before it is used: of a database, or of what else can be
    asked for something."""

    @asynccontextmanager
    async def reach(dsn: str) -> AsyncIterator[Reached]:
        async with LatencyProxy(server_at(dsn)) as proxy:
            far = by_port(dsn, proxy.port)
            near_ms, alone_ms, delayed_ms = await _calibrated(dsn, far, proxy, latency, ask)
            calibration = Calibration(near_ms, alone_ms, delayed_ms, asked)
            yield Reached(far, str(calibration), (proxy.pid,), calibration)

    return reach


async def _calibrated(
    near: str, far: str, proxy: LatencyProxy, latency: Latency, ask: Ask
) -> tuple[float, float, float]:
    """Measures the same server by both addresses: directly, through the proxy alone, and with its delay. The proxy
    keeps `latency`, less what it costs itself and what its timers are late, so that a round trip takes as much longer
    as was asked for."""
    await proxy.set(Latency())
    near_ms, alone_ms = await ask(near), await ask(far)
    await proxy.set(latency)
    excess = await ask(far) - near_ms - latency.round_trip_ms
    await proxy.set(replace(latency, round_trip_ms=max(0.0, latency.round_trip_ms - excess)))
    return near_ms, alone_ms, await ask(far)


def judged_distance(report: Report) -> Report:
    """A report with the target, for each proxy that it was measured through, that the proxy is as far as was asked, and
    with its round trips among the figures rather than in the environment."""
    measured = {name: float(str(value)) for name, value in report.environment.items() if name.endswith(_ROUND_TRIP)}
    added = {name: value for name, value in measured.items() if name.endswith(_ADDED)}
    targets = [
        at_most(f"{name.removesuffix(_ADDED)}: added round trip, off by", ADDED_MS, abs(value - AZ.round_trip_ms), "ms")
        for name, value in added.items()
    ]
    where = {name: value for name, value in report.environment.items() if name not in measured}
    figures = {**measured, **report.figures}
    return replace(report, environment=where, targets=[*report.targets, *targets], figures=figures)


REACHES: Mapping[Network, Reach] = {"direct": direct, "az": distant(AZ)}

REDIS_REACHES: Mapping[Network, Reach] = {"direct": direct, "az": distant(AZ, ping_ms, redis_at_port, "ping")}
"""The same for a Redis."""
