"""P0: what the rig itself can do, so that no later figure is the rig's: endpoint, network, loop, disk; and 3,000 runs.

The endpoint is asked by a bare client in a process of its own that writes many requests a connection before it reads
(`python -m bench.p0 PORT PATH SECONDS`), and so costs next to nothing itself.
"""

import asyncio
import sys

from bench.drive import judgement_figures, rig
from bench.endpoint import ROOT, Endpoint
from bench.frame import Measurement, Options, Screen
from bench.ledger import delay_figures, percentile
from bench.network import AZ
from bench.p2 import PATH, WANTED
from bench.reach import ADDED_MS, Calibration, distant
from bench.report import Figure, Report, at_least, at_most, exactly
from bench.system import server, work_folder

RUNS = 3000
RATE, SHORT_RATE = 100, 300
TENANTS = 20
P99_SECONDS = 0.21
"""What the first seed found for its own 3,000."""

CEILING = 2
"""The endpoint must bear so many times what P2 asks of it."""

CEILING_SECONDS, SHORT_CEILING_SECONDS = 5, 2
_CONNECTIONS = 64
_DEPTH = 96
"""Requests in flight a connection: 6,144 in all, so that an endpoint that takes 150 ms may answer 41,000 a second."""

_REQUEST = (
    b"POST /%b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nUser-Agent: Tocsin\r\n"
    b"Idempotency-Key: 0192f000-0000-7000-8000-000000000001\r\nTocsin-Attempt: 1\r\nTocsin-Fence: 1\r\n"
    b"Tocsin-Scheduled-For: 2026-03-01T09:00:00Z\r\nTocsin-Task: 0192f000-0000-7000-8000-000000000002\r\n"
    b"Content-Length: 2\r\n\r\n{}"
)
_HEAD = b"HTTP/1.1 200"


class _Client(asyncio.Protocol):
    """Keeps `_DEPTH` requests in flight, and counts answers."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._rest = b""
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request * _DEPTH)

    def data_received(self, data: bytes) -> None:
        found = self._rest + data
        answers = found.count(_HEAD)
        self._rest = found[-(len(_HEAD) - 1) :]  # part of a head at most, so none is counted twice
        self.answers += answers
        self._transport.write(self._request * answers)


async def ask(port: int, path: str, seconds: float) -> float:
    """Answers a second that the endpoint gives, once it has been asked for half a second."""
    loop = asyncio.get_running_loop()
    request = _REQUEST % path.encode()
    pairs = [await loop.create_connection(lambda: _Client(request), "127.0.0.1", port) for _ in range(_CONNECTIONS)]
    await asyncio.sleep(0.5)
    before, began = sum(client.answers for _, client in pairs), loop.time()
    await asyncio.sleep(seconds)
    rate = (sum(client.answers for _, client in pairs) - before) / (loop.time() - began)
    for transport, _ in pairs:
        transport.abort()
    return rate


async def ceiling(endpoint: Endpoint, path: str, seconds: float) -> float:
    """The same, from a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.p0", str(endpoint.port), path, str(seconds)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    return float(said)


async def run(options: Options, screen: Screen) -> Report:
    screen.say("the endpoint's own ceiling, and the network's")
    full = SHORT_CEILING_SECONDS if options.short else CEILING_SECONDS
    seconds = min(full, full * options.scale)
    async with work_folder(options.work_dir) as folder:
        rates = {}
        for path in ("", PATH):
            async with Endpoint(folder) as endpoint:
                rates[path] = await ceiling(endpoint, path, seconds)
        async with server(folder) as postgres, distant(AZ)(postgres.dsn) as reached:
            network = reached.calibration
            assert network is not None
    runs = options.amount(RUNS, 20)
    rate = min(SHORT_RATE if options.short else RATE, runs // 2)
    async with rig(options, screen, TENANTS) as ready:
        await ready.drive(min(rate, 40), 2)
        judgement = (await ready.drive(rate, runs // rate)).judgement
        used, where = ready.usage(), ready.environment
    wanted = CEILING * max(WANTED.values())
    return Report(
        test="p0",
        environment=where,
        targets=[
            at_least("endpoint, as P2 asks it", wanted, round(rates[PATH]), "calls/s"),
            at_most("the proxy's round trip, off by", ADDED_MS, abs(network.added_ms - AZ.round_trip_ms), "ms"),
            exactly("lost", 0, judgement.lost),
            exactly("duplicates", 0, judgement.duplicates),
            exactly("skipped, failed, early, unexpected", 0, judgement.other_faults),
            at_most("start delay p99 at the endpoint", P99_SECONDS, percentile(judgement.delays, 0.99), "s"),
        ],
        figures={
            "endpoint_at_once_calls_per_second": round(rates[""]),
            "endpoint_150_ms_calls_per_second": round(rates[PATH]),
            **_network_figures(network),
            **judgement_figures(judgement),
            **delay_figures(judgement),
            **used,
        },
        lost=judgement.lost,
        duplicates=judgement.duplicates,
        not_meaning=f"anything about the product but that {rate} runs/s arrive: these figures say how far the others "
        "can be trusted. The endpoint's ceiling is its own with a whole core to itself; under P2 it has less.",
    )


def _network_figures(network: Calibration) -> dict[str, Figure]:
    return {
        "select_1_direct_ms": round(network.direct_ms, 3),
        "select_1_through_the_proxy_alone_ms": round(network.proxy_ms, 3),
        "select_1_with_1_ms_more_ms": round(network.delayed_ms, 3),
    }


MEASUREMENT = Measurement("p0", "calibration: endpoint >= 20,000 calls/s, network, 3,000 runs at p99 <= 0.21 s", run)

if __name__ == "__main__":
    print(asyncio.run(ask(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))))
