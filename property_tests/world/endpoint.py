"""The tenants' endpoints: one ledger of every call that was sent, and a transport that the world answers by hand."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from tocsin.common.store.rows import Outcome
from tocsin.executor.transport.port import Failure, Gate, OutgoingRequest, Response


class Answer(StrEnum):
    """How a call ends."""

    OK = "200"
    ERROR = "500"
    GONE = "410"
    TIMEOUT = "timeout"
    RESET = "reset"


@dataclass(eq=False)
class Call:
    """One request as the endpoint saw it. `fence` tells the attempts of a run apart."""

    run_id: UUID
    fence: int
    url: str
    process: str
    lease_id: UUID
    at: float
    database_at: datetime
    answer: Answer | None = None
    future: "asyncio.Future[Answer]" = field(repr=False, kw_only=True)


class Endpoint:
    def __init__(self) -> None:
        self.calls: list[Call] = []

    def open_calls(self) -> list[Call]:
        return [call for call in self.calls if call.answer is None]


class WorldTransport:
    """A process's `Transport`. `asked` is told of each call that is to be made, and `start` in the step in which its
    first byte leaves, where it makes its entry in the ledger; while `connecting`, connections open only when `connect`
    is called. `ended`: the call whose answer was handed over last."""

    def __init__(
        self,
        asked: Callable[[OutgoingRequest], None],
        start: Callable[[OutgoingRequest], Call],
        monotonic: Callable[[], float],
    ) -> None:
        self._asked = asked
        self._start = start
        self._monotonic = monotonic
        self.connecting = False
        self._open = asyncio.Event()
        self.in_flight: list[Call] = []
        self.ended: Call | None = None

    def connect(self) -> None:
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        self._asked(request)
        if self.connecting:
            await self._open.wait()
        await gate.ready()
        gate.check()
        started = self._monotonic()
        call = self._start(request)
        self.in_flight.append(call)
        try:
            return _result(await call.future, started)
        finally:
            self.in_flight.remove(call)
            self.ended = call

    async def close(self) -> None:
        """Nothing is kept open between calls."""


def _result(answer: Answer, started: float) -> Response | Failure:
    if answer is Answer.TIMEOUT:
        return Failure(Outcome.TIMEOUT, "no answer in time", started)
    if answer is Answer.RESET:
        return Failure(Outcome.CONNECTION_LOST, "connection reset", started)
    return Response(int(answer), (), b"", truncated=False, started=started)
