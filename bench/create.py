"""Create: tasks through the API, one a request, over 1, 8 and 32 connections; and by the store in one transaction."""

import asyncio
import os
import random
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count as count_from
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import aiohttp

from bench.alone import alone
from bench.frame import Measurement, Options, Screen
from bench.idle import new_database
from bench.ledger import percentile
from bench.profile import profiled
from bench.report import Environment, Figure, Report, at_least, exactly
from bench.runtimes import free_port
from bench.system import Connection, Processor, connected, environment_of, opened, prepare
from tocsin.cli.tenants import make_key, make_tenant
from tocsin.cli.up.child import Child
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids
from tocsin.common.models import CallSpec, CronSchedule, PlanSpec, TaskState
from tocsin.common.planting import Planter
from tocsin.common.store.ports import Store
from tocsin.common.store.rows import Task
from tocsin.common.time.schedule import next_slot

CONNECTIONS = (1, 8, 32)
SECONDS, SHORT_SECONDS = 10.0, 2.0
LEAST_SECONDS = 0.2
REPEATS, SHORT_REPEATS = 5, 3
WARM_UP = 50
KEPT = 0.8
"""Of the rate over 8 connections, what is to be left over 32: more clients at once must not bring the whole down."""

IN_ONE = 100
"""Tasks that the store puts in in one transaction."""

PROFILED_STEP = 1.0
"""Seconds of each step in a row that keep the API busy while it is profiled."""

_GRACE = 5.0
_ZONE = "Europe/Berlin"


@dataclass(frozen=True, slots=True)
class Step:
    """Tasks that were created over so many connections in so many seconds: how long each answer took, in seconds, and
    the processor seconds of each part."""

    connections: int
    seconds: float
    answers: Sequence[float]
    processor: Mapping[str, float]

    @property
    def rate(self) -> float:
        return len(self.answers) / self.seconds


def definition(number: int) -> dict[str, Any]:
    """A task as a tenant asks for it: a daily cron in a zone with daylight saving time."""
    return {
        "name": f"created {number}",
        "schedule": {"cron": cron(number), "zone": _ZONE},
        "request": {"url": "https://example.com/hook"},
    }


def cron(number: int) -> str:
    return f"{number % 60} {number // 60 % 24} * * *"


@dataclass(slots=True)
class Creator:
    """A tenant's client of the API."""

    session: aiohttp.ClientSession
    processor: Processor
    numbers: "count_from[int]"
    refused: int = 0
    created: int = 0

    async def step(self, connections: int, seconds: float) -> Step:
        """Creates as many tasks as are answered, each connection one after the other."""
        self.processor.since()
        began = time.perf_counter()
        answers = await asyncio.gather(*(self._connection(began + seconds) for _ in range(connections)))
        taken = time.perf_counter() - began
        return Step(connections, taken, sorted(one for each in answers for one in each), self.processor.since())

    async def busy(self, record: Callable[[], Awaitable[None]]) -> None:
        """Creates tasks over all connections for as long as it takes to record the API."""
        recording = asyncio.ensure_future(record())
        while not recording.done():
            await self.step(CONNECTIONS[-1], PROFILED_STEP)
        await recording

    async def _connection(self, until: float) -> list[float]:
        answers = []
        while (began := time.perf_counter()) < until:
            if await self.create():
                answers.append(time.perf_counter() - began)
        return answers

    async def create(self) -> bool:
        """Creates one task; whether it was answered so."""
        async with self.session.post("/v1/tasks", json=definition(next(self.numbers))) as response:
            await response.read()
        created = response.status == 201
        self.created += created
        self.refused += not created
        return created


@asynccontextmanager
async def api(dsn: str, folder: Path) -> AsyncIterator[tuple[int, int]]:
    """The API's process, started as `tocsin up` starts it: its port and its pid."""
    port = free_port()
    child = Child("api", "tocsin.cli.up.api_process", secrets.token_hex(8), folder, lambda message: None)
    await child.start({**environment_of(dsn), "TOCSIN_API_HOST": "127.0.0.1", "TOCSIN_API_PORT": str(port)})
    try:
        await child.wait_ready()
        assert child.pid is not None
        yield port, child.pid
    finally:
        await child.stop(_GRACE)


async def in_one_transaction(store: Store, tenant_id: UUID, ids: Ids, count: int) -> float:
    """Puts tasks and their next rows in as the API does, but all in one transaction; the seconds."""
    planter = Planter(ids)
    began = time.perf_counter()
    async with store.tasks.write() as tx:
        now = await tx.now()
        rows = []
        for number in range(count):
            task = _task(ids, tenant_id, number, now)
            slot = next_slot(task.plan, now)
            assert slot is not None
            await tx.insert(task)
            rows.append(planter.next_row(task, slot, None, now))
        await tx.plant(rows)
    return time.perf_counter() - began


def _task(ids: Ids, tenant_id: UUID, number: int, now: datetime) -> Task:
    plan = PlanSpec(schedule=CronSchedule(cron=cron(number), zone=_ZONE))
    call = CallSpec(url="https://example.com/hook")
    return Task(ids.new(now), tenant_id, f"stored {number}", TaskState.ACTIVE, 1, 1, plan, call, None, now, now)


async def steps(creator: Creator, seconds: float, repeats: int) -> list[Step]:
    """Every number of connections in turn, `repeats` times."""
    for _ in range(WARM_UP):
        await creator.create()
    return [await creator.step(connections, seconds) for _ in range(repeats) for connections in CONNECTIONS]


async def unplanned(connection: Connection, created: int) -> int:
    """Tasks answered as created that are not there, or have not one next row each."""
    whole: int = await connection.fetchval(
        "select count(*) from tasks t"
        " where (select count(*) from pending p where p.task_id = t.id and p.kind = 'next') = 1"
    )
    return created - whole


async def run(options: Options, screen: Screen) -> Report:
    clock = SystemClock()
    ids = Ids(clock, random.Random(options.seed))
    seconds = max(LEAST_SECONDS, (SHORT_SECONDS if options.short else SECONDS) * min(1.0, options.scale))
    repeats = options.amount(SHORT_REPEATS if options.short else REPEATS)
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(alone(options, "one API process and its client"))
        dsn = await stack.enter_async_context(new_database(base.dsn, "create"))
        store = await stack.enter_async_context(opened(dsn))
        connection = await stack.enter_async_context(connected(dsn))
        await prepare(dsn, store)
        tenant, _ = await make_tenant(store, clock, "bench")
        _, key = await make_key(store, clock, tenant.id, "bench")
        port, pid = await stack.enter_async_context(api(dsn, base.folder))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"})
        )
        base.limits.limit("api", [pid])
        groups = {"api": [pid], "database": [base.pid], "client": [os.getpid()]}
        creator = Creator(session, Processor(groups), count_from())
        screen.say(f"{repeats} times {seconds:g} s over each of {', '.join(map(str, CONNECTIONS))} connections")
        taken = await steps(creator, seconds, repeats)
        said = await profiled(options, {"api": pid}, creator.busy)
        missing = await unplanned(connection, creator.created)
        stored = [await in_one_transaction(store, tenant.id, ids, IN_ONE) for _ in range(repeats)]
    return report(taken, stored, missing, creator.refused, base.environment, said)


def rate(taken: Sequence[Step], connections: int) -> float:
    """Tasks a second over so many connections, by the median."""
    return statistics.median(step.rate for step in taken if step.connections == connections)


def report(
    taken: Sequence[Step],
    stored: Sequence[float],
    missing: int,
    refused: int,
    where: Environment,
    profile: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """`profile`: what was recorded of the API, or why nothing was."""
    figures: dict[str, Figure] = {"repeats": len(stored), **profile}
    for connections in CONNECTIONS:
        of_these = [step for step in taken if step.connections == connections]
        over = f"over_{connections}"
        figures[f"tasks_per_second_{over}"] = round(rate(taken, connections), 1)
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            median = statistics.median(percentile(step.answers, share) for step in of_these)
            figures[f"{name}_ms_{over}"] = round(median * 1000, 2)
        for part in of_these[0].processor:
            cost = statistics.median(step.processor[part] / max(1, len(step.answers)) for step in of_these)
            figures[f"{part}_cpu_us_per_task_{over}"] = round(cost * 1e6)
    figures[f"tasks_per_second_by_the_store_{IN_ONE}_a_transaction"] = round(IN_ONE / statistics.median(stored), 1)
    most, fewer = CONNECTIONS[-1], CONNECTIONS[-2]
    kept = rate(taken, most) / rate(taken, fewer)
    return Report(
        test="create",
        environment=where,
        targets=[
            at_least(f"tasks a second over {most} connections, times those over {fewer}", KEPT, kept),
            exactly("tasks answered as created, without one next row each", 0, missing),
            exactly("requests refused", 0, refused),
        ],
        figures=figures,
        lost=missing,
        not_meaning="what several API processes do: one was running, and the client shares the machine with it and the "
        "database. The API takes one task a request; many in one transaction are put in by the store, past the API.",
    )


MEASUREMENT = Measurement(
    "create", "tasks created through the API over 1, 8 and 32 connections, each with its first slot", run
)
