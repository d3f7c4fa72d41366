"""The tenants' endpoint, in processes of its own: behaves as the path of each call says, and remembers every call.

As cheap as Python allows, for it shares the machine with what is measured: no HTTP library, fixed answers, and one
timer for all that is to be answered in the same two milliseconds (with 10,000 calls a second to a 150 ms endpoint half
the cost of a timer each). The measuring side talks to it over its standard streams: it prints its port, then takes
lines `take FILE`, writes what came since the last one to the file, and prints the number of calls; `count` prints that
number and takes nothing.
"""

import asyncio
import gc
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

from bench.ledger import Arrival
from bench.manners import Ending, manner_of

ROOT = Path(__file__).parents[1]
_ANSWERS = {
    Ending.OK: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    Ending.UNAVAILABLE: b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
}
_END = b"\r\n\r\n"
_LENGTH = b"\r\nContent-Length: "
_KEY = b"\r\nIdempotency-Key: "
_TASK = b"\r\nTocsin-Task: "
_SLOT = b"\r\nTocsin-Scheduled-For: "
_ATTEMPT = b"\r\nTocsin-Attempt: "

_LONGEST_SEGMENT = 24
_TICK_SECONDS = 0.002

Call = tuple[float, bytes, bytes, bytes, bytes]


class Delays:
    """Does things later, up to two milliseconds after their instant, with one timer for all of the same instant."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: dict[int, list[Callable[[], None]]] = {}

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        tick = int((self._loop.time() + seconds) / _TICK_SECONDS) + 1
        due = self._due.get(tick)
        if due is None:
            due = self._due[tick] = []
            self._loop.call_at(tick * _TICK_SECONDS, self._act, tick)
        due.append(act)

    def _act(self, tick: int) -> None:
        for act in self._due.pop(tick):
            act()


class EndpointProtocol(asyncio.Protocol):
    """One connection. `calls` takes (arrival in Unix seconds, run id, task id, slot, attempt) as they stand on the
    wire; a call that does not say its attempt is the first."""

    def __init__(self, calls: list[Call], delays: Delays) -> None:
        self._calls = calls
        self._delays = delays
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        at = time.time()
        assert self._transport is not None
        rest = self._rest + data if self._rest else data
        while (end := rest.find(_END)) >= 0:
            size = int(_value(rest, _LENGTH, end) or b"0")
            if len(rest) < end + 4 + size:
                break
            run_id, attempt = _value(rest, _KEY, end), _value(rest, _ATTEMPT, end) or b"1"
            self._calls.append((at, run_id, _value(rest, _TASK, end), _value(rest, _SLOT, end), attempt))
            self._answer(*manner_of(_segment(rest)).answer(run_id, attempt))
            rest = rest[end + 4 + size :]
        self._rest = rest

    def _answer(self, seconds: float, ending: Ending) -> None:
        assert self._transport is not None
        answer = _ANSWERS.get(ending)
        if answer is None:
            if ending is Ending.RESET:
                self._transport.abort()
        elif seconds > 0:
            self._delays.later(seconds, partial(self._transport.write, answer))
        else:
            self._transport.write(answer)


def _segment(head: bytes) -> bytes:
    """The first segment of the path: `250ms` of `POST /250ms/7 HTTP/1.1`; nothing where it is the only one."""
    start = head.find(b" /") + 2
    end = head.find(b"/", start, start + _LONGEST_SEGMENT)
    segment = head[start:end] if end >= 0 else b""
    return b"" if b" " in segment else segment


def _value(head: bytes, name: bytes, end: int) -> bytes:
    """A header's value; nothing where it is missing. Tocsin writes names in one form only."""
    start = head.find(name, 0, end)
    if start < 0:
        return b""
    start += len(name)
    return head[start : head.find(b"\r\n", start)]


def parse_arrivals(text: str) -> list[Arrival]:
    """What `take` wrote.

    Raises:
        ValueError: a call without one of the headers, or with one that cannot be read.
    """
    arrivals = []
    for line in text.splitlines():
        at, run_id, task_id, slot, attempt = line.split(" ")
        arrivals.append(
            Arrival(float(at), UUID(run_id), UUID(task_id), datetime.fromisoformat(slot), attempt=int(attempt))
        )
    return arrivals


class Endpoint:
    """The endpoint's processes, as the measuring side sees them: one port, whose connections the system deals out
    among them. `folder` takes their logs."""

    def __init__(self, folder: Path, processes: int = 1) -> None:
        self._folder = folder
        self._count = processes
        self._processes: list[asyncio.subprocess.Process] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bench.endpoint",
                str(self.port),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            self._processes.append(process)
            self.port = int(await line_of(process))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            await process.wait()

    @property
    def pid(self) -> int:
        """Of the first process."""
        return self._processes[0].pid

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def take(self) -> list[Arrival]:
        """The calls since the last time."""
        taken: list[Arrival] = []
        for process in self._processes:
            log = self._folder / f"calls-{process.pid}.log"
            count = int(await _ask(process, f"take {log}"))
            arrivals = parse_arrivals(await asyncio.to_thread(log.read_text))
            if len(arrivals) != count:
                raise RuntimeError(f"the endpoint counted {count} calls and wrote {len(arrivals)}")
            taken += arrivals
        return taken

    async def count(self) -> int:
        """How many calls came since the last `take`."""
        return sum([int(await _ask(process, "count")) for process in self._processes])


async def _ask(process: asyncio.subprocess.Process, command: str) -> bytes:
    assert process.stdin is not None
    process.stdin.write(f"{command}\n".encode())
    return await line_of(process)


async def line_of(process: asyncio.subprocess.Process) -> bytes:
    """The next line that a process of the rig prints.

    Raises:
        RuntimeError: it has ended.
    """
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("the endpoint's process has ended")
    return line


def _write(path: str, calls: list[Call]) -> None:
    with Path(path).open("wb") as log:
        log.writelines(b"%r %b %b %b %b\n" % call for call in calls)


async def serve(port: int) -> None:
    """Serves until its standard input ends, on a port that it shares with others; 0: on one of its own choice."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is for the measuring side
    calls: list[Call] = []
    delays = Delays()
    server = await loop.create_server(
        lambda: EndpointProtocol(calls, delays), "127.0.0.1", port, backlog=4096, reuse_port=True
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    gc.freeze()
    gc.disable()  # nothing here makes cycles
    while line := await commands.readline():
        if line == b"count\n":
            print(len(calls), flush=True)
            continue
        taken = calls.copy()
        calls.clear()
        await asyncio.to_thread(_write, line.decode().rstrip("\n").partition(" ")[2], taken)
        print(len(taken), flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
