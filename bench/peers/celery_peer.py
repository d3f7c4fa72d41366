"""Celery on Redis: tasks with an `eta`, results in Redis.

Configured by its docs/userguide/concurrency/gevent.rst (`-P gevent -c 1000` for I/O) and docs/userguide/optimizing.rst
(a raised prefetch multiplier for short tasks). A worker holds tasks with an eta in memory until they are due. The
client is urllib3's pool, as gevent has no use for asyncio.
"""

import os
import sys
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import urllib3
from celery import Celery
from celery.signals import worker_ready
from redis import Redis

from bench.peers import adapter

GREENLETS = 500
PREFETCH = 10

app = Celery("peers", broker=adapter.redis(), backend=adapter.redis())
app.conf.update(
    worker_prefetch_multiplier=PREFETCH,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_pool_limit=GREENLETS,  # docs/userguide/optimizing.rst: as many as there are greenlets that use them
    broker_transport_options={"max_connections": 2 * GREENLETS},
    broker_connection_retry_on_startup=True,
    result_expires=3600,
)


@cache
def pool() -> urllib3.PoolManager:
    return urllib3.PoolManager(num_pools=1, maxsize=adapter.CONNECTIONS, block=True, retries=False)


@app.task(name="call")
def call(number: int, due: float) -> int:
    answer = pool().request(
        "POST",
        os.environ["PEER_URL"],
        body=adapter.body(number),
        headers=adapter.headers(number, due),
        timeout=adapter.SECONDS,
    )
    if answer.status != 200:
        raise RuntimeError(answer.status)
    return answer.status


@worker_ready.connect
def started(**_: object) -> None:
    adapter.ready()


def work() -> None:
    celery = str(Path(sys.executable).with_name("celery"))
    options = ["-P", "gevent", "-c", str(GREENLETS), "--loglevel", "WARNING", "-n", f"{os.getpid()}@localhost"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    os.execv(celery, [celery, "-A", "bench.peers.celery_peer", "worker", *options, *quiet])


def enqueue(jobs: adapter.Jobs) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for number, due in jobs:
            eta = datetime.fromtimestamp(max(due, time.time()), UTC)
            call.apply_async((number, due), eta=eta, producer=producer)


def results() -> int:
    with Redis.from_url(adapter.redis()) as connection:
        return len(connection.keys("celery-task-meta-*"))


if __name__ == "__main__":
    adapter.main(work=work, enqueue=enqueue, results=results)
