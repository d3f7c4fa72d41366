"""taskiq: a Redis stream with acknowledgements, results in Redis.

Configured by the readme of taskiq-redis (RedisStreamBroker with RedisAsyncResultBackend) and taskiq's
docs/guide/cli.md: `--max-async-tasks` raised from 100, `--max-prefetch` for a high message rate; uvloop, which its
worker takes when it is there. Its scheduler looks once a second and reloads all that is planned for the minute once a
minute, so a job cannot be deferred to its instant here: it is put into the stream at that instant instead.
"""

import asyncio
import os
import sys
import time
from itertools import groupby
from pathlib import Path

import uvloop
from redis.asyncio import Redis
from taskiq import TaskiqEvents, TaskiqState
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from bench.peers import adapter

MAX_TASKS = 500
PREFETCH = 500
POOL = 100
ENQUEUED_AT_ONCE = 100
RESULTS = "result"

kept = RedisAsyncResultBackend(
    adapter.redis(), prefix_str=RESULTS, result_ex_time=3600, max_connection_pool_size=POOL, timeout=None
)
broker = RedisStreamBroker(adapter.redis(), max_connection_pool_size=POOL, timeout=None).with_result_backend(kept)
caller = adapter.Caller()


@broker.task(task_name="call")
async def call(number: int, due: float) -> int:
    return await caller.call(number, due)


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def started(state: TaskiqState) -> None:
    adapter.ready()


def work() -> None:
    options = ["--workers", "1", "--max-async-tasks", str(MAX_TASKS), "--max-prefetch", str(PREFETCH)]
    taskiq = str(Path(sys.executable).with_name("taskiq"))
    os.execv(taskiq, [taskiq, "worker", "bench.peers.taskiq_peer:broker", *options, "--log-level", "WARNING"])


async def enqueue(jobs: adapter.Jobs) -> None:
    await broker.startup()
    adapter.ready()
    for due, together in groupby(jobs, key=lambda job: job[1]):
        await asyncio.sleep(max(0.0, due - time.time()))
        numbers = [number for number, _ in together]
        for start in range(0, len(numbers), ENQUEUED_AT_ONCE):
            await asyncio.gather(*(call.kiq(number, due) for number in numbers[start : start + ENQUEUED_AT_ONCE]))
    await broker.shutdown()


async def results() -> int:
    async with Redis.from_url(adapter.redis()) as connection:
        return len(await connection.keys(f"{RESULTS}:*"))


if __name__ == "__main__":
    adapter.main(work=work, enqueue=enqueue, results=results, run=uvloop.run)
