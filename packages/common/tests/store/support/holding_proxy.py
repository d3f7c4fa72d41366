"""A TCP proxy before PostgreSQL that can hold its answers back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Between a store and its server: requests pass, answers wait while it holds them."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._flow = asyncio.Event()
        self._flow.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.answered = asyncio.Event()
        self.port = 0
        self.made = 0

    def hold(self) -> None:
        self._flow.clear()
        self.answered.clear()

    def release(self) -> None:
        self._flow.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        server_reader, server_writer = await asyncio.open_connection(*self._to)
        for pump in (self._requests(reader, server_writer), self._answers(server_reader, writer)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.answered.set()
                await self._flow.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def close(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
