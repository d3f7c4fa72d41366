"""A TCP proxy that does what pgbouncer does as a client connects: it drops settings, and tells a pid of its own."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_KEPT = (b"user", b"database", b"application_name", b"client_encoding")
_KEY_DATA = b"K"


@asynccontextmanager
async def pooled(url: str, *, drop_settings: bool, own_pids: bool) -> AsyncIterator[str]:
    """The URL of the pooler before the server of `url`."""
    parts = urlsplit(url)
    serving = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            there, back = await asyncio.open_connection(parts.hostname, parts.port)
            back.write(await _startup(reader, drop_settings))
            pumps = [
                asyncio.create_task(_pump(reader, back)),
                asyncio.create_task(_answers(there, writer, own_pids)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            back.transport.abort()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = parts.netloc.rpartition("@")[0] + f"@127.0.0.1:{port}"
    try:
        yield parts._replace(netloc=place, query="sslmode=disable").geturl()
    finally:
        server.close()
        await asyncio.gather(*filter(None, serving))  # each ends with its client


async def _startup(reader: asyncio.StreamReader, drop_settings: bool) -> bytes:
    """The client's first message, which names user, database and settings; TLS is declined where it is asked for."""
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    body = await reader.readexactly(length - 4)
    version, fields = body[:4], body[4:].rstrip(b"\0").split(b"\0")
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    kept = [pair for pair in pairs if not drop_settings or pair[0] in _KEPT]
    body = version + b"".join(name + b"\0" + value + b"\0" for name, value in kept) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


async def _answers(there: asyncio.StreamReader, writer: asyncio.StreamWriter, own_pids: bool) -> None:
    """The server's messages up to the one with its pid, one by one; what follows as it comes."""
    kind = b""
    while kind != _KEY_DATA:
        kind = await there.readexactly(1)
        (length,) = struct.unpack("!i", await there.readexactly(4))
        body = await there.readexactly(length - 4)
        if kind == _KEY_DATA and own_pids:
            (pid,) = struct.unpack("!i", body[:4])
            body = struct.pack("!i", pid + 1) + body[4:]
        writer.write(kind + struct.pack("!i", length) + body)
        await writer.drain()
    await _pump(there, writer)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
