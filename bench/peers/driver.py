"""Driving one peer through one load: its adapter's commands as processes, its calls as the endpoint saw them."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg

from bench.endpoint import ROOT, Endpoint
from bench.frame import Screen
from bench.ledger import Arrival
from bench.peers.adapter import WARM_SECONDS, Jobs, job_id
from bench.peers.catalogue import Peer
from bench.peers.verdict import Outcome, judged
from bench.runtimes import free_port

READY_SECONDS = 30.0
LEAD_SECONDS = 3.0
"""From the last job put in to the first due instant: workers start in it."""

WARM_MARGIN_SECONDS = 0.2
"""Before the measured jobs' instant the warm-up is looked at for the last time."""

SETTLE_SECONDS = 1.0
"""After the last job's call: a second call of a job, and results that are still being written, come in it."""


class AdapterError(Exception):
    """An adapter's command failed, or a worker did not get ready; says which, and the last line of its log."""


class LateError(Exception):
    """The jobs' instant came before all was ready."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A peer's adapter: `command` starts it, `environment` is all it gets, `folder` takes its logs."""

    command: Sequence[str | Path]
    environment: Mapping[str, str]
    folder: Path

    async def start(self, *arguments: str, log: str) -> "Command":
        path = self.folder / f"{log}.log"
        with path.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                *arguments,
                cwd=ROOT,
                env=dict(self.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        return Command(arguments[0], process, path)

    async def run(self, *arguments: str, seconds: float) -> str:
        """What a command prints. Raises AdapterError."""
        command = await self.start(*arguments, log=arguments[0])
        try:
            async with asyncio.timeout(seconds):
                return await command.finished()
        except TimeoutError:
            raise AdapterError(f"{arguments[0]} did not end within {seconds:.0f} s") from None
        finally:
            await command.stop()


@dataclass(frozen=True, slots=True)
class Command:
    """A command that was started, in a session of its own."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    async def ready(self) -> None:
        """Waits for the line `ready`. Raises AdapterError."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(READY_SECONDS):
                while line := await self.process.stdout.readline():
                    if line.strip() == b"ready":
                        return
        except TimeoutError:
            raise AdapterError(f"{self.name} was not ready within {READY_SECONDS:.0f} s") from None
        raise AdapterError(await self.epitaph())

    async def finished(self) -> str:
        """Waits for its end; what it printed. Raises AdapterError where it failed."""
        printed, _ = await self.process.communicate()
        if self.process.returncode != 0:
            raise AdapterError(await self.epitaph())
        return printed.decode().strip()

    async def epitaph(self) -> str:
        """How it ended, for a person."""
        code = await self.process.wait()
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"{self.name} ended with {code}" + (f": {lines[-1][:200]}" if lines else "")

    async def stop(self) -> None:
        """Ends it and all that it has started, at once: what is left of a peer once it is judged matters to nobody."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One load for one peer. `rate` 0: all due at one instant. `limit`: seconds after the last due instant. `warm`
    jobs go before it, by the same workers, and are not judged."""

    peer: Peer
    processes: int
    count: int
    rate: int
    limit: float
    warm: int = 0

    @property
    def text(self) -> str:
        load = f"{self.rate:,}/s, {self.count:,} jobs" if self.rate else f"{self.count:,} jobs at one instant"
        return f"{self.peer.name}, {self.processes} worker{'s' if self.processes > 1 else ''}: {load}"


async def attempted(attempt: Attempt, adapter: Adapter, endpoint: Endpoint, screen: Screen, lead: float) -> Outcome:
    """Runs one attempt and judges it; `lead` is from now to the first due instant.

    A worker that ends and a load that does not are said in the outcome.

    Raises:
        AdapterError: a command failed before there was anything to measure.
        LateError: the first due instant came before workers were ready and jobs were in.
    """
    first = time.time() + lead
    jobs = Jobs(attempt.count, attempt.rate, first + WARM_SECONDS if attempt.warm else first, attempt.warm)
    due = {job_id(number): jobs.due_of(number) for number in range(jobs.count)}
    enqueue = ("enqueue", str(jobs.count), str(jobs.rate), repr(jobs.due), str(jobs.warm))
    workers: list[Command] = []
    async with contextlib.AsyncExitStack() as stack:
        await endpoint.take()
        if attempt.peer.defers:
            await adapter.run(*enqueue, seconds=lead + READY_SECONDS)
        for number in range(attempt.processes):
            workers.append(await adapter.start("work", log=f"work-{number}"))
            stack.push_async_callback(workers[-1].stop)
        for worker in workers:
            await worker.ready()
        if not attempt.peer.defers:
            putting = await adapter.start(*enqueue, log="enqueue")
            stack.push_async_callback(putting.stop)
            await putting.ready()
        if time.time() > jobs.begins:
            raise LateError(f"not ready at the first instant, {lead:.0f} s after the start")
        before, cold = await _warmed(jobs, endpoint, attempt.text, screen)
        ends = due[job_id(attempt.count - 1)] + attempt.limit
        arrivals, fault = await _until_called(due, before, endpoint, workers, ends, attempt.text, screen)
        kept = await _kept(adapter, jobs.warm)
    return judged(due, arrivals, processes=attempt.processes, kept=kept, cold=cold, fault=fault)


async def _warmed(jobs: Jobs, endpoint: Endpoint, text: str, screen: Screen) -> tuple[list[Arrival], int]:
    """Waits for the warm-up's calls up to the measured jobs' instant; all calls so far, and how many of its jobs had
    none."""
    if not jobs.warm:
        return [], 0

    async def over() -> bool:
        return await endpoint.count() >= jobs.warm

    await screen.wait(f"{text}: warm-up", max(0.0, jobs.due - WARM_MARGIN_SECONDS - time.time()), over)
    arrivals = await endpoint.take()
    called = {arrival.task_id for arrival in arrivals}
    return arrivals, sum(job_id(jobs.count + number) not in called for number in range(jobs.warm))


async def _until_called(
    due: Mapping[UUID, float],
    before: Sequence[Arrival],
    endpoint: Endpoint,
    workers: Sequence[Command],
    ends: float,
    text: str,
    screen: Screen,
) -> tuple[list[Arrival], str | None]:
    """The calls, `before` among them, up to a moment after the last job's first one; and why there are not all of them,
    if so."""
    arrivals = list(before)
    waiting = set(due).difference(arrival.task_id for arrival in before)
    dead: list[Command] = []

    async def over() -> bool:
        if await endpoint.count() >= len(waiting):  # to read its log is dear for an endpoint at work
            some = await endpoint.take()
            arrivals.extend(some)
            waiting.difference_update(arrival.task_id for arrival in some)
        dead.extend(worker for worker in workers if worker.process.returncode is not None)
        return not waiting or bool(dead)

    finished = await screen.wait(text, max(0.0, ends - time.time()), over)
    await asyncio.sleep(SETTLE_SECONDS)
    arrivals.extend(await endpoint.take())
    if dead:
        return arrivals, await dead[0].epitaph()
    return arrivals, None if finished else "cut: it did not finish in its time"


async def _kept(adapter: Adapter, warm: int) -> int | None:
    """How many results it has kept beside those of its `warm` jobs."""
    try:
        said = await adapter.run("results", seconds=READY_SECONDS)
    except AdapterError:
        return 0
    return None if said == "none" else max(0, int(said) - warm)


@asynccontextmanager
async def redis_running(server: Path, folder: Path) -> AsyncIterator[str]:
    """A Redis with the settings that it is shipped with, its files in `folder`, which is there; gives its URL.

    Not that of `tocsin up`, which keeps nothing on disk and forgets when full: a queue would lose jobs in it.

    Raises:
        AdapterError: it did not come up.
    """
    port = free_port()
    with (folder / "redis.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(server, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder), stdout=log, stderr=log
        )
    try:
        await _listening(port, process)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _listening(port: int, process: asyncio.subprocess.Process) -> None:
    for _ in range(int(READY_SECONDS / 0.05)):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        if process.returncode is not None:
            break
        await asyncio.sleep(0.05)
    raise AdapterError("redis-server did not come up")


@asynccontextmanager
async def database(dsn: str, name: str) -> AsyncIterator[str]:
    """A new database of that server, dropped afterwards; gives its DSN."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f'create database "{name}"')
        try:
            yield with_database(dsn, name)
        finally:
            await connection.execute(f'drop database "{name}" with (force)')
    finally:
        await connection.close()


def with_database(dsn: str, name: str) -> str:
    """The same server and user, another database."""
    return urlsplit(dsn)._replace(path=f"/{name}").geturl()
