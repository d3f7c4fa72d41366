"""Plays exchanges through a transport, one after the other, and holds it to what it must never do."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Sequence
from typing import Any

from answers import Ending, Exchange, Failed, Whole
from endpoints import Line, TransportFactory, calling, listening, outgoing, read_request, sockets
from tocsin.common.store.rows import Outcome
from tocsin.executor.transport.port import MAX_BODY_BYTES, Failure, Response

LONG = 5.0
SHORT = 0.02
"""Deadlines in seconds: of what ends by itself, and of what may not."""

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_AFTER_THE_REQUEST = {Outcome.TIMEOUT, Outcome.CONNECTION_LOST, Outcome.PROTOCOL_ERROR}


async def play(make: TransportFactory, exchanges: Sequence[Exchange]) -> None:
    """The exchanges in turn, and a plain one after each: what came before must not show in it.

    Raises:
        AssertionError: the transport broke a rule.
    """
    stage = _Stage(exchanges)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    before = await sockets()
    async with listening(stage.serve) as endpoint:
        async with calling(make, context=_NO_TLS) as caller:
            for number, exchange in enumerate(stage.exchanges):
                long = isinstance(exchange.expected, Whole) or exchange.ending in (Ending.FIN, Ending.RESET)
                request = outgoing(endpoint.url(f"/{number}"), exchange.method, b"", LONG if long else SHORT)
                result = await caller.call(request)
                _judge(exchange, result)
                if isinstance(result, Response):
                    await asyncio.wait_for(stage.written[number].wait(), LONG)
                    await endpoint.until(lambda: len(endpoint.open) <= 1, "at most one idle connection")
                else:
                    await endpoint.until_open(0)
                    stage.written[number].set()
                await sockets()  # long enough for what was written to arrive
                assert stage.seen[number] <= 1, f"request {number} was sent {stage.seen[number]} times"
        await endpoint.until_open(0)
    assert await sockets() == before, "a socket was left open"
    assert not complaints, complaints


_PLAIN = Exchange("POST", (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain",), Ending.KEEP, Whole(200, b"plain"))


class _Stage:
    """The endpoint: which answer each request gets is in its path."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self.exchanges = [each for exchange in exchanges for each in (exchange, _PLAIN)]
        self.written = [asyncio.Event() for _ in self.exchanges]
        self.seen: Counter[int] = Counter()

    async def serve(self, line: Line) -> None:
        while (request := await read_request(line.reader)) is not None:
            number = int(request.line.split(" ")[1][1:])
            self.seen[number] += 1
            try:
                if await self._answer(line, self.exchanges[number]):
                    return
            finally:
                self.written[number].set()

    async def _answer(self, line: Line, exchange: Exchange) -> bool:
        """Says whether that was the connection's end."""
        for piece in exchange.pieces:
            await line.write(piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # the caller reads it as a piece
        if exchange.ending is Ending.RESET:
            line.reset()
        return exchange.ending in (Ending.FIN, Ending.RESET)


def _judge(exchange: Exchange, result: Response | Failure) -> None:
    expected = exchange.expected
    if isinstance(result, Response):
        assert 200 <= result.status <= 999, result
        assert len(result.body) == MAX_BODY_BYTES if result.truncated else len(result.body) <= MAX_BODY_BYTES, result
        assert not isinstance(expected, Failed), (expected, result)
        if expected is not None:
            kept = Whole(expected.status, expected.body[:MAX_BODY_BYTES])
            assert Whole(result.status, result.body) == kept, (expected, result)
            assert result.truncated == (len(expected.body) > MAX_BODY_BYTES), result
    else:
        assert result.outcome in _AFTER_THE_REQUEST, result
        assert result.error, result
        assert result.error.isascii(), result
        assert result.error.isprintable(), result
        assert not (result.reused and any(exchange.pieces)), result  # something of an answer came
        assert not isinstance(expected, Whole), (expected, result)
        assert expected is None or result.outcome is expected.outcome, (expected, result)
