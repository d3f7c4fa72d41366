"""A TCP proxy before the database that can hold back answers, cut connections, and swallow everything."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Line:
    """One client's connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while answers pass."""
    was_cut: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the server has answered a client that is cut off."""

    def hold(self) -> None:
        self.answers.clear()

    def release(self) -> None:
        self.answers.set()

    def cut(self) -> None:
        """Ends the client's side. What it sent takes effect; the answer is lost."""
        self.was_cut = True
        self.client.transport.abort()
        self.answers.set()


@dataclass
class Network:
    """The way to `target`. `port` is where it begins, on 127.0.0.1.

    `trap`: bytes, and what is done with the line on which a client next sends them: once they were passed on,
    or, if `before`, instead of passing them on. `lines`: those that are open.
    """

    target: tuple[str, int]
    port: int = 0
    trap: tuple[bytes, Callable[[Line], None]] | None = None
    before: bool = False
    _server: asyncio.Server | None = None
    lines: set[Line] = field(default_factory=set)
    _passing: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    @property
    def sprung(self) -> bool:
        """Whether the trap has had its line."""
        return self.trap is None

    def swallow(self) -> None:
        """From now on nothing arrives, in either direction, and nobody is told."""
        self._passing.clear()

    def heal(self) -> None:
        """What was swallowed arrives."""
        self._passing.set()

    async def open(self) -> None:
        self._passing.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._passing.wait()
            there, back = await asyncio.open_connection(*self.target)
        except BaseException:
            writer.transport.abort()
            raise
        line = Line(writer, back)
        line.release()
        self.lines.add(line)
        pumps = [
            asyncio.create_task(self._requests(line, reader)),
            asyncio.create_task(self._answers(line, there)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            writer.transport.abort()
            back.transport.abort()
            self.lines.discard(line)
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _requests(self, line: Line, source: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                await self._passing.wait()
                action = None
                if self.trap is not None and self.trap[0] in data:
                    action, self.trap = self.trap[1], None
                    action(line)
                    if self.before:
                        return
                line.server.write(data)
                await line.server.drain()
        if line.was_cut and not self.before:
            await line.answered.wait()  # closed sooner, the server might never read what was sent

    async def _answers(self, line: Line, source: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                await self._passing.wait()
                await line.answers.wait()
                if line.was_cut:
                    line.answered.set()
                    continue
                line.client.write(data)
                await line.client.drain()
