"""One case of `bench transport`, in a process of its own: so many calls in flight through one transport.

Cold: a burst of one call for each of them, with no connection open; a client may open fewer and let calls wait. Warm:
for some seconds each call is followed by the next, once the same time of it has been played that does not count: a
client that opens few connections for a burst opens the others then. Takes a `Case` and prints a `Result`, both as JSON.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import psutil

from bench.clients import CLIENTS
from bench.endpoint import ROOT
from bench.ledger import percentile
from tocsin.cli.node import collect_garbage_rarely
from tocsin.common.clock import SystemClock
from tocsin.common.target import parse_target
from tocsin.executor.egress import EgressGuard, EgressPolicy
from tocsin.executor.resolver import AiodnsLookup, CachingResolver
from tocsin.executor.transport.port import Failure, OutgoingRequest, Response, Transport

DEADLINE_SECONDS = 60.0
_HEADERS = (
    ("Content-Type", "application/json"),
    ("User-Agent", "Tocsin"),
    ("Idempotency-Key", "0199f4a5-6c7b-7d8e-9f00-112233445566"),
    ("Tocsin-Attempt", "1"),
    ("Tocsin-Fence", "1"),
    ("Tocsin-Scheduled-For", "2026-03-01T09:00:00Z"),
    ("Tocsin-Task", "0199f4a5-6c7b-7d8e-9f00-112233445567"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """`in_flight` calls at a time to `url`; warm for `seconds`."""

    client: str
    url: str
    in_flight: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Phase:
    """`requests` calls took `seconds`, and `cpu` processor seconds of the whole process; p50 and p99 are of their
    durations, in seconds. `failed` of them had another answer than 200, or none."""

    requests: int
    failed: int
    seconds: float
    cpu: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Result:
    """`rss` is in bytes, after all calls. `fault`: what went wrong in one of the failed, or nothing."""

    cold: Phase
    warm: Phase
    rss: int
    fault: str = ""


class OpenGate:
    async def ready(self) -> None: ...

    def check(self) -> None: ...


class Caller:
    """Calls without a pause, and notes how long each took."""

    def __init__(self, transport: Transport, case: Case) -> None:
        self._transport = transport
        self._in_flight = case.in_flight
        self._request = OutgoingRequest(parse_target(case.url), "POST", _HEADERS, b"{}", DEADLINE_SECONDS)
        self._gate = OpenGate()
        self._took: list[float] = []
        self._failed = 0
        self.fault = ""

    async def phase(self, seconds: float) -> Phase:
        """One call for each, and then the next until `seconds` have passed."""
        self._took, self._failed = [], 0
        cpu, began = time.process_time(), time.monotonic()
        await asyncio.gather(*(self._call_until(began + seconds) for _ in range(self._in_flight)))
        took = sorted(self._took)
        return Phase(
            requests=len(took),
            failed=self._failed,
            seconds=time.monotonic() - began,
            cpu=time.process_time() - cpu,
            p50=percentile(took, 0.5),
            p99=percentile(took, 0.99),
        )

    async def _call_until(self, end: float) -> None:
        while True:
            began = time.monotonic()
            self._note(await self._transport.call(self._request, self._gate))
            now = time.monotonic()
            self._took.append(now - began)
            if now >= end:
                return

    def _note(self, result: Response | Failure) -> None:
        if isinstance(result, Failure) or result.status != 200:
            self._failed += 1
            self.fault = str(result)[:300]


async def measure(case: Case) -> Result:
    """Runs the case in this process, which is set up as an executor is."""
    collect_garbage_rarely()
    clock, rng = SystemClock(), random.Random(1)
    guard = EgressGuard(EgressPolicy.parse("127.0.0.1/32"), CachingResolver(AiodnsLookup(), clock))
    transport = CLIENTS[case.client](guard, clock, rng, None)
    caller = Caller(transport, case)
    try:
        cold = await caller.phase(0)
        await caller.phase(case.seconds)
        warm = await caller.phase(case.seconds)
        return Result(cold, warm, psutil.Process().memory_info().rss, caller.fault)
    finally:
        await transport.close()


async def run_case(case: Case, settings: Mapping[str, str]) -> Result:
    """Runs the case in a process of its own; `settings` are environment variables.

    Raises:
        RuntimeError: it ended without a result; what it said is in the text.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.caller",
        json.dumps(asdict(case)),
        cwd=ROOT,
        env={**os.environ, **settings},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, said = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{case} ended with {process.returncode}: {said.decode(errors='replace')[-2000:]}")
    found = json.loads(output)
    return Result(Phase(**found["cold"]), Phase(**found["warm"]), found["rss"], found["fault"])


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(measure(Case(**json.loads(sys.argv[1])))))), flush=True)
    os._exit(0)  # threads of a client have been seen to abort a Python that ends
