"""A TCP proxy before PostgreSQL that can delay, cut, black-hole, refuse, and cut a connection at a chosen statement.

On the loop of whoever breaks things. What it does it does to bytes: both sides believe in a bad network.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from property_tests.network.wire import Execution, Message, Session, Splitter, Tally, statement_names
from tocsin.common.clock import Clock

_CHUNK = 65_536
_WAITING = 64
"""Chunks on their way in one direction, before its sender is held up."""

Queue = asyncio.Queue[tuple[float, bytes] | None]


class Cut(StrEnum):
    """`BEFORE`: the statement is not passed on. `AFTER`: it takes effect, and its answer is swallowed."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(eq=False)
class Trap:
    """Waits for the next execution of `statement`; None: for the next that commits a write. `sprung`: it has its line.
    `struck`: the instant (Unix seconds) at which the client was cut off, and `done` is set; None until then. `rows`: of
    the answer that was swallowed, as `Proxy.rows`."""

    statement: str | None
    cut: Cut
    struck: float | None = None
    rows: int | None = None
    sprung: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, execution: Execution) -> bool:
        return execution.commits if self.statement is None else execution.name == self.statement


class _Line:
    """One client's connection and ours to the server for it. `unanswered`: what was passed on, oldest first, each with
    the trap that takes its answer."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.session = Session(statement_names())
        self.asked = Splitter(opening=True)
        self.answered = Splitter(opening=False)
        self.tally = Tally()
        self.unanswered: deque[tuple[str, Trap | None]] = deque()
        self.trap: Trap | None = None

    def abort(self) -> None:
        """A reset, as when a machine is gone."""
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """`server` gives the server's address at each connection, for it may come back elsewhere. `port` is where the proxy
    begins, on 127.0.0.1. To be opened and closed, or used as a context."""

    def __init__(self, server: Callable[[], tuple[str, int]], clock: Clock) -> None:
        self.port = 0
        self.delay = 0.0
        """Seconds that every chunk takes longer, each way."""
        self.refusing = False
        """New connections are closed at once."""
        self.trap: Trap | None = None
        """None too once it has its line."""
        self.rows: dict[str, int] = {}
        """Of each statement, how many rows its latest answer told of: returned or written; of a COMMIT, written by its
        transaction."""
        self._server = server
        self._clock = clock
        self._held: Callable[[str], bool] | None = None
        self._flow = asyncio.Event()
        self._flow.set()
        self._lines: set[_Line] = set()
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._listener: asyncio.Server | None = None

    async def open(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_CHUNK)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        self.refusing = True
        for task, client in self._serving.items():
            task.cancel()
            client.transport.abort()  # the task may not have begun
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._listener.wait_closed()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def cut(self) -> int:
        """Resets every connection; says how many there were."""
        lines = list(self._lines)
        for line in lines:
            line.abort()
        return len(lines)

    def hold(self, which: Callable[[str], bool]) -> None:
        """A black hole: nothing arrives any more, in either direction, on the connections whose application's name
        `which` picks; what was sent arrives when it is released, as TCP would send it again."""
        self._held = which
        self._flow.clear()

    def release(self) -> None:
        self._held = None
        self._flow.set()

    def unanswered(self, statement: str) -> int:
        """How many executions of this statement are on the wire."""
        return sum(name == statement for line in self._lines for name, _ in line.unanswered)

    @property
    def written(self) -> int:
        """How many rows the transactions that are open have written."""
        return sum(line.tally.written for line in self._lines)

    # one connection

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._serving.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self.refusing:
                await self._join(reader, writer)
        except OSError:
            return  # the server is away: the client sees its connection end
        finally:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(*self._server(), limit=_CHUNK)
        line = _Line(writer, server)
        self._lines.add(line)
        pumps = [
            asyncio.create_task(self._pump(line, reader, server, self._from_client)),
            asyncio.create_task(self._pump(line, answers, writer, self._from_server)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            line.abort()  # first: the wait for the pumps may be cancelled
            self._lines.discard(line)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self,
        line: _Line,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        take: Callable[[_Line, bytes], bytes],
    ) -> None:
        """Ends when its reader does, once all that was read has been written. `take` says what of it passes."""
        queue: Queue = asyncio.Queue(_WAITING)
        delivering = asyncio.create_task(self._deliver(line, queue, writer))
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(_CHUNK):
                    if passed := take(line, data):
                        await queue.put((loop.time() + self.delay, passed))
            await queue.put(None)
            await delivering
        finally:
            delivering.cancel()

    async def _deliver(self, line: _Line, queue: Queue, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while (item := await queue.get()) is not None:
                due, data = item
                if (wait := due - loop.time()) > 0:
                    await asyncio.sleep(wait)
                while self._held is not None and self._held(line.session.application):
                    await self._flow.wait()
                writer.write(data)
                await writer.drain()

    # traps

    def _from_client(self, line: _Line, data: bytes) -> bytes:
        passed = []
        for message in line.asked.feed(data):
            if not self._passes(line, message):
                return b""
            passed.append(message.raw)
        return b"".join(passed)

    def _passes(self, line: _Line, message: Message) -> bool:
        """False: the trap has cut this line."""
        execution = line.session.sees(message)
        if execution is not None and self.trap is not None and line.trap is None and self.trap.wants(execution):
            line.trap, self.trap = self.trap, None
            line.trap.sprung = True
            if line.trap.cut is Cut.BEFORE:
                self._spring(line, line.trap)
                return False
        if message.asks_for_encryption:
            line.answered.expect_byte()
        ended = line.session.ends(message)
        if ended is not None:
            line.unanswered.append((ended, line.trap))
            line.trap = None
        return True

    def _from_server(self, line: _Line, data: bytes) -> bytes:
        """Nothing of the answer to a statement that is to be lost."""
        passed = []
        for message in line.answered.feed(data):
            trap = line.unanswered[0][1] if line.unanswered else None
            rows = line.tally.sees(message)
            if rows is not None and line.unanswered:
                name, _ = line.unanswered.popleft()
                self.rows[name] = rows
                if trap is not None:
                    trap.rows = rows
                    self._spring(line, trap)
                    break
            if trap is None:
                passed.append(message.raw)
        return b"".join(passed)

    def _spring(self, line: _Line, trap: Trap) -> None:
        line.abort()
        trap.struck = self._clock.now().timestamp()
        trap.done.set()
