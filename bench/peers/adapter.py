"""What an adapter of a peer and the measuring side agree on.

An adapter is a program with four commands, run as `python -m bench.peers.<name>_peer COMMAND`:

    prepare                 makes the peer's tables in an empty database; nothing to do where it has none
    work                    one worker process; prints `ready` once it takes jobs, and works until SIGTERM
    enqueue COUNT RATE DUE WARM
                            puts COUNT jobs and the WARM-up's in, see `Jobs` for when each is due; where the peer cannot
                            defer, prints `ready` and puts each in at its due instant
    results                 prints how many jobs the peer has kept as having succeeded, `none` where it keeps none

The environment gives PEER_DATABASE, PEER_REDIS and PEER_URL. A job is its number and its due instant; to do it is to
POST to PEER_URL with the headers by which the endpoint's log knows it. This module stands in every peer's own
environment: nothing of the product is imported here.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import aiohttp

TICKS = 100
"""Due instants in a second of a steady load; jobs of one tick are due together."""

WARM_SECONDS = 2.0
"""From the warm-up's instant to the first job's."""

CONNECTIONS = 500
"""Open to the endpoint at most, by one process."""

SECONDS = 30.0
"""That one call may take."""

Runner = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(frozen=True, slots=True)
class Jobs:
    """`count` jobs, numbered from 0; `rate` a second are due from `due` (Unix seconds) on, or all at it where `rate`
    is 0. Before them come `warm` jobs, numbered from `count`, all due at one instant: by them the workers that are then
    measured make their connections and statements."""

    count: int
    rate: int
    due: float
    warm: int = 0

    @property
    def begins(self) -> float:
        """The first due instant, the warm-up's where there is one."""
        return self.due - WARM_SECONDS if self.warm else self.due

    def due_of(self, number: int) -> float:
        return self.due + (number * TICKS // self.rate) / TICKS if self.rate else self.due

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """(number, due instant), by due instant."""
        for number in range(self.count, self.count + self.warm):
            yield number, self.begins
        for number in range(self.count):
            yield number, self.due_of(number)


def job_id(number: int) -> UUID:
    """A job's id on the wire."""
    return UUID(int=number + 1)


def headers(number: int, due: float) -> dict[str, str]:
    """By which the endpoint's log knows a job: the names that Tocsin sends."""
    name = str(job_id(number))
    return {
        "Idempotency-Key": name,
        "Tocsin-Task": name,
        "Tocsin-Scheduled-For": datetime.fromtimestamp(due, UTC).isoformat(),
    }


def body(number: int) -> bytes:
    return b'{"job":%d}' % number


class Caller:
    """The client with which asyncio peers do a job: one session a process, its connections kept."""

    def __init__(self) -> None:
        self._url = os.environ["PEER_URL"]
        self._session: aiohttp.ClientSession | None = None

    async def call(self, number: int, due: float) -> int:
        """Does a job; the answer's status. Raises aiohttp.ClientError or TimeoutError."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS), timeout=aiohttp.ClientTimeout(total=SECONDS)
            )
        async with self._session.post(self._url, data=body(number), headers=headers(number, due)) as answer:
            await answer.read()
            answer.raise_for_status()
            return answer.status

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def database() -> str:
    return os.environ["PEER_DATABASE"]


def redis() -> str:
    return os.environ["PEER_REDIS"]


def ready() -> None:
    """Says that this process takes jobs, or waits for their instant, from now on."""
    print("ready", flush=True)


async def forever() -> None:
    await asyncio.Event().wait()


def main(
    *,
    work: Callable[[], Awaitable[None]] | Callable[[], None],
    enqueue: Callable[[Jobs], Awaitable[None]] | Callable[[Jobs], None],
    results: Callable[[], Awaitable[int]] | Callable[[], int] | None = None,
    prepare: Callable[[], Awaitable[None]] | Callable[[], None] = lambda: None,
    run: Runner = asyncio.run,
) -> None:
    """Runs the command that stands on the command line; coroutines by `run`."""
    command, *rest = sys.argv[1:]
    if command == "prepare":
        done = prepare()
    elif command == "work":
        done = work()
    elif command == "enqueue":
        count, rate, due, warm = rest
        done = enqueue(Jobs(int(count), int(rate), float(due), int(warm)))
    else:
        done = _printed(None if results is None else results())
    if done is not None:
        run(_finished(done))


async def _finished(work: Awaitable[None]) -> None:
    await work


def _printed(kept: Awaitable[int] | int | None) -> Awaitable[None] | None:
    if kept is None or isinstance(kept, int):
        print("none" if kept is None else kept)
        return None

    async def answer() -> None:
        print(await kept)

    return answer()
