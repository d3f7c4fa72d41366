"""A TCP proxy before the database, one for each process, that can cut a connection at a named statement."""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files

from property_tests.crash_matrix.wire import Message, Splitter, Statements
from tocsin.common.clock import Clock
from tocsin.common.store.postgres.queries import query


class Cut(StrEnum):
    """`BEFORE`: the statement is not passed on. `AFTER`: it takes effect, and its answer is swallowed."""

    BEFORE = "before"
    AFTER = "after"


@cache
def statement_names() -> dict[str, str]:
    """The product's named statements by their texts."""
    folder = files("tocsin.common.store.postgres") / "sql"
    names = [entry.name.removesuffix(".sql") for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return {query(name): name for name in names}


@dataclass(eq=False)
class Trap:
    """Waits for the next `statement` of its process. `struck`: the instant (Unix seconds) at which the client was cut
    off; None until then."""

    statement: str
    cut: Cut
    struck: float | None = None
    sprung: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class _Line:
    """One connection. `unanswered`: what was passed on, oldest first, each with the trap that takes its answer."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    statements: Statements
    unanswered: deque[tuple[str, Trap | None]] = field(default_factory=deque)
    trap: Trap | None = None

    def abort(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy:
    """The way of one process to the database at `target`. `port` is where it begins, on 127.0.0.1."""

    def __init__(self, target: tuple[str, int], clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.trap: Trap | None = None
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def unanswered(self, statement: str) -> int:
        """How many executions of this statement are on the wire."""
        return sum(name == statement for line in self._lines for name, _ in line.unanswered)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, server = await asyncio.open_connection(*self._target)
        except BaseException:
            writer.transport.abort()
            raise
        line = _Line(writer, server, Statements(statement_names()))
        self._lines.add(line)
        pumps = [asyncio.create_task(self._requests(line, reader)), asyncio.create_task(self._answers(line, answers))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._lines.discard(line)
            line.abort()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _requests(self, line: _Line, source: asyncio.StreamReader) -> None:
        splitter = Splitter(opening=True)
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                for message in splitter.feed(data):
                    if not self._pass_on(line, message):
                        return
                await line.server.drain()

    def _pass_on(self, line: _Line, message: Message) -> bool:
        """False: the trap has cut this line."""
        name = line.statements.sees(message)
        if name is not None and self.trap is not None and name == self.trap.statement:
            line.trap, self.trap = self.trap, None
            line.trap.sprung = True
            if line.trap.cut is Cut.BEFORE:
                self._cut(line, line.trap)
                return False
        line.server.write(message.raw)
        ended = line.statements.ends(message)
        if ended is not None:
            line.unanswered.append((ended, line.trap))
            line.trap = None
        return True

    async def _answers(self, line: _Line, source: asyncio.StreamReader) -> None:
        splitter = Splitter(opening=False)
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                for message in splitter.feed(data):
                    trap = line.unanswered[0][1] if line.unanswered else None
                    if message.kind == b"Z" and line.unanswered:
                        line.unanswered.popleft()
                        if trap is not None:
                            self._cut(line, trap)
                            return
                    if trap is None:
                        line.client.write(message.raw)
                await line.client.drain()

    def _cut(self, line: _Line, trap: Trap) -> None:
        line.abort()
        trap.struck = self._clock.now().timestamp()
        trap.done.set()
