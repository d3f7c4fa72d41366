"""A tenant's endpoint on a raw socket: it notes every request, and answers as the test says, path by path."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from uuid import UUID

from tocsin.common.clock import Clock

PATIENCE = 10.0
"""Seconds after which a signal that should have come counts as missing."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it was read. `at`: the monotonic instant at which its last byte was there."""

    path: str
    run_id: UUID
    task_id: UUID
    attempt: int
    fence: int
    scheduled_for: str
    body: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: its status, a header line of its own, and its body."""

    status: int
    header: str = "X-Of: the test"
    body: bytes = b""


Answering = Callable[[Request], Awaitable[int | Said]]


async def ok(_request: Request) -> int:
    return 200


@dataclass
class Endpoint:
    """`answers`: what a path says, as a status; 200 at once where nothing is set."""

    clock: Clock
    port: int = 0
    seen: list[Request] = field(default_factory=list)
    answers: dict[str, Answering] = field(default_factory=dict)
    open: Counter[str] = field(default_factory=Counter)
    most: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """The greatest number of requests of a path that were open at once."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def of(self, path: str) -> list[Request]:
        return [request for request in self.seen if request.path == path]

    def of_run(self, run_id: UUID) -> list[Request]:
        return [request for request in self.seen if request.run_id == run_id]

    def hold(self, path: str) -> asyncio.Event:
        """Lets the requests of a path wait until the event is set; then they are answered with 200."""
        release = asyncio.Event()

        async def held(_request: Request) -> int:
            await release.wait()
            return 200

        self.answers[path] = held
        return release

    def take(self, path: str, seconds: float) -> None:
        """Answers the requests of a path after so many seconds."""

        async def slow(_request: Request) -> int:
            await asyncio.sleep(seconds)
            return 200

        self.answers[path] = slow

    async def until(self, condition: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
        async def wait() -> None:
            async with self.changed:
                await self.changed.wait_for(condition)

        try:
            await asyncio.wait_for(wait(), within)
        except TimeoutError:
            raise AssertionError(f"never came true: {what}; seen: {self.seen[-20:]}") from None

    async def until_seen(self, path: str, count: int = 1, within: float = PATIENCE) -> list[Request]:
        await self.until(lambda: len(self.of(path)) >= count, f"{count} requests of {path}", within)
        return self.of(path)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await self._read(reader)) is not None:
            self.seen.append(request)
            self.open[request.path] += 1
            self.most[request.path] = max(self.most[request.path], self.open[request.path])
            await self._note()
            try:
                answer = await self._answer(request, reader)
            finally:
                self.open[request.path] -= 1
                await self._note()
            if answer is None:
                return
            said = Said(answer) if isinstance(answer, int) else answer
            head = f"HTTP/1.1 {said.status} Said\r\n{said.header}\r\nContent-Length: {len(said.body)}\r\n\r\n"
            writer.write(head.encode() + said.body)
            await writer.drain()

    async def _answer(self, request: Request, reader: asyncio.StreamReader) -> int | Said | None:
        """What is said, or None where the client has gone away meanwhile."""
        answer = asyncio.ensure_future(self.answers.get(request.path, ok)(request))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            for future in (answer, gone):
                future.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        line, *rows = head[:-4].split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Request(
            path=line.split(" ")[1],
            run_id=UUID(headers["idempotency-key"]),
            task_id=UUID(headers["tocsin-task"]),
            attempt=int(headers["tocsin-attempt"]),
            fence=int(headers["tocsin-fence"]),
            scheduled_for=headers["tocsin-scheduled-for"],
            body=body,
            at=self.clock.monotonic(),
        )

    async def _note(self) -> None:
        async with self.changed:
            self.changed.notify_all()


@asynccontextmanager
async def listening(clock: Clock) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(clock)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await endpoint.serve(reader, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=1000)
    endpoint.port = server.sockets[0].getsockname()[1]
    try:
        yield endpoint
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
