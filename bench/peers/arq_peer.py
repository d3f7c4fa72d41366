"""arq: a sorted set of job ids in Redis by due instant, results kept in Redis for an hour (its default).

Configured by the documentation of arq.worker.Worker (arq-docs.helpmanual.io): `max_jobs` raised from 10, `poll_delay`
lowered from 0.5 s to 0.05 s; a job is deferred by `_defer_until`. The loop is uvloop.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

import uvloop
from arq import Worker, create_pool
from arq.connections import RedisSettings

from bench.peers import adapter

MAX_JOBS = 1000
POLL_SECONDS = 0.05
ENQUEUED_AT_ONCE = 100


async def call(context: dict[str, Any], number: int, due: float) -> int:
    return await context["caller"].call(number, due)


async def started(context: dict[str, Any]) -> None:
    context["caller"] = adapter.Caller()
    adapter.ready()


def settings() -> RedisSettings:
    return RedisSettings.from_dsn(adapter.redis())


async def work() -> None:
    await Worker(
        [call],
        redis_settings=settings(),
        on_startup=started,
        max_jobs=MAX_JOBS,
        poll_delay=POLL_SECONDS,
        handle_signals=False,
    ).async_run()


async def enqueue(jobs: adapter.Jobs) -> None:
    pool = await create_pool(settings())
    every = list(jobs)
    for start in range(0, len(every), ENQUEUED_AT_ONCE):
        await asyncio.gather(
            *(
                pool.enqueue_job("call", number, due, _defer_until=datetime.fromtimestamp(due, UTC))
                for number, due in every[start : start + ENQUEUED_AT_ONCE]
            )
        )


async def results() -> int:
    pool = await create_pool(settings())
    return len(await pool.keys("arq:result:*"))


if __name__ == "__main__":
    adapter.main(work=work, enqueue=enqueue, results=results, run=uvloop.run)
