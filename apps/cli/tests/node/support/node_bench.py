"""Executor nodes in this process over one real database, a tenant's endpoint, and a look at the tables."""

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import asyncpg

from chain_check import Row, TaskRows, call_faults, chain_faults
from scripted_endpoint import PATIENCE, Endpoint
from tocsin.cli.node import ExecutorNode
from tocsin.common import crashpoints
from tocsin.common.clock import Clock, SystemClock
from tocsin.common.ids import Ids, shard_of
from tocsin.common.models import AtSchedule, CallSpec, EverySchedule, Kind, PlanSpec
from tocsin.common.settings import Settings
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.postgres.wakeups import queue_payload
from tocsin.common.store.rows import Task
from tocsin.common.store.tenants import Tenant
from tocsin.common.tasks import NewTask, Tasks
from tocsin.common.telemetry.meter import MemoryMeter

TTL = 2.0
SECOND = timedelta(seconds=1)

_RUNS_OF_SLOTS = """
select task_id, slot, count(distinct run_id) as runs
  from (select task_id, slot, run_id from pending where slot is not null
        union all select task_id, slot, run_id from running where slot is not null
        union all select task_id, slot, run_id from history where slot is not null and until_slot is null) every
 group by task_id, slot
"""

_NODE: contextvars.ContextVar[str] = contextvars.ContextVar("node", default="")


class WrongClock(SystemClock):
    """A process whose wall clock is wrong by so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._wrong_by = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return super().now() + self._wrong_by


class CrashPoints:
    """What happens at a crash point, node by node: the code of a node runs in the context of its name."""

    def __init__(self) -> None:
        self._actions: dict[tuple[str, str], Callable[[], object]] = {}
        self.reached: Counter[tuple[str, str]] = Counter()

    def at(self, node: str, point: str, action: Callable[[], object]) -> None:
        assert point in crashpoints.POINTS
        self._actions[node, point] = action

    def clear(self, node: str, point: str) -> None:
        self._actions.pop((node, point), None)

    def __call__(self, point: str) -> None:
        here = (_NODE.get(), point)
        self.reached[here] += 1
        action = self._actions.get(here)
        if action is not None:
            action()


@dataclass(eq=False)
class Node:
    """A running executor. Its process is this one, so its death cannot be proven: only its silence counts."""

    name: str
    executor: ExecutorNode
    meter: MemoryMeter
    running: "asyncio.Task[None]"

    @property
    def lease_id(self) -> UUID:
        lease_id = self.executor.status.lease_id
        assert lease_id is not None
        return lease_id

    async def drain(self, grace: float = PATIENCE) -> bool:
        finished = await self.executor.drain(grace)
        await self.running
        return finished

    def fall(self) -> None:
        """Dies at the next await, as by SIGKILL but for its sockets, which are closed in good order."""
        self.running.cancel()

    async def kill(self) -> None:
        self.fall()
        await asyncio.gather(self.running, return_exceptions=True)


class Leased(Protocol):
    """Whatever has a lease."""

    @property
    def lease_id(self) -> UUID: ...


class NodeBench:
    """`tasks` are the API's writes; each change of a queue is told to the executors."""

    def __init__(self, url: str, endpoint: Endpoint, points: CrashPoints) -> None:
        self.url = url
        self.endpoint = endpoint
        self.points = points
        self.clock = SystemClock()
        self.ids = Ids(self.clock, random.Random())
        self.store = PostgresStore(url, name="test api", size=8)
        self.tasks = Tasks(self.store.tasks, self.ids, self._changed)
        self.notifying = True
        self.nodes: list[Node] = []
        self._notices: set[asyncio.Task[None]] = set()
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        await self.store.open()
        self._pool = await asyncpg.create_pool(self.url, min_size=1, max_size=3)

    async def close(self) -> None:
        """Ends what still runs. A node that failed by itself fails the test."""
        ended = [node.running for node in self.nodes if node.running.done()]
        await asyncio.gather(*(node.kill() for node in self.nodes))
        await asyncio.gather(*self._notices)
        await self.store.close()
        assert self._pool is not None
        await self._pool.close()
        for task in ended:
            if not task.cancelled():
                task.result()

    def _changed(self, tenant_id: UUID, priority: int) -> None:
        if self.notifying:
            task = asyncio.create_task(self.store.tasks.notify(queue_payload([(tenant_id, priority)])))
            self._notices.add(task)
            task.add_done_callback(self._notices.discard)

    # nodes

    def start(
        self, name: str = "a", *, ttl: float = TTL, cell: str = "shared", url: str = "", clock: Clock | None = None
    ) -> Node:
        settings = Settings(
            database_url=url or self.url,
            lease_ttl_seconds=ttl,
            egress_allow="127.0.0.0/8",
        )
        meter = MemoryMeter()
        executor = ExecutorNode(settings, cell, 0, meter, clock)
        context = contextvars.copy_context()
        context.run(_NODE.set, name)
        node = Node(name, executor, meter, asyncio.create_task(executor.run(), name=name, context=context))
        self.nodes.append(node)
        return node

    async def ready(self, *nodes: Node, tenants: int | None = None) -> None:
        """Until the shards are shared among these nodes, and they serve so many tenants."""

        def shared() -> bool:
            status = [node.executor.status for node in nodes]
            of_cell = sum(each.shards for each in status)
            fair = of_cell == 64 and max(each.shards for each in status) == -(-64 // len(nodes))
            return fair and (tenants is None or sum(each.tenants for each in status) == tenants)

        await self.until(shared, "the shards are shared", explain=lambda: [str(n.executor.status) for n in nodes])

    # what a test makes

    async def a_tenant(self, *, served_by: Leased | None = None, max_in_flight: int = 1000) -> Tenant:
        """A tenant; of a shard that `served_by` owns, if that is given."""
        wanted = None
        if served_by is not None:
            rows = await self.fetch("select shard from shards where owner = $1", served_by.lease_id)
            wanted = {row["shard"] for row in rows}
        while True:
            tenant = self._tenant(max_in_flight)
            if wanted is None or tenant.shard in wanted:
                await self.store.tenants.insert(tenant, ["whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQh"])
                await self.store.tasks.notify("tenants")
                return tenant

    def _tenant(self, max_in_flight: int) -> Tenant:
        tenant_id = self.ids.new()
        return Tenant(tenant_id, f"tenant {tenant_id}", shard_of(tenant_id), 1.0, max_in_flight, None)

    async def a_task(self, tenant: Tenant, path: str = "/", *, call: dict[str, Any] | None = None, **plan: Any) -> Task:
        """A task that calls `path`; every second, if nothing else is said."""
        spec = CallSpec.model_validate({"url": self.endpoint.url(path), "timeout_seconds": 30.0, **(call or {})})

        def planned(now: datetime) -> PlanSpec:
            return PlanSpec(**{"schedule": every(1, now), **plan})

        created = await self.tasks.create(tenant.id, NewTask(path, planned, spec, None))
        return await self.task(created.task_id)

    async def an_idle_task(self, tenant: Tenant, path: str = "/", **options: Any) -> Task:
        """A task whose only slot is far away: it runs when it is told to."""
        far = (await self.now()).replace(microsecond=0) + timedelta(days=30)
        return await self.a_task(tenant, path, schedule=AtSchedule(at=far), **options)

    async def run_now(self, task: Task, *, force: bool = False) -> UUID:
        return await self.tasks.run_now(task.tenant_id, task.id, force=force)

    async def run_now_as(self, run_id: UUID, task: Task) -> None:
        """A run-now whose id is known before it is planted."""
        ids = _OneId(run_id)
        tasks = Tasks(self.store.tasks, ids, self._changed)
        assert await tasks.run_now(task.tenant_id, task.id) == run_id

    async def edit_url(self, task: Task, path: str) -> None:
        def change(old: Task, _now: datetime) -> Task:
            return replace(old, call=old.call.model_copy(update={"url": self.endpoint.url(path)}))

        await self.tasks.edit(task.tenant_id, task.id, change)

    # what a test looks at

    async def fetch(self, sql: str, *arguments: object) -> list[asyncpg.Record]:
        assert self._pool is not None
        return await self._pool.fetch(sql, *arguments)

    async def execute(self, sql: str, *arguments: object) -> None:
        assert self._pool is not None
        await self._pool.execute(sql, *arguments)

    async def now(self) -> datetime:
        """The database's time."""
        now = (await self.fetch("select clock_timestamp() as now"))[0]["now"]
        assert isinstance(now, datetime)
        return now

    async def soon(self) -> datetime:
        """The first whole second that is at least a second and a half away: time enough to write a task."""
        return (await self.now() + timedelta(seconds=2.5)).replace(microsecond=0)

    async def task(self, task_id: UUID) -> Task:
        (task,), _ = await self.store.tasks.definitions([task_id])
        return task

    async def rows(self, task: Task) -> TaskRows:
        """All rows of a task, of one instant."""
        assert self._pool is not None
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            tables = [
                [dict(row) for row in await connection.fetch(f"select * from {name} where task_id = $1", task.id)]
                for name in ("pending", "running", "history")
            ]
        history = sorted(tables[2], key=lambda row: (row["run_id"], row["fence"], row["ended_at"]))
        return TaskRows(tables[0], tables[1], history)

    async def next_row(self, task: Task) -> Row:
        (row,) = [row for row in (await self.rows(task)).pending if row["kind"] == Kind.NEXT]
        return row

    async def history_of(self, run_id: UUID) -> list[asyncpg.Record]:
        return await self.fetch("select * from history where run_id = $1 order by fence, ended_at", run_id)

    async def until_ended(self, *run_ids: UUID, within: float = PATIENCE) -> list[asyncpg.Record]:
        """The last rows of these runs, once each has ended."""

        async def ended() -> list[asyncpg.Record]:
            sql = "select * from history where run_id = any ($1) and state is not null"
            rows = await self.fetch(sql, list(run_ids))
            return rows if len(rows) >= len(run_ids) else []

        rows: list[asyncpg.Record] = await self.until(ended, f"{len(run_ids)} runs have ended", within)
        return rows

    async def until(
        self,
        condition: Callable[[], object],
        what: str,
        within: float = PATIENCE,
        explain: Callable[[], object] = lambda: "",
    ) -> Any:
        """Asks again and again until the answer, awaited if it must be, is true; says it."""
        deadline = self.clock.monotonic() + within
        while True:
            found = condition()
            value = await found if isinstance(found, Awaitable) else found
            if value:
                return value
            if self.clock.monotonic() > deadline:
                raise AssertionError(f"never came true: {what} {explain()}")
            await asyncio.sleep(0.01)

    async def all_called(self, tasks: Sequence[Task], times: int) -> None:
        """So many more calls of each task."""
        wanted = {task.name: len(self.endpoint.of(task.name)) + times for task in tasks}
        for path, count in wanted.items():
            await self.endpoint.until_seen(path, count)

    async def check(self, *tasks: Task, after_failure: bool = False, next_rows: int = 1) -> None:
        """Promises 1 to 3, of each of these tasks. Nothing of them may be under way when no failure is allowed for."""
        for task in tasks:
            rows = await self.rows(task)
            faults = chain_faults(rows, next_rows)
            calls = Counter(request.run_id for request in self.endpoint.seen if request.task_id == task.id)
            for row in rows.running:
                del calls[row["run_id"]]
            faults += call_faults(rows, calls, after_failure=after_failure)
            assert not faults, faults

    async def check_slots(self) -> None:
        """Promise 2, by the database's word and by the endpoint's; slots are whole seconds. And promise 6: nobody calls
        with an older fence than was called with already."""
        rows = await self.fetch(_RUNS_OF_SLOTS)
        assert [row for row in rows if row["runs"] > 1] == []
        assert all(row["slot"].microsecond == 0 for row in rows)
        runs: dict[tuple[UUID, str], set[UUID]] = {}
        fences: dict[UUID, int] = {}
        for request in self.endpoint.seen:
            runs.setdefault((request.task_id, request.scheduled_for), set()).add(request.run_id)
            assert request.fence > fences.get(request.run_id, 0), f"called after somebody else: {request}"
            fences[request.run_id] = request.fence
        assert [found for found in runs.values() if len(found) > 1] == []

    async def quiet(self, *tasks: Task) -> None:
        """Pauses these tasks, and waits for the end of what runs."""
        for task in tasks:
            await self.tasks.pause(task.tenant_id, task.id)

        async def over() -> bool:
            ids = [task.id for task in tasks]
            sql = """select from running where task_id = any ($1)
                     union all select from pending where task_id = any ($1) and kind <> 'next'"""
            return not await self.fetch(sql, ids)

        await self.until(over, "nothing of these tasks runs or waits")


class _OneId(Ids):
    def __init__(self, only: UUID) -> None:
        super().__init__(SystemClock(), random.Random())
        self._only = only

    def new(self, at: datetime | None = None) -> UUID:
        return self._only


def every(seconds: int, now: datetime) -> EverySchedule:
    return EverySchedule(every_seconds=seconds, anchor=now.replace(microsecond=0))
