"""Scripted endpoints on raw asyncio sockets, and what a check needs around a call."""

import asyncio
import os
import random
import ssl
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET

from tocsin.common.clock import Clock, SystemClock
from tocsin.common.target import parse_target
from tocsin.executor.egress import EgressGuard, EgressPolicy
from tocsin.executor.resolver import Answer, ResolveError
from tocsin.executor.transport.port import (
    Failure,
    Gate,
    NotStartedError,
    OutgoingRequest,
    Response,
    Transport,
)

TransportFactory = Callable[[EgressGuard, Clock, random.Random, ssl.SSLContext | None], Transport]

DEADLINE = 0.4
PATIENCE = 5.0
"""Seconds after which a signal that should have come counts as missing."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Seen:
    """A request as an endpoint read it."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def value(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass(eq=False)
class Line:
    """One connection at an endpoint."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Ends the connection by RST."""
        self.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def hang(self) -> None:
        """Until the other side closes."""
        while await self.reader.read(65_536):
            pass


Answering = Callable[[Line, Seen], Awaitable[object]]
Connecting = Callable[[Line], Awaitable[object]]


@dataclass
class Endpoint:
    """What a server saw; `port` is where it listens on 127.0.0.1."""

    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    accepted: int = 0
    open: set[Line] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        async def wait() -> None:
            async with self.changed:
                await self.changed.wait_for(condition)

        try:
            await asyncio.wait_for(wait(), PATIENCE)
        except TimeoutError:
            raise AssertionError(f"never came true: {what}") from None

    async def until_open(self, connections: int) -> None:
        await self.until(lambda: len(self.open) == connections, f"{connections} open connections, not {len(self.open)}")

    async def note(self) -> None:
        async with self.changed:
            self.changed.notify_all()


async def read_request(reader: asyncio.StreamReader) -> Seen | None:
    """The next request, or None at the end of the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    line, *rows = head[:-4].split("\r\n")
    headers = [(row.partition(":")[0], row.partition(":")[2].strip()) for row in rows]
    seen = Seen(line, headers, b"")
    length = seen.value("content-length")
    return Seen(line, headers, await reader.readexactly(int(length)) if length else b"")


@asynccontextmanager
async def listening(
    connected: Connecting, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Endpoint]:
    """A server that hands each connection to `connected` and closes it when that returns."""
    endpoint = Endpoint()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        endpoint.accepted += 1
        endpoint.open.add(line)
        await endpoint.note()
        try:
            await connected(line)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            endpoint.open.discard(line)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()
            await endpoint.note()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, host, 0, ssl=context)
    endpoint.port = server.sockets[0].getsockname()[1]
    try:
        yield endpoint
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def answering(answer: Answering, context: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    """A keep-alive server that reads requests, notes them, and lets `answer` write."""
    endpoints: list[Endpoint] = []

    async def connected(line: Line) -> None:
        while (request := await read_request(line.reader)) is not None:
            endpoints[0].seen.append(request)
            await endpoints[0].note()
            if await answer(line, request) is False:
                return

    async with listening(connected, context) as endpoint:
        endpoints.append(endpoint)
        yield endpoint


def always(data: bytes) -> Answering:
    """Answers every request with the same bytes."""

    async def answer(line: Line, _request: Seen) -> None:
        await line.write(data)

    return answer


def then_close(data: bytes) -> Answering:
    """Writes the bytes and closes."""

    async def answer(line: Line, _request: Seen) -> bool:
        await line.write(data)
        return False

    return answer


async def sockets() -> int:
    """How many sockets this process has open, once what is being closed is closed."""
    for _ in range(20):
        await asyncio.sleep(0)
    count = 0
    for name in os.listdir("/dev/fd"):
        try:
            count += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
        except OSError:  # the listing's own descriptor
            continue
    return count


class Names:
    """DNS in a table: each name's answers in turn, the last one for ever. `asked` counts."""

    def __init__(self, **names: list[tuple[str, ...]]) -> None:
        self.names = {name.replace("_", "."): answers for name, answers in names.items()}
        self.asked: list[str] = []
        self.gate: asyncio.Event | None = None

    async def lookup(self, host: str) -> Answer:
        self.asked.append(host)
        if self.gate is not None:
            await self.gate.wait()
        answers = self.names.get(host)
        if not answers:
            raise ResolveError(f"{host}: domain name not found")
        return Answer(answers.pop(0) if len(answers) > 1 else answers[0], 60.0)

    async def resolve(self, host: str) -> tuple[str, ...]:
        return (await self.lookup(host)).addresses

    async def close(self) -> None: ...


class OpenGate:
    """Lets every call through and notes what it was asked, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ready(self) -> None:
        self.asked.append("ready")

    def check(self) -> None:
        self.asked.append("check")


class ClosedGate(OpenGate):
    """Stops every call at `at` ("ready" or "check")."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    async def ready(self) -> None:
        await super().ready()
        if self.at == "ready":
            raise NotStartedError("the task has a new version")

    def check(self) -> None:
        super().check()
        if self.at == "check":
            raise NotStartedError("the lease's trust window has passed")


def outgoing(
    url: str,
    method: str = "POST",
    body: bytes = b"{}",
    deadline: float = PATIENCE,
    headers: tuple[tuple[str, str], ...] = (),
) -> OutgoingRequest:
    return OutgoingRequest(parse_target(url), method, headers, body if method != "GET" else b"", deadline)


class Caller:
    """A transport under test, with calls that cannot hang a check."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def call(self, request: OutgoingRequest, gate: Gate | None = None) -> Response | Failure:
        try:
            async with asyncio.timeout(request.deadline + 1.0):
                return await self.transport.call(request, gate or OpenGate())
        except TimeoutError:
            raise AssertionError("the call outlived its deadline by a second") from None

    async def answer(self, request: OutgoingRequest, gate: Gate | None = None) -> Response:
        result = await self.call(request, gate)
        assert isinstance(result, Response), result
        return result

    async def failure(self, request: OutgoingRequest, gate: Gate | None = None) -> Failure:
        result = await self.call(request, gate)
        assert isinstance(result, Failure), result
        return result


LOOPBACK = "127.0.0.0/8 ::1/128"


@asynccontextmanager
async def calling(
    make: TransportFactory,
    *,
    names: Names | None = None,
    allow: str = LOOPBACK,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[Caller]:
    """A transport of `make` whose guard knows `names` and allows loopback, unless told otherwise."""
    guard = EgressGuard(EgressPolicy.parse(allow), names or Names())
    transport = make(guard, SystemClock(), random.Random(7), context)
    try:
        yield Caller(transport)
    finally:
        await transport.close()
