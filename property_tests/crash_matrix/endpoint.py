"""A tenant's endpoint in the harness's own loop: answers 200 when its path says, and remembers every call."""

import asyncio
from uuid import UUID

from property_tests.crash_matrix.ledger import Call
from tocsin.common.clock import Clock

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_END = b"\r\n\r\n"


class Endpoint:
    """`calls`: every call, in the order in which they came. A path like `/300ms/x` is answered after 0.3 s."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.calls: list[Call] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    def url(self, milliseconds: int, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{milliseconds}ms/{name}"


class _Connection(asyncio.Protocol):
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self._open: list[Call] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for call in self._open:
            call.ended = self._endpoint.clock.now().timestamp()

    def data_received(self, data: bytes) -> None:
        rest = self._rest + data
        while (end := rest.find(_END)) >= 0:
            line, *fields = rest[:end].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
            size = int(headers.get("content-length", "0"))
            if len(rest) < end + len(_END) + size:
                break
            rest = rest[end + len(_END) + size :]
            self._take(line, headers)
        self._rest = rest

    def _take(self, line: str, headers: dict[str, str]) -> None:
        call = Call(
            at=self._endpoint.clock.now().timestamp(),
            run_id=UUID(headers["webhook-id"]),
            task_id=UUID(headers["tocsin-task"]),
            fence=int(headers["tocsin-fence"]),
        )
        self._endpoint.calls.append(call)
        self._open.append(call)
        milliseconds = int(line.split(" ")[1].lstrip("/").partition("ms/")[0])
        asyncio.get_running_loop().call_later(milliseconds / 1000, self._answer, call)

    def _answer(self, call: Call) -> None:
        if self._transport is None:  # whoever called has gone
            return
        self._open.remove(call)
        call.ended = self._endpoint.clock.now().timestamp()
        self._transport.write(_ANSWER)
