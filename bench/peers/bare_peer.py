"""No peer: the same client in a loop, with nothing kept, as far as calling goes on this machine."""

import asyncio
import time
from itertools import groupby

from bench.peers import adapter


async def work() -> None:
    adapter.ready()
    await adapter.forever()


async def enqueue(jobs: adapter.Jobs) -> None:
    caller = adapter.Caller()
    adapter.ready()
    async with asyncio.TaskGroup() as calls:
        for due, together in groupby(jobs, key=lambda job: job[1]):
            await asyncio.sleep(max(0.0, due - time.time()))
            for number, _ in together:
                calls.create_task(caller.call(number, due))


if __name__ == "__main__":
    adapter.main(work=work, enqueue=enqueue)
