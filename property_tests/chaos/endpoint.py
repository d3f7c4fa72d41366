"""The tenants' endpoint, in a process of its own: answers as its path says, and keeps the first of the two ledgers.

`/ok/250/7` answers 200 after 250 ms; `/flaky/...` answers 503 to the first attempt of every second run, and 200 to
all else; `/broken/...` answers 500. A call is written down when it has ended: answered, or its connection gone.
The process prints its port, and at `end` on its standard input writes what is still open and ends.
"""

import asyncio
import gc
import math
import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from property_tests.chaos.ledger import call_line
from tocsin.common.clock import SystemClock

ROOT = Path(__file__).parents[2]
_END = b"\r\n\r\n"
_LENGTH = b"\r\nContent-Length: "
_HEADERS = (b"\r\nIdempotency-Key: ", b"\r\nTocsin-Task: ", b"\r\nTocsin-Fence: ", b"\r\nTocsin-Scheduled-For: ")
_ATTEMPT = b"\r\nTocsin-Attempt: "
_REASONS = {200: b"OK", 500: b"Internal Server Error", 503: b"Service Unavailable"}
_ANSWERS = {
    status: b"HTTP/1.1 %d %b\r\nContent-Length: 2\r\n\r\nok" % (status, reason) for status, reason in _REASONS.items()
}
_FLUSH_SECONDS = 0.5


def answer_of(head: bytes) -> tuple[int, float]:
    """The status and the seconds that a request's path asks for."""
    _, kind, milliseconds, _ = head.partition(b" ")[2].partition(b" ")[0].split(b"/", 3)
    status = 200
    if kind == b"broken":
        status = 500
    elif kind == b"flaky" and value_of(head, _ATTEMPT) == b"1" and value_of(head, _HEADERS[0])[-1:] in b"02468ace":
        status = 503
    return status, int(milliseconds) / 1000


def value_of(head: bytes, name: bytes) -> bytes:
    """A header's value; nothing where it is missing. Tocsin writes names in one form only."""
    start = head.find(name)
    if start < 0:
        return b""
    start += len(name)
    return head[start : head.find(b"\r\n", start)]


class Log:
    """Where calls are written. `opened` are those without an end yet."""

    def __init__(self, file: BinaryIO) -> None:
        self.opened: set[EndpointProtocol] = set()
        self.count = 0
        self._file = file

    def write(self, at: float, until: float, run: bytes, task: bytes, fence: bytes, scheduled: bytes) -> None:
        self.count += 1
        self._file.write(call_line((at, until, run, task, fence, scheduled)))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        for protocol in list(self.opened):
            protocol.note_end(math.inf)
        self._file.close()


class EndpointProtocol(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, log: Log, clock: SystemClock) -> None:
        self._log = log
        self._clock = clock
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self._open: tuple[float, list[bytes]] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.note_end(self._clock.now().timestamp())

    def data_received(self, data: bytes) -> None:
        at = self._clock.now().timestamp()
        self._rest += data
        end = self._rest.find(_END)
        if end < 0 or self._open is not None:
            return
        head = self._rest[: end + 2]
        size = end + 4 + int(value_of(head, _LENGTH) or b"0")
        if len(self._rest) < size:
            return
        self._rest = self._rest[size:]
        self._open = at, [value_of(head, name) for name in _HEADERS]
        self._log.opened.add(self)
        status, seconds = answer_of(head)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._answer, status)

    def _answer(self, status: int) -> None:
        assert self._transport is not None
        self.note_end(self._clock.now().timestamp())
        self._transport.write(_ANSWERS[status])

    def note_end(self, until: float) -> None:
        if self._open is not None:
            at, (run, task, fence, scheduled) = self._open
            self._open = None
            self._log.opened.discard(self)
            self._log.write(at, until, run, task, fence, scheduled)


class Endpoint:
    """The endpoint's process, as the judging side sees it; its ledger is `log`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.log = folder / "calls.log"
        self.port = 0
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "property_tests.chaos.endpoint", str(self.log)),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.port = int(await self._process.stdout.readline())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.end()

    async def end(self) -> None:
        """Ends the process; its ledger is complete then."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await self._process.wait()


async def serve(log_path: Path) -> None:
    """Serves until its standard input ends."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is for the judging side
    clock = SystemClock()
    log = Log(log_path.open("wb", buffering=1 << 20))
    server = await loop.create_server(lambda: EndpointProtocol(log, clock), "127.0.0.1", 0, backlog=4096)
    os.write(1, b"%d\n" % server.sockets[0].getsockname()[1])
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), _at_end, ended)
    gc.freeze()
    gc.disable()  # nothing here makes cycles worth a pause
    while not ended.is_set():
        log.flush()
        try:
            await asyncio.wait_for(ended.wait(), _FLUSH_SECONDS)
        except TimeoutError:
            continue
    server.close()
    log.close()


def _at_end(ended: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        ended.set()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
