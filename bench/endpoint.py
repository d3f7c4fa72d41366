"""A tenant's endpoint in a process of its own: answers 200 at once, or when its path says, and remembers every call.

As cheap as Python allows, for it shares the machine with what is measured: no HTTP library, one fixed
answer. The measuring side talks to it over its standard streams: it prints its port, then takes lines
`take FILE`, writes what came since the last one to the file, and prints the number of calls; `count` prints that
number and takes nothing.
"""

import asyncio
import gc
import signal
import sys
import time
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

from bench.ledger import Arrival

ROOT = Path(__file__).parents[1]
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_END = b"\r\n\r\n"
_LENGTH = b"\r\nContent-Length: "
_KEY = b"\r\nIdempotency-Key: "
_TASK = b"\r\nTocsin-Task: "
_SLOT = b"\r\nTocsin-Scheduled-For: "

Call = tuple[float, bytes, bytes, bytes]


class EndpointProtocol(asyncio.Protocol):
    """One connection. `calls` takes (arrival in Unix seconds, run id, task id, slot) as they stand on the wire."""

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls
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
            self._calls.append((at, _value(rest, _KEY, end), _value(rest, _TASK, end), _value(rest, _SLOT, end)))
            if (wait := _wait(rest)) > 0:
                asyncio.get_running_loop().call_later(wait, self._transport.write, _ANSWER)
            else:
                self._transport.write(_ANSWER)
            rest = rest[end + 4 + size :]
        self._rest = rest


def _wait(head: bytes) -> float:
    """Seconds that the path asks for: `POST /250ms/7 HTTP/1.1` waits a quarter of a second."""
    start = head.find(b" /") + 2
    end = head.find(b"ms/", start, start + 10)
    return int(head[start:end]) / 1000 if end >= 0 else 0.0


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
        at, run_id, task_id, slot = line.split(" ")
        arrivals.append(Arrival(float(at), UUID(run_id), UUID(task_id), datetime.fromisoformat(slot)))
    return arrivals


class Endpoint:
    """The endpoint's process, as the measuring side sees it. `folder` takes its log."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "calls.log"
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.endpoint",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.port = int(await self._line())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def take(self) -> list[Arrival]:
        """The calls since the last time."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"take {self._log}\n".encode())
        count = int(await self._line())
        arrivals = await asyncio.to_thread(lambda: parse_arrivals(self._log.read_text()))
        if len(arrivals) != count:
            raise RuntimeError(f"the endpoint counted {count} calls and wrote {len(arrivals)}")
        return arrivals

    async def count(self) -> int:
        """How many calls came since the last `take`."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"count\n")
        return int(await self._line())

    async def _line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the endpoint's process has ended")
        return line


def _write(path: str, calls: list[Call]) -> None:
    with Path(path).open("wb") as log:
        log.writelines(b"%r %b %b %b\n" % call for call in calls)


async def serve() -> None:
    """Serves until its standard input ends."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is for the measuring side
    calls: list[Call] = []
    server = await loop.create_server(lambda: EndpointProtocol(calls), "127.0.0.1", 0, backlog=4096)
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
    asyncio.run(serve())
