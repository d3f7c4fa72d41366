"""The network between the product and a server: a proxy, in a process of its own, that delays what passes.

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
import sys
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self, TypeAlias

ROOT = Path(__file__).parents[1]

Server: TypeAlias = tuple[str, int] | Path
"""Host and port, or a socket in the file system."""

_MOST_BYTES = 4 * 1024 * 1024
"""On their way in one direction of a connection, before its sender is held up."""


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

    def __init__(self, conditions: _Conditions, server: Server, opening: set[asyncio.Task[None]]) -> None:
        super().__init__(conditions, answers=False)
        self._server = server
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
            if isinstance(self._server, Path):
                await self._loop.create_unix_connection(lambda: server, str(self._server))
            else:
                await self._loop.create_connection(lambda: server, *self._server)
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


async def serve(server: Server) -> None:
    """Serves until its standard input ends."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is for the measuring side
    conditions = _Conditions()
    opening: set[asyncio.Task[None]] = set()
    listener = await loop.create_server(lambda: _Client(conditions, server, opening), "127.0.0.1", 0, backlog=512)
    print(listener.sockets[0].getsockname()[1], flush=True)
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    gc.freeze()
    while line := await commands.readline():
        conditions.set(Latency(**json.loads(line)))
        print("ok", flush=True)
    listener.close()


class LatencyProxy:
    """The proxy's process before a server, as the measuring side sees it."""

    def __init__(self, server: Server) -> None:
        self._server = (str(server),) if isinstance(server, Path) else (server[0], str(server[1]))
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


if __name__ == "__main__":
    # select() waits to the microsecond; epoll, which asyncio takes elsewhere, to the millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(serve(Path(sys.argv[1]) if len(sys.argv) == 2 else (sys.argv[1], int(sys.argv[2]))))
