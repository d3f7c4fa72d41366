"""The demo's endpoint: a process of its own that answers as its path says, and reports each call's first byte.

Paths: `/ok`; `/slow?seconds=2`; `/flaky` (503 at each first attempt); `/broken` (always 500); `/gone` (410);
`/busy` (429 with `Retry-After: 2` at each first attempt); `/hangup` (closes without an answer).
"""

import asyncio
import contextlib
import logging
import sys
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

from tocsin.cli.logs import configure_logging
from tocsin.cli.up.lifeline import stop_signals, tell_parent
from tocsin.common.clock import Clock, SystemClock

log = logging.getLogger("tocsin.demo.endpoint")

HOST = "127.0.0.1"
_MAX_HEAD = 64 * 1024
_REASONS = {200: "OK", 410: "Gone", 429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}


class Endpoint:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, for as many calls as come over it."""
        with contextlib.suppress(ConnectionError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while await self._one_call(reader, writer):
                pass
        writer.close()

    async def _one_call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first = await reader.read(1)
        arrived = self._clock.now()
        if not first:
            return False
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        _, path_and_query, version = head[0].split(" ")
        if not version.startswith("HTTP/1."):
            return False
        target = urlsplit(path_and_query)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        await reader.readexactly(int(headers.get("content-length", 0)))
        status = _status(target.path, int(headers.get("tocsin-attempt", 1)))
        self._report(target.path, headers, arrived, status)
        if status == 0:
            return False
        if target.path == "/slow":
            await asyncio.sleep(float(parse_qs(target.query).get("seconds", ["2"])[0]))
        body = f"{target.path} {status}\n"
        retry_after = "Retry-After: 2\r\n" if status == 429 else ""
        writer.write(
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Length: {len(body)}\r\n{retry_after}\r\n{body}".encode()
        )
        await writer.drain()
        return True

    def _report(self, path: str, headers: dict[str, str], arrived: datetime, status: int) -> None:
        run, slot = headers.get("idempotency-key", ""), headers.get("tocsin-scheduled-for", "")
        attempt = int(headers.get("tocsin-attempt", 1))
        log.info(
            "run=%s attempt=%d scheduled_for=%s arrived=%s path=%s status=%d",
            *(run, attempt, slot, arrived.isoformat(), path, status),
        )
        if run:
            tell_parent(
                "call",
                run=run,
                task=headers.get("tocsin-task", ""),
                attempt=attempt,
                slot=slot,
                arrived=arrived.isoformat(),
                status=status,
            )


def _status(path: str, attempt: int) -> int:
    """The answer's status; 0 for none at all."""
    match path:
        case "/flaky":
            return 503 if attempt == 1 else 200
        case "/busy":
            return 429 if attempt == 1 else 200
        case "/broken":
            return 500
        case "/gone":
            return 410
        case "/hangup":
            return 0
        case _:
            return 200


async def main(port: int) -> int:
    """Serves on `port`, or on a free one where that is taken or 0, and tells the parent which."""
    stop = asyncio.Event()
    with stop_signals(stop, parent=True):
        endpoint = Endpoint(SystemClock())
        try:
            server = await asyncio.start_server(endpoint.serve, HOST, port, limit=_MAX_HEAD)
        except OSError:
            server = await asyncio.start_server(endpoint.serve, HOST, 0, limit=_MAX_HEAD)
        tell_parent("ready", port=server.sockets[0].getsockname()[1])
        await stop.wait()
        server.close()
    return 0


if __name__ == "__main__":
    configure_logging()
    sys.exit(asyncio.run(main(int(sys.argv[1]))))
