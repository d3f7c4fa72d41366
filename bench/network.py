"""The network between the product and a server: a TCP proxy, in a process of its own, that delays what passes.

Each chunk is passed on a fixed time after it came, so chunks travel at once and their delays do not add up, as on a
real line; and never before an earlier one of the same direction, as TCP delivers. The process prints its port; each
line on its standard input is a `Latency` as JSON, which holds from then on, and is answered by `ok`.

Only times are changed here: `property_tests.network.proxy` cuts connections, at a chosen statement where wanted.
"""

import asyncio
import gc
import json
import random
import selectors
import signal
import statistics
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, Self, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from bench.frame import Network

ROOT = Path(__file__).parents[1]

_MOST_BYTES = 4 * 1024 * 1024
"""On their way in one direction of a connection, before its sender is held up."""

_ROUND_TRIPS = 300


@dataclass(frozen=True, slots=True)
class Latency:
    """What a connection costs in time.

    `round_trip_ms` is put on the answers: one timer for each costs the machine half of what two do. `jitter_ms` is the
    standard deviation of a normal jitter of the answers, or the width of a uniform one. `loss`: the share of chunks of
    either way that are lost, and come `retransmit_ms` later. `tail_share` of the answers takes `tail_ms` longer.
    Shares are 0 to 1.
    """

    round_trip_ms: float = 0.0
    jitter_ms: float = 0.0
    jitter: Literal["normal", "uniform"] = "normal"
    loss: float = 0.0
    retransmit_ms: float = 200.0
    tail_share: float = 0.0
    tail_ms: float = 0.0
    seed: int = 1


AZ = Latency(round_trip_ms=1.0)
"""Another availability zone of the same region."""


def delay(latency: Latency, rng: random.Random, *, answer: bool) -> float:
    """Seconds that one chunk takes, never negative. Draws only for what is set."""
    milliseconds = latency.round_trip_ms if answer else 0.0
    if answer and latency.jitter_ms:
        normal = latency.jitter == "normal"
        milliseconds += rng.gauss(0.0, latency.jitter_ms) if normal else rng.uniform(0.0, latency.jitter_ms)
    if answer and latency.tail_share and rng.random() < latency.tail_share:
        milliseconds += latency.tail_ms
    if latency.loss and rng.random() < latency.loss:
        milliseconds += latency.retransmit_ms
    return max(0.0, milliseconds) / 1000


class Way:
    """What is on its way in one direction of one connection. Instants are those of any one clock, in seconds."""

    def __init__(self) -> None:
        self._chunks: deque[tuple[float, bytes]] = deque()
        self.size = 0
        """Bytes on their way."""

    def put(self, due: float, chunk: bytes) -> None:
        self._chunks.append((due, chunk))
        self.size += len(chunk)

    @property
    def due(self) -> float | None:
        """When the first is due; None: nothing is on its way."""
        return self._chunks[0][0] if self._chunks else None

    def take(self, now: float) -> bytes:
        """What has arrived by `now`: nothing overtakes a chunk that came before it."""
        taken = []
        while self._chunks and self._chunks[0][0] <= now:
            taken.append(self._chunks.popleft()[1])
        arrived = taken[0] if len(taken) == 1 else b"".join(taken)
        self.size -= len(arrived)
        return arrived


class _Conditions:
    """The latency of now, for every connection."""

    def __init__(self) -> None:
        self.set(Latency())

    def set(self, latency: Latency) -> None:
        self.latency = latency
        self.rng = random.Random(latency.seed)


class _Side(asyncio.Protocol):
    """One side of a connection through the proxy: what it receives goes to its `peer`, later."""

    peer: "_Side"
    transport: asyncio.Transport

    def __init__(self, conditions: _Conditions, *, answers: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._conditions = conditions
        self._answers = answers
        self._way = Way()
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._peer_is_full = False
        self._held_up = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        wait = delay(self._conditions.latency, self._conditions.rng, answer=self._answers)
        if wait == 0.0 and self._way.due is None:
            self.peer.transport.write(data)
            return
        self._way.put(self._loop.time() + wait, data)
        if self._timer is None:
            self._arm()
        if self._way.size > _MOST_BYTES:
            self._hold_up_or_go_on()

    def eof_received(self) -> bool:
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        self.peer.peer_is_full(True)

    def resume_writing(self) -> None:
        self.peer.peer_is_full(False)

    def peer_is_full(self, full: bool) -> None:
        self._peer_is_full = full
        self._hold_up_or_go_on()

    def _end(self) -> None:
        """The peer is closed once it has all that came before."""
        self._ended = True
        if self._way.due is None:
            self.peer.transport.close()

    def _arm(self) -> None:
        due = self._way.due
        self._timer = None if due is None else self._loop.call_at(due, self._deliver)

    def _deliver(self) -> None:
        if arrived := self._way.take(self._loop.time()):
            self.peer.transport.write(arrived)
        self._arm()
        if self._held_up:
            self._hold_up_or_go_on()
        if self._ended and self._way.due is None:
            self.peer.transport.close()

    def _hold_up_or_go_on(self) -> None:
        hold = self._peer_is_full or self._way.size > _MOST_BYTES
        if hold != self._held_up and not self.transport.is_closing():
            self._held_up = hold
            if hold:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()


class _Client(_Side):
    """Opens a connection to the server for each client, and reads nothing before it is there."""

    def __init__(self, conditions: _Conditions, address: tuple[str, int], opening: set[asyncio.Task[None]]) -> None:
        super().__init__(conditions, answers=False)
        self._address = address
        self._opening = opening

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        server = _Side(self._conditions, answers=True)
        self.peer, server.peer = server, self
        task = self._loop.create_task(self._open(server))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, server: _Side) -> None:
        try:
            await self._loop.create_connection(lambda: server, *self._address)
        except OSError:
            self.transport.abort()
            return
        if self._ended or self.transport.is_closing():
            server.transport.close()
        else:
            self.transport.resume_reading()

    def _end(self) -> None:
        if hasattr(self.peer, "transport"):
            super()._end()
        else:
            self._ended = True


async def serve(host: str, port: int) -> None:
    """Serves until its standard input ends."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is for the measuring side
    conditions = _Conditions()
    opening: set[asyncio.Task[None]] = set()
    listener = await loop.create_server(lambda: _Client(conditions, (host, port), opening), "127.0.0.1", 0, backlog=512)
    print(listener.sockets[0].getsockname()[1], flush=True)
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    gc.freeze()
    while line := await commands.readline():
        conditions.set(Latency(**json.loads(line)))
        print("ok", flush=True)
    listener.close()


class LatencyProxy:
    """The proxy's process before the server at `host` and `port`, as the measuring side sees it."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, str(port))
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0
        """Where it listens, on 127.0.0.1."""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.network", *self._server),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.port = int(await self._line())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def set(self, latency: Latency) -> None:
        """From now on, for connections that are open too."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(latency)).encode() + b"\n")
        await self._line()

    async def _line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the proxy's process has ended")
        return line


def at_port(dsn: str, port: int) -> str:
    """The same database by another port of this machine."""
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}").geturl()


async def round_trip_ms(dsn: str, count: int = _ROUND_TRIPS) -> float:
    """The median of `count` times that `select 1` takes, in milliseconds."""
    connection = await asyncpg.connect(dsn)
    try:
        ask = await connection.prepare("select 1")
        times = []
        for _ in range(count):
            began = time.perf_counter()
            await ask.fetchval()
            times.append(time.perf_counter() - began)
    finally:
        await connection.close()
    return statistics.median(times) * 1000


@dataclass(frozen=True, slots=True)
class Calibration:
    """Medians of a round trip in milliseconds: without the proxy, through it alone, and with its delay."""

    direct_ms: float
    proxy_ms: float
    delayed_ms: float

    @property
    def added_ms(self) -> float:
        return self.delayed_ms - self.direct_ms

    def __str__(self) -> str:
        return (
            f"{self.added_ms:+.2f} ms a round trip by a proxy (select 1: {self.direct_ms:.2f} ms direct, "
            f"{self.proxy_ms:.2f} through the proxy alone, {self.delayed_ms:.2f} with its delay)"
        )


@dataclass(frozen=True, slots=True)
class Reached:
    """The database as the product reaches it. `text` says how, for the report; `pids` are the processes between, and
    `calibration` is what was found of a proxy."""

    dsn: str
    text: str = "direct"
    pids: Sequence[int] = ()
    calibration: Calibration | None = None


Reach: TypeAlias = Callable[[str], AbstractAsyncContextManager[Reached]]
"""From the database's own address."""


@asynccontextmanager
async def direct(dsn: str) -> AsyncIterator[Reached]:
    yield Reached(dsn)


def distant(latency: Latency) -> Reach:
    """Through a proxy with this latency, which is measured before it is used."""

    @asynccontextmanager
    async def reach(dsn: str) -> AsyncIterator[Reached]:
        parts = urlsplit(dsn)
        assert parts.port is not None
        async with LatencyProxy("127.0.0.1", parts.port) as proxy:
            far = at_port(dsn, proxy.port)
            calibration = await calibrated(dsn, far, proxy, latency)
            yield Reached(far, str(calibration), (proxy.pid,), calibration)

    return reach


async def calibrated(dsn: str, far: str, proxy: LatencyProxy, latency: Latency) -> Calibration:
    """Measures the same database by both addresses. The proxy keeps `latency`, less what it costs itself and what its
    timers are late, so that a round trip takes as much longer as was asked for."""
    await proxy.set(Latency())
    near, alone = await round_trip_ms(dsn), await round_trip_ms(far)
    await proxy.set(latency)
    excess = await round_trip_ms(far) - near - latency.round_trip_ms
    await proxy.set(replace(latency, round_trip_ms=max(0.0, latency.round_trip_ms - excess)))
    return Calibration(near, alone, await round_trip_ms(far))


REACHES: Mapping[Network, Reach] = {"direct": direct, "az": distant(AZ)}


if __name__ == "__main__":
    # select() waits to the microsecond; epoll, which asyncio takes elsewhere, to the millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(serve(sys.argv[1], int(sys.argv[2])))
