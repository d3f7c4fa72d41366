"""APScheduler 3: one scheduler in one process, its jobs in PostgreSQL; it keeps no results.

Configured by its user guide: AsyncIOScheduler for coroutines, SQLAlchemyJobStore for jobs that outlive the process,
`misfire_grace_time=None` so that no late job is dropped. Its FAQ: a job store cannot be shared by processes, so there
is one worker, and jobs are put in by a paused scheduler before it starts. The loop is asyncio's own or uvloop's: it
takes the running one.
"""

from datetime import UTC, datetime

import uvloop
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from bench.peers import adapter

caller = adapter.Caller()


async def call(number: int, due: float) -> int:
    return await caller.call(number, due)


def scheduler() -> AsyncIOScheduler:
    url = adapter.database().replace("postgresql://", "postgresql+psycopg://", 1)
    return AsyncIOScheduler(jobstores={"default": SQLAlchemyJobStore(url=url)}, timezone=UTC)


async def work() -> None:
    working = scheduler()
    working.start()
    adapter.ready()
    await adapter.forever()


async def enqueue(jobs: adapter.Jobs) -> None:
    paused = scheduler()
    paused.start(paused=True)
    for number, due in jobs:
        paused.add_job(
            "bench.peers.apscheduler_peer:call",
            "date",
            run_date=datetime.fromtimestamp(due, UTC),
            args=(number, due),
            misfire_grace_time=None,
        )
    paused.shutdown()


if __name__ == "__main__":
    adapter.main(work=work, enqueue=enqueue, run=uvloop.run)
