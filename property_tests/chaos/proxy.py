"""A TCP proxy before PostgreSQL that can delay, cut, black-hole, refuse, and drop the answer to a commit.

In the process that runs the chaos, on its loop. What it does it does to bytes: both sides believe in a bad network.
"""

import asyncio
import contextlib
from collections.abc import Callable

from property_tests.chaos.wire import Answer, Client

_CHUNK = 65_536
_WAITING = 64
"""Chunks on their way in one direction, before its sender is held up."""

Queue = asyncio.Queue[tuple[float, bytes] | None]


class _Link:
    """One client's connection and ours to the server for it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.said = Client()
        self.answer: Answer | None = None

    def abort(self) -> None:
        """A reset, as when a machine is gone."""
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """`server_port` is asked at each connection, for a server may come back elsewhere. To be used as a context."""

    def __init__(self, server_port: Callable[[], int], port: int = 0) -> None:
        self.port = port
        self.delay = 0.0
        """Seconds that every chunk takes longer, each way."""
        self.refusing = False
        """New connections are closed at once."""
        self.dropped = 0
        """Commits whose answers were dropped so far."""
        self.to_drop = 0
        self._server_port = server_port
        self._held: Callable[[str], bool] | None = None
        self._flow = asyncio.Event()
        self._flow.set()
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> "Proxy":
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=_CHUNK)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        self.refusing = True
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._listener.wait_closed()

    def cut(self) -> int:
        """Resets every connection; says how many there were."""
        links = list(self._links)
        for link in links:
            link.abort()
        return len(links)

    def hold(self, which: Callable[[str], bool]) -> None:
        """A black hole: nothing arrives any more, in either direction, on the connections whose application's name
        `which` picks; what was sent arrives when it is released, as TCP would send it again."""
        self._held = which
        self._flow.clear()

    def release(self) -> None:
        self._held = None
        self._flow.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if not self.refusing:
                await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the server is away, or we are closing: the client sees its connection end
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port(), limit=_CHUNK)
        link = _Link(writer, server_writer)
        self._links.add(link)
        pumps = [
            asyncio.create_task(self._pump(link, reader, server_writer, self._from_client)),
            asyncio.create_task(self._pump(link, server_reader, writer, self._from_server)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            link.abort()
            self._links.discard(link)

    async def _pump(
        self,
        link: _Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        take: Callable[[_Link, bytes], bytes],
    ) -> None:
        """Ends when its reader does, once all that was read has been written."""
        queue: Queue = asyncio.Queue(_WAITING)
        delivering = asyncio.create_task(self._deliver(link, queue, writer))
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(_CHUNK):
                    if passed := take(link, data):
                        await queue.put((loop.time() + self.delay, passed))
            await queue.put(None)
            await delivering
        finally:
            delivering.cancel()

    async def _deliver(self, link: _Link, queue: Queue, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while (item := await queue.get()) is not None:
                due, data = item
                if (wait := due - loop.time()) > 0:
                    await asyncio.sleep(wait)
                while self._held is not None and self._held(link.said.application):
                    await self._flow.wait()
                writer.write(data)
                await writer.drain()

    def _from_client(self, link: _Link, data: bytes) -> bytes:
        if link.said.feed(data) and self.to_drop > 0 and link.answer is None:
            self.to_drop -= 1
            link.answer = Answer()
        return data

    def _from_server(self, link: _Link, data: bytes) -> bytes:
        """What of it the client gets: nothing of the answer to a commit that is to be lost."""
        if link.answer is None:
            return data
        if link.answer.complete(data):
            self.dropped += 1
            link.abort()
        return b""
