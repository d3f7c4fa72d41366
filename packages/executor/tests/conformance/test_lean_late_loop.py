"""A loop that is held up: what has come by then counts, whatever the deadline says."""

import random
import threading

from endpoints import OK, Line, Names, OpenGate, Seen, answering, outgoing
from tocsin.common.clock import SystemClock
from tocsin.executor.egress import EgressGuard, EgressPolicy
from tocsin.executor.transport.lean import LeanTransport
from tocsin.executor.transport.port import Response


async def test_an_answer_that_came_in_time_counts_though_the_deadline_has_passed_when_it_is_read() -> None:
    async def answer(line: Line, _seen: Seen) -> None:
        line.writer.write(OK)
        threading.Event().wait(0.4)  # the loop stands still

    lean = LeanTransport(EgressGuard(EgressPolicy.parse("127.0.0.0/8"), Names()), SystemClock(), random.Random(7))
    async with answering(answer) as endpoint:
        result = await lean.call(outgoing(endpoint.url(), deadline=0.2), OpenGate())
        assert isinstance(result, Response)
        assert len(lean._pool._idle) == 1
        await lean.close()
