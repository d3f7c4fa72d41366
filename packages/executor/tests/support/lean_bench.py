"""The lean transport's parts on transports that the test plays the other end of."""

import asyncio
import os
import ssl
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

from tocsin.common.clock import ManualClock
from tocsin.executor.transport.lean_pool import Opening, PeerKey, Pool
from tocsin.executor.transport.lean_protocol import Connection
from tocsin.executor.transport.port import Failure, Response

Answer = asyncio.Future[Response | Failure]


async def turns(count: int = 10) -> None:
    """Gives the event loop so many turns: whatever can happen without time has happened."""
    for _ in range(count):
        await asyncio.sleep(0)


_READ_END, _ = os.pipe()


class _Quiet:
    """A socket, as far as it is looked at, that nothing arrives on."""

    def fileno(self) -> int:
        return _READ_END


class FakeTransport(asyncio.Transport):
    """`written` is what went out, `unsent` how much of it is still in the buffer."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.written = b""
        self.unsent = 0
        self.closed = False
        connection.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _Quiet()

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.end(None)

    def end(self, error: Exception | None) -> None:
        """The connection's end, which its protocol hears in the next turn."""
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, error)


class NoKeeper:
    """Holds what is released, and notes what is lost."""

    def __init__(self) -> None:
        self.released: list[Connection] = []
        self.lost_ones: list[Connection] = []

    def release(self, connection: Connection) -> None:
        connection.reused = True
        self.released.append(connection)

    def lost(self, connection: Connection) -> None:
        self.lost_ones.append(connection)


class Exchange:
    """One connection, by itself."""

    def __init__(self) -> None:
        self.keeper = NoKeeper()
        self.connection = Connection(asyncio.get_running_loop(), self.keeper, None)
        self.transport = FakeTransport(self.connection)

    def send(self, method: str = "POST") -> Answer:
        return self.connection.send(b"request", method, 1.0)

    @property
    def kept(self) -> bool:
        return bool(self.keeper.released) and not self.transport.closed


class ScriptedPool(Pool):
    """A pool whose openings wait until the test lets them succeed or fail."""

    def __init__(self, clock: ManualClock, open_limit: int = 1_000) -> None:
        super().__init__(clock, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), open_limit)
        self.begun: OrderedDict[Opening, asyncio.Future[None]] = OrderedDict()
        self.made: list[FakeTransport] = []

    async def _open(self, opening: Opening) -> None:
        permit = self.begun[opening] = asyncio.get_running_loop().create_future()
        try:
            await permit
        except OSError as error:
            self._failed(opening, error)
        else:
            connection = Connection(asyncio.get_running_loop(), self, opening.place)
            self.made.append(FakeTransport(connection))
            self._opened(opening, connection)
        finally:
            self.begun.pop(opening, None)

    async def let(self, error: OSError | None = None) -> None:
        """The oldest opening under way succeeds, or fails."""
        permit = next(iter(self.begun.values()))
        if error is None:
            permit.set_result(None)
        else:
            permit.set_exception(error)
        await turns()


def manual_clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 10, tzinfo=UTC))


def peer(number: int = 0, scheme: str = "http") -> PeerKey:
    return PeerKey("127.0.0.1", 80, f"host-{number}.example", scheme)
