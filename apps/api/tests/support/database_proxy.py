"""A TCP proxy before the database, for outages."""

import asyncio
import contextlib
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """A TCP proxy before the database, which can be cut, closed and opened again.

    `cut_at`: the next time that a client sends these bytes, they are passed on and the answer is not.
    """

    target: tuple[str, int]
    port: int = 0
    cut_at: bytes | None = None
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """As a database that was stopped: every connection is broken, new ones are refused."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self.target)
        self._open |= {writer, back}
        pumps = [
            asyncio.create_task(self._pump(reader, back, writer)),
            asyncio.create_task(self._pump(there, writer)),
        ]
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for end in (writer, back):
            end.transport.abort()
        self._open -= {writer, back}
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        answers: asyncio.StreamWriter | None = None,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                if answers is not None and self.cut_at is not None and self.cut_at in data:
                    self.cut_at = None
                    answers.transport.abort()
                sink.write(data)
                await sink.drain()
