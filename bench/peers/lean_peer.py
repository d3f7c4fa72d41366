"""No peer: the product's lean transport in a loop, with nothing kept and no database: the product's own limit."""

import asyncio
import os
import random

from bench.caller import OpenGate
from bench.peers import adapter
from bench.peers.bare_peer import at_their_instants, work
from tocsin.common.clock import SystemClock
from tocsin.common.target import Target, parse_target
from tocsin.executor.egress import EgressGuard, EgressPolicy
from tocsin.executor.resolver import AiodnsLookup, CachingResolver
from tocsin.executor.transport.lean import LeanTransport
from tocsin.executor.transport.port import OutgoingRequest, Response


async def enqueue(jobs: adapter.Jobs) -> None:
    clock = SystemClock()
    guard = EgressGuard(EgressPolicy.parse("127.0.0.1/32"), CachingResolver(AiodnsLookup(()), clock))
    transport = LeanTransport(guard, clock, random.Random(1))
    target: Target = parse_target(os.environ["PEER_URL"])
    gate, room = OpenGate(), asyncio.Semaphore(adapter.CONNECTIONS)

    async def call(number: int, due: float) -> int:
        fields = (*adapter.headers(number, due).items(),)
        request = OutgoingRequest(target, "POST", fields, adapter.body(number), adapter.SECONDS)
        async with room:
            answer = await transport.call(request, gate)
        if not isinstance(answer, Response):
            raise RuntimeError(answer.error)
        return answer.status

    await at_their_instants(jobs, call)
    await transport.close()


if __name__ == "__main__":
    adapter.main(work=work, enqueue=enqueue)
