"""Where creates are made with an idempotency key: on the store in memory, on PostgreSQL, and through the API's socket.

A create may be told to crash just before its commit, or just after it, when its client gets no answer.
"""

import asyncio
import random
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Protocol
from uuid import UUID

import aiohttp
import asyncpg

from property_tests.stepping import CALL
from tocsin.api.main import Settings, run
from tocsin.common.clock import ManualClock, SystemClock
from tocsin.common.crashpoints import set_handler
from tocsin.common.ids import Ids
from tocsin.common.keys import new_key
from tocsin.common.models import EverySchedule, Kind, PlanSpec
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.tenants import Tenant
from tocsin.common.tasks import Idempotency, KeyReusedError, NewTask, Tasks

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
PLAN = PlanSpec(schedule=EverySchedule(every_seconds=86_400, anchor=START))


@dataclass(frozen=True, slots=True)
class Request:
    """A create. `crash`: `before` or `after` its commit; None: not at all."""

    tenant: int
    key: str
    body: int
    crash: str | None = None

    @property
    def name(self) -> str:
        """What its task is called: the key and the body, so that each task says what made it."""
        return f"{self.key}{self.body}"


@dataclass(frozen=True, slots=True)
class Answer:
    """`task_id` None: refused, or, where it is `lost`, no answer came."""

    task_id: UUID | None = None
    replayed: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A task as it is stored."""

    tenant: int
    name: str
    next_rows: int


class Site(Protocol):
    crashes_apart: bool
    """Whether one of several creates at once can be crashed."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def create(self, request: Request) -> Answer: ...
    async def found(self) -> dict[UUID, Found]: ...

    async def pass_time(self, seconds: float) -> None:
        """Keys grow older by so much."""
        ...

    async def forget(self, seconds: float) -> None:
        """As the Supervisor does: keys older than this are forgotten."""
        ...


class CrashError(Exception):
    """What a process that ended would not have raised; to its client it is the same: no answer."""


_crash: ContextVar[str | None] = ContextVar("crash", default=None)


def crash_by_task(point: str) -> None:
    """A handler: a create crashes by what its own asyncio task was told."""
    if _crash.get() == point.removeprefix("api.write."):
        raise CrashError(point)


async def _write(tasks: Tasks, tenant_id: UUID, request: Request) -> Answer:
    new = NewTask(request.name, lambda _now: PLAN, CALL, None)
    idempotency = Idempotency(request.key, sha256(request.name.encode()).digest())
    _crash.set(request.crash)
    try:
        created = await tasks.create(tenant_id, new, idempotency)
    except KeyReusedError:
        return Answer()
    except CrashError:
        return Answer(lost=True)
    return Answer(created.task_id, created.replayed)


class ShuffledDatabase(MemoryDatabase):
    """Statements of writes at once meet in any order: each waits for some turns, by chance."""

    rng = random.Random(0)

    async def round_trip(self) -> None:
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(0)
        await super().round_trip()


class MemorySite:
    crashes_apart = True

    async def open(self) -> None:
        self.clock = ManualClock(START)
        self.database = ShuffledDatabase(self.clock)
        self.database.rng = random.Random(1)
        self.store = MemoryStore(self.database)
        ids = Ids(self.clock, self.database.rng)
        self.tasks = Tasks(self.store.tasks, ids, lambda _tenant, _priority: None)
        self.tenants = [ids.new(), ids.new()]
        for number, tenant_id in enumerate(self.tenants):
            await self.store.tenants.insert(Tenant(tenant_id, f"tenant {number}", 0, 1.0, 100, None), [])
        set_handler(crash_by_task)

    async def close(self) -> None:
        set_handler(None)

    async def create(self, request: Request) -> Answer:
        return await _write(self.tasks, self.tenants[request.tenant], request)

    async def found(self) -> dict[UUID, Found]:
        rows = [row.task_id for row in self.database.pending if row.kind is Kind.NEXT]
        return {
            task.id: Found(self.tenants.index(task.tenant_id), task.name, rows.count(task.id))
            for task in self.database.tasks.values()
        }

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def forget(self, seconds: float) -> None:
        await self.store.history.expire_keys(seconds)


class PostgresSite:
    crashes_apart = True

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> None:
        self.eye = await asyncpg.connect(self.url)
        self.store = PostgresStore(self.url, size=5)
        await self.store.open()
        ids = Ids(SystemClock(), random.SystemRandom())
        self.tasks = Tasks(self.store.tasks, ids, lambda _tenant, _priority: None)
        self.tenants = [ids.new(), ids.new()]
        for tenant_id in self.tenants:
            await self.store.tenants.insert(Tenant(tenant_id, str(tenant_id), 0, 1.0, 100, None), ["c2VjcmV0"])
        set_handler(crash_by_task)

    async def close(self) -> None:
        set_handler(None)
        await self.store.close()
        await self.eye.close()

    async def create(self, request: Request) -> Answer:
        return await _write(self.tasks, self.tenants[request.tenant], request)

    async def found(self) -> dict[UUID, Found]:
        rows = await self.eye.fetch(
            """select t.id, t.tenant_id, t.name,
                      (select count(*) from pending p where p.task_id = t.id and p.kind = 'next') as next_rows
                 from tasks t where t.tenant_id = any($1)""",
            self.tenants,
        )
        return {row["id"]: Found(self.tenants.index(row["tenant_id"]), row["name"], row["next_rows"]) for row in rows}

    async def pass_time(self, seconds: float) -> None:
        await self.eye.execute(
            """update idempotency_keys set created_at = created_at - $1::float8 * interval '1 second'
                where tenant_id = any($2)""",
            seconds,
            self.tenants,
        )

    async def forget(self, seconds: float) -> None:
        await self.store.history.expire_keys(seconds)


class HttpSite(PostgresSite):
    """Two clients of one API server, over a loopback socket. Its crash points know nothing of who asked."""

    crashes_apart = False

    async def open(self) -> None:
        await super().open()
        self.keys = []
        for tenant_id in self.tenants:
            text, key_hash = new_key()
            await self.store.tenants.insert_key(tenant_id, tenant_id, "test", key_hash)
            self.keys.append(text)
        self.stop = asyncio.Event()
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        settings = Settings(self.url, port=0, pool=4)
        self.server = asyncio.create_task(run(settings, ready=port.set_result, stop=self.stop))
        self.root = f"http://127.0.0.1:{await port}"
        self.session = aiohttp.ClientSession()

    async def close(self) -> None:
        await self.session.close()
        self.stop.set()
        await self.server
        await super().close()

    async def create(self, request: Request) -> Answer:
        document = {
            "name": request.name,
            "schedule": {"cron": "0 9 * * *"},
            "request": {"url": CALL.url},
        }
        headers = {"Authorization": f"Bearer {self.keys[request.tenant]}", "Idempotency-Key": request.key}
        set_handler(_crash_at(request.crash))
        async with self.session.post(f"{self.root}/v1/tasks", json=document, headers=headers) as answer:
            status, made = answer.status, await answer.json(content_type=None)
        if status == 422:
            assert "idempotency-key-reused" in made["type"], made
            return Answer()
        if status == 500:
            return Answer(lost=True)
        assert status == 201, made
        return Answer(UUID(made["id"]), answer.headers.get("Idempotency-Replayed") == "true")


def _crash_at(crash: str | None) -> "CrashAt | None":
    return CrashAt(f"api.write.{crash}") if crash is not None else None


@dataclass(frozen=True, slots=True)
class CrashAt:
    """A handler: whoever comes to this point crashes."""

    point: str

    def __call__(self, point: str) -> None:
        if point == self.point:
            raise CrashError(point)
