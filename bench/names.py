"""The rig's name server: every tenant has a host name of its own, and all of them lead to loopback.

A process of its own, reached through the public setting `TOCSIN_DNS_SERVERS`. It answers over UDP (RFC 1035) what
dnslib makes of a question, once for each question: a burst of names is not to wait for it.
"""

import asyncio
import signal
import socket
import sys
from functools import lru_cache
from types import TracebackType
from typing import Self, cast

from dnslib import QTYPE, RCODE, RR, A, DNSError, DNSRecord

from bench.endpoint import ROOT, line_of

ZONE = "tenants.test"
ADDRESS = "127.0.0.1"
TTL_SECONDS = 60
_BUFFER_BYTES = 4 * 2**20
"""Room for the questions of a burst; the system may grant less."""


def host_of(tenant: int) -> str:
    """The host name of a tenant by its number."""
    return f"t{tenant}.{ZONE}"


def answer(question: bytes) -> bytes | None:
    """The answer to one packet: the address to an A of the zone, nothing to its other types, NXDOMAIN to other names.

    None where the packet cannot be read.
    """
    made = _answer(question[2:])
    return None if made is None else question[:2] + made


@lru_cache(maxsize=100_000)
def _answer(rest: bytes) -> bytes | None:
    """What comes after the question's id, which is all that two equal questions differ by."""
    try:
        request = DNSRecord.parse(b"\0\0" + rest)
    except DNSError:
        return None
    reply = request.reply()
    name = str(request.q.qname).rstrip(".").lower()
    if not name.endswith(f".{ZONE}"):
        reply.header.rcode = RCODE.NXDOMAIN
    elif request.q.qtype == QTYPE.A:
        reply.add_answer(RR(request.q.qname, QTYPE.A, ttl=TTL_SECONDS, rdata=A(ADDRESS)))
    packet = bytes(reply.pack())
    return packet[2:]


class _Protocol(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # by what it can do: its class says nothing

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        if (made := answer(data)) is not None:
            self._transport.sendto(made, address)


class NameServer:
    """The name server's process, as the measuring side sees it."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""
        """`host:port`, as the setting takes it."""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.names",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.address = f"{ADDRESS}:{int(await line_of(self._process))}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await self._process.wait()


async def serve() -> None:
    """Serves until its standard input ends."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is for the measuring side
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        listening.setblocking(False)
        listening.bind((ADDRESS, 0))
        transport, _ = await loop.create_datagram_endpoint(_Protocol, sock=listening)
        print(listening.getsockname()[1], flush=True)
        ended = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(ended), sys.stdin)
        await ended.read()
        transport.close()


if __name__ == "__main__":
    asyncio.run(serve())
