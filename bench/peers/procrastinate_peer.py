"""procrastinate: one job a fetch, its jobs table keeps what became of each.

Configured by the documentation of `App.run_worker_async` and by its docs/howto/basics/worker.md and batch_defer.md:
asynchronous tasks with a raised `concurrency` (1 by default), psycopg's pool with room for it, jobs put in by
`batch_defer_async`. A deferred job is found by polling (`fetch_job_polling_interval`, 5 s by default), every 0.05 s
here. The loop is uvloop.
"""

from datetime import UTC, datetime
from itertools import groupby

import psycopg
import uvloop
from procrastinate import App, PsycopgConnector

from bench.peers import adapter

CONCURRENCY = 200
POLLING_SECONDS = 0.05
POOL = 20

app = App(connector=PsycopgConnector(conninfo=adapter.database(), min_size=4, max_size=POOL))
caller = adapter.Caller()


@app.task(name="call")
async def call(number: int, due: float) -> int:
    return await caller.call(number, due)


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def work() -> None:
    async with app.open_async():
        adapter.ready()
        await app.run_worker_async(
            concurrency=CONCURRENCY, fetch_job_polling_interval=POLLING_SECONDS, install_signal_handlers=False
        )


async def enqueue(jobs: adapter.Jobs) -> None:
    async with app.open_async():
        for due, together in groupby(jobs, key=lambda job: job[1]):
            many = [{"number": number, "due": due} for number, _ in together]
            await call.configure(schedule_at=datetime.fromtimestamp(due, UTC)).batch_defer_async(*many)


def results() -> int:
    with psycopg.connect(adapter.database()) as connection:
        found = connection.execute("select count(*) from procrastinate_jobs where status = 'succeeded'").fetchone()
    assert found is not None
    return found[0]


if __name__ == "__main__":
    adapter.main(prepare=prepare, work=work, enqueue=enqueue, results=results, run=uvloop.run)
