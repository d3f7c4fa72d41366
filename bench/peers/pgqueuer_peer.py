"""pgqueuer: batches of jobs by FOR UPDATE SKIP LOCKED, its log table keeps what became of each.

Configured by its docs/guides/performance-tuning.md and docs/reference/drivers.md: asyncpg, one direct connection a
worker, a raised `batch_size` for short jobs, `pgq autovac`, durable tables (the default). The loop is uvloop, as in
its own tools/benchmark.py. It wakes for a deferred job by a probe of the next due instant, every 0.1 s at the fastest.
"""

import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers import adapter

BATCH = 100
ENQUEUED_AT_ONCE = 200  # `execute_after` counts from the statement's own now: a small batch keeps them close


async def queries() -> Queries:
    return Queries(AsyncpgDriver(await asyncpg.connect(adapter.database())))


async def prepare() -> None:
    made = await queries()
    await made.install()
    await made.optimize_autovacuum()


async def work() -> None:
    caller = adapter.Caller()
    manager = PgQueuer.from_asyncpg_connection(await asyncpg.connect(adapter.database()))

    @manager.entrypoint("call")
    async def call(job: Job) -> None:
        number, due = job.payload.decode().split()
        await caller.call(int(number), float(due))

    adapter.ready()
    await manager.run(batch_size=BATCH)


async def enqueue(jobs: adapter.Jobs) -> None:
    queue = await queries()
    every = list(jobs)
    for start in range(0, len(every), ENQUEUED_AT_ONCE):
        some = every[start : start + ENQUEUED_AT_ONCE]
        now = time.time()
        await queue.enqueue(
            ["call"] * len(some),
            [f"{number} {due}".encode() for number, due in some],
            [0] * len(some),
            [timedelta(seconds=max(0.0, due - now)) for _, due in some],
        )


async def results() -> int:
    connection = await asyncpg.connect(adapter.database())
    return await connection.fetchval("select count(*) from pgqueuer_log where status = 'successful'")


if __name__ == "__main__":
    adapter.main(prepare=prepare, work=work, enqueue=enqueue, results=results, run=uvloop.run)
