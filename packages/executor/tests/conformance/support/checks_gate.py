"""Checks of the gate: nothing is sent unless it was open in the very step of the first byte."""

import asyncio
import socket
import ssl
from contextlib import closing

import trustme

from endpoints import (
    OK,
    PATIENCE,
    Caller,
    ClosedGate,
    Line,
    Names,
    OpenGate,
    TransportFactory,
    always,
    answering,
    calling,
    listening,
    outgoing,
)
from tocsin.executor.transport.port import NotStartedError


async def _not_started(caller: Caller, url: str, gate: ClosedGate) -> None:
    try:
        result = await caller.call(outgoing(url, deadline=1.0), gate)
    except NotStartedError:
        return
    raise AssertionError(f"a closed gate let the call go: {result}")


async def _stopped(make: TransportFactory, gate: ClosedGate, *, tls: bool) -> None:
    received = bytearray()

    async def connected(line: Line) -> None:
        while data := await line.reader.read(65_536):
            received.extend(data)

    authority = trustme.CA()
    server, client = _contexts(authority) if tls else (None, None)
    async with listening(connected, server) as endpoint, calling(make, context=client) as caller:
        await _not_started(caller, endpoint.url(scheme="https" if tls else "http"), gate)
        await endpoint.until(lambda: endpoint.accepted == 1, "the connection was opened")
        await endpoint.until_open(0)
        assert not received


def _contexts(authority: trustme.CA) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


async def a_closed_gate_sends_no_byte(make: TransportFactory) -> None:
    for at, asked in (("ready", ["ready"]), ("check", ["ready", "check"])):
        for tls in (False, True):
            gate = ClosedGate(at)
            await _stopped(make, gate, tls=tls)
            assert gate.asked == asked


async def a_closed_gate_sends_no_byte_on_a_reused_connection(make: TransportFactory) -> None:
    async with answering(always(OK)) as endpoint, calling(make) as caller:
        for at in ("ready", "check"):
            await caller.answer(outgoing(endpoint.url()))
            before = len(endpoint.seen)
            await _not_started(caller, endpoint.url(), ClosedGate(at))
            await endpoint.until_open(0)
            assert len(endpoint.seen) == before


class _LateGate(OpenGate):
    """Open when the call begins, closed before its name is resolved."""

    shut = False

    def check(self) -> None:
        super().check()
        if self.shut:
            raise NotStartedError("the lease's trust window has passed")


async def the_gate_is_checked_after_name_and_connection(make: TransportFactory) -> None:
    names = Names(slow_example=[("127.0.0.1",)])
    names.gate = asyncio.Event()
    gate = _LateGate()
    async with answering(always(OK)) as endpoint, calling(make, names=names) as caller:
        call = asyncio.create_task(caller.call(outgoing(endpoint.url(host="slow.example")), gate))
        while not names.asked:
            await asyncio.sleep(0)
        gate.shut = True
        names.gate.set()
        result = (await asyncio.gather(call, return_exceptions=True))[0]
        assert isinstance(result, NotStartedError), result
        assert not endpoint.seen


class _SteppingGate(OpenGate):
    """Looks, one step after its check, whether the request is already at the endpoint."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__()
        self.listener = listener
        self.arrived: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        await super().ready()
        self.end, _ = await asyncio.get_running_loop().sock_accept(self.listener)

    def check(self) -> None:
        super().check()
        asyncio.get_running_loop().call_soon(self.look)

    def look(self) -> None:
        try:
            self.arrived.set_result(bool(self.end.recv(1, socket.MSG_PEEK)))
        except BlockingIOError:
            self.arrived.set_result(False)


async def the_first_byte_leaves_in_the_step_of_the_check(make: TransportFactory) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.setblocking(False)
        gate = _SteppingGate(listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with calling(make) as caller:
            call = asyncio.create_task(caller.call(outgoing(url, body=b"x" * 100), gate))
            try:
                assert await asyncio.wait_for(gate.arrived, PATIENCE), "the check was a step ahead of the write"
                assert gate.asked == ["ready", "check"]
            finally:
                gate.end.close()
                await asyncio.gather(call, return_exceptions=True)


async def started_is_noted_after_the_check(make: TransportFactory) -> None:
    async with answering(always(OK)) as endpoint, calling(make) as caller:
        gate = OpenGate()
        response = await caller.answer(outgoing(endpoint.url()), gate)
        assert response.started > 0
        assert gate.asked == ["ready", "check"]
