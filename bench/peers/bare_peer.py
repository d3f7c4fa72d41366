"""No peer: the peers' client in a loop, with nothing kept and no database: as far as calling goes on this machine."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import groupby

from bench.peers import adapter


async def work() -> None:
    adapter.ready()
    await adapter.forever()


async def at_their_instants(jobs: adapter.Jobs, call: Callable[[int, float], Awaitable[int]]) -> None:
    """Does each job at its due instant, as many at once as there are."""
    adapter.ready()

    async def done(number: int, due: float) -> None:
        await call(number, due)

    async with asyncio.TaskGroup() as calls:
        for due, together in groupby(jobs, key=lambda job: job[1]):
            await asyncio.sleep(max(0.0, due - time.time()))
            for number, _ in together:
                calls.create_task(done(number, due))


async def enqueue(jobs: adapter.Jobs) -> None:
    caller = adapter.Caller()
    await at_their_instants(jobs, caller.call)
    await caller.close()


if __name__ == "__main__":
    adapter.main(work=work, enqueue=enqueue)
