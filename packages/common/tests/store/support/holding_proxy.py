"""A TCP proxy before PostgreSQL that can hold its answers back, delay them, and cut what is connected."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from urllib.parse import urlsplit, urlunsplit

_READY = b"Z\0\0\0\x05I"
"""ReadyForQuery, outside a transaction: how the server ends the login, and each answer."""


class Proxy:
    """Between a store and its server: requests pass, answers wait while it holds them.

    `delay`: seconds before the first answer of a connection. `hold_when_ready`: holds once the server has ended its
    next answer. `made`: connections over which a client has said something.
    """

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._flow = asyncio.Event()
        self._flow.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.answered = asyncio.Event()
        self.port = 0
        self.made = 0
        self.delay = 0.0
        self.hold_when_ready = False

    def hold(self) -> None:
        self._flow.clear()
        self.answered.clear()

    def release(self) -> None:
        self._flow.set()

    async def cut(self) -> None:
        """Closes every connection, and returns when each client has closed its end, too."""
        for writer in self._clients.values():
            writer.close()
        await self.left()

    async def left(self) -> None:
        """Returns when each client that is connected now has closed its end."""
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._to)
        client = self._start(self._requests(reader, server_writer))
        self._clients[client] = writer
        client.add_done_callback(self._clients.pop)
        self._start(self._answers(server_reader, writer))

    def _start(self, pump: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(pump)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = False
        with _closing(writer):
            while data := await reader.read(65536):
                self.made += not said
                said = True
                writer.write(data)
                await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _closing(writer):
            await asyncio.sleep(self.delay)
            while data := await reader.read(65536):
                self.answered.set()
                await self._flow.wait()
                writer.write(data)
                await writer.drain()
                if self.hold_when_ready and data.endswith(_READY):
                    self.hold()

    async def close(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def _closing(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        with contextlib.suppress(OSError):
            yield
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the server of a URL, and the URL by way of it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    proxy = Proxy(parts.hostname, parts.port or 5432)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    account = parts.netloc.rpartition("@")[0]
    netloc = f"{account}@127.0.0.1:{proxy.port}" if account else f"127.0.0.1:{proxy.port}"
    try:
        yield proxy, urlunsplit(parts._replace(netloc=netloc))
    finally:
        server.close()
        await proxy.close()
