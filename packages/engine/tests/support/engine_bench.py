"""Owners over one store in memory, on a clock that the test moves; no service runs by itself."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tocsin.common.calls import Listener, Order
from tocsin.common.clock import DatabaseClock, ManualClock
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.ids import Ids, lane_of
from tocsin.common.models import AtSchedule, CallSpec, EverySchedule, Kind, PlanSpec
from tocsin.common.states import RunState
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.rows import (
    Backend,
    BeginItem,
    BeginResult,
    Begun,
    Completion,
    Held,
    Outcome,
    Pending,
    QueuePage,
    Recheck,
    SkipReason,
    Task,
    returned,
)
from tocsin.common.store.tenants import Process, Tenant
from tocsin.common.store.views import HistoryRow
from tocsin.common.tasks import NewTask, Tasks
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.engine.lease import Lease
from tocsin.engine.owner import Owner, OwnerConfig

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
CALL = CallSpec(url="https://example.com/hook")

_numbers = itertools.count(1)


class RecordedCalls:
    """The executor as a list of what it was told; a test ends the calls."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.expected: list[tuple[datetime, UUID]] = []
        self.back: list[Begun] = []
        self.aborted: list[UUID] = []
        self.waiting_results = 0
        self.submitted = asyncio.Event()
        self.was_aborted = asyncio.Event()

    def submit(self, order: Order) -> None:
        self.orders.append(order)
        self.submitted.set()

    def expect(self, due_at: datetime, task: Task) -> None:
        self.expected.append((due_at, task.id))

    def put_back(self, run: Begun) -> None:
        self.back.append(run)

    def abort(self, run_id: UUID) -> None:
        self.aborted.append(run_id)
        self.was_aborted.set()

    def backlog(self) -> int:
        return self.waiting_results

    async def drained(self) -> None:
        """Nothing is waited for here."""

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def runs(self) -> list[Begun]:
        return [order.run for order in self.orders]


class ToldWakeUps:
    """Nobody notifies but the test: what it hands to `cancelled`, a running owner hears."""

    cancelled: Callable[[Sequence[UUID]], None]

    def start(
        self,
        queues: Callable[[Sequence[tuple[UUID, int]]], None],
        tenants: Callable[[], None],
        cancelled: Callable[[Sequence[UUID]], None],
    ) -> None:
        self.cancelled = cancelled

    async def stop(self) -> None:
        """Nothing runs."""


class FaultyRuns(MemoryRuns):
    """The path of a run over a connection that a test can break.

    `lose_begin`: the next begin's answer is lost: `before` it took effect, `after`, or `late`: it takes effect
    while its server process is being ended. `pages` keeps what was read.
    """

    def __init__(self, database: MemoryDatabase, name: str) -> None:
        super().__init__(database, name)
        self.lose_begin: str | None = None
        self.away: Counter[str] = Counter()
        self.begins: list[Sequence[BeginItem]] = []
        self.pages: list[QueuePage] = []
        self.before_begin: Callable[[], Any] | None = None
        self.late: tuple[UUID, Sequence[BeginItem]] | None = None

    def _refuse(self, name: str) -> None:
        if self.away[name] > 0:
            self.away[name] -= 1
            raise StoreUnavailableError(f"{name}: told to be away")

    async def heads(self, pages: Sequence[QueuePage], lead: float) -> list[Pending]:
        self._refuse("heads")
        self.pages += pages
        return await super().heads(pages, lead)

    async def begin(
        self, lease_id: UUID, items: Sequence[BeginItem], note: Callable[[Backend], None] | None = None
    ) -> BeginResult:
        self._refuse("begin")
        self.begins.append(items)
        if self.before_begin is not None:
            hook, self.before_begin = self.before_begin, None
            await hook()
        lost, self.lose_begin = self.lose_begin, None
        if lost in ("before", "late"):
            if note is not None:
                note(Backend(7, "tocsin"))
            self.late = (lease_id, items) if lost == "late" else None
            raise OutcomeUnknownError("the answer was lost")
        result = await super().begin(lease_id, items, note)
        if lost == "after":
            raise OutcomeUnknownError("the answer was lost")
        return result

    async def held(self, lease_id: UUID) -> list[Held]:
        self._refuse("held")
        return await super().held(lease_id)

    async def recheck(self, lease_id: UUID, pairs: Sequence[tuple[UUID, int]]) -> list[Recheck]:
        self._refuse("recheck")
        return await super().recheck(lease_id, pairs)

    async def commit_late(self) -> None:
        """What was under way commits now."""
        late, self.late = self.late, None
        if late is not None:
            await super().begin(*late)


async def a_due_task(bench: "EngineBench", **plan: Any) -> Task:
    """A task whose first slot is due now, known to the owner."""
    schedule = plan.setdefault("schedule", bench.every(60))
    task = await bench.a_task(**plan)
    await bench.advance(schedule.every_seconds)
    await bench.first.own()
    await bench.first.read()
    return task


class EngineBench:
    """One executor, by default. `executor()` makes another over the same tables."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.ids = Ids(self.clock, random.Random(1))
        self.database = MemoryDatabase(self.clock)
        self.first = Executor(self)

    async def start(self) -> None:
        await self.first.start()

    def executor(self) -> "Executor":
        return Executor(self)

    # the first executor's parts, by short names

    @property
    def owner(self) -> Owner:
        return self.first.owner

    @property
    def calls(self) -> RecordedCalls:
        return self.first.calls

    @property
    def runs(self) -> FaultyRuns:
        return self.first.runs

    @property
    def store(self) -> MemoryStore:
        return self.first.store

    @property
    def tasks(self) -> Tasks:
        return Tasks(self.first.store.tasks, self.ids, lambda _tenant, _priority: None)

    async def advance(self, seconds: float) -> None:
        await self.first.advance(seconds)

    async def go(self) -> list[Begun]:
        return await self.first.go()

    # what a test makes

    async def a_tenant(self, **changes: Any) -> Tenant:
        values: dict[str, Any] = {"weight": 1.0, "max_in_flight": 10_000, "max_in_flight_per_endpoint": None}
        tenant = Tenant(self.ids.new(), f"tenant {next(_numbers)}", 0, **{**values, **changes})
        await self.store.tenants.insert(tenant, ["c2VjcmV0"])
        return self.database.tenants[tenant.id]

    async def a_task(self, tenant: Tenant | None = None, call: CallSpec = CALL, **plan: Any) -> Task:
        """A task whose first slot is a second from now, if nothing else is said."""
        tenant_id = (tenant or await self.a_tenant()).id
        values = {"schedule": AtSchedule(at=self.clock.now().replace(microsecond=0) + SECOND), **plan}
        created = await self.tasks.create(tenant_id, NewTask("task", lambda _now: PlanSpec(**values), call, None))
        return self.database.tasks[created.task_id]

    def every(self, seconds: int) -> EverySchedule:
        return EverySchedule(every_seconds=seconds, anchor=self.clock.now().replace(microsecond=0))

    def put(self, task: Task, due_at: datetime, **changes: Any) -> Pending:
        """A waiting run, put into pending as it is."""
        values: dict[str, Any] = {
            "run_id": self.ids.new(),
            "fence": 0,
            "tenant_id": task.tenant_id,
            "task_id": task.id,
            "priority": task.plan.priority,
            "due_at": due_at,
            "slot": None,
            "last_slot": None,
            "lane": lane_of(task.id),
            "kind": Kind.NOW,
            "plan_version": task.plan_version,
        }
        row = Pending(**{**values, **changes})
        self.database.pending.add(row)
        return row

    def replace_tenant(self, tenant: Tenant, **changes: Any) -> None:
        self.database.tenants[tenant.id] = replace(self.database.tenants[tenant.id], **changes)

    # what a test looks at

    def pending(self, task: Task) -> list[Pending]:
        return sorted(self.database.pending.of_task(task.id), key=lambda row: row.run_id)

    def next_row(self, task: Task) -> Pending:
        (row,) = [row for row in self.pending(task) if row.kind is Kind.NEXT]
        return row

    def running(self, task: Task) -> list[Begun]:
        return [row.run for row in self.database.of_task(task.id)]

    def history(self, task: Task) -> list[HistoryRow]:
        rows = [row for row in self.database.history.values() if row.task_id == task.id]
        return sorted(rows, key=lambda row: row.ended_at)

    def skips(self, task: Task, reason: SkipReason) -> list[HistoryRow]:
        return [row for row in self.history(task) if row.state is RunState.SKIPPED and row.reason == reason]


class Executor:
    """An owner and what it told the executor, with its lease."""

    def __init__(self, bench: EngineBench) -> None:
        self.bench = bench
        self.lease_id = bench.ids.new()
        self.store = MemoryStore(bench.database, lease_id=self.lease_id)
        self.runs = FaultyRuns(bench.database, self.store.name)
        self.store.runs = self.runs
        self.calls = RecordedCalls()
        self.meter = MemoryMeter()
        self.wakeups = ToldWakeUps()
        self.process = Process("node", f"boot {next(_numbers)}", "pid:1", 1, 1.0)
        self.owner = Owner(
            self.store,
            self.lease_id,
            self.process,
            self.wakeups,
            self._make_calls,
            bench.clock,
            random.Random(2),
            self.meter,
            OwnerConfig(),
        )

    def _make_calls(self, _lease: Lease, _listener: Listener, _clock: DatabaseClock) -> RecordedCalls:
        return self.calls

    async def start(self, cell: str = "shared") -> None:
        """Takes the lease and its part of the shards."""
        await self.owner._beat.register(cell, 0, self.process, "2026a")
        await self.owner.ownership.run_once()

    async def beat(self) -> None:
        await self.owner._beat.run_once()

    async def advance(self, seconds: float) -> None:
        """Moves the clock on, the lease renewed on the way."""
        while seconds > 0:
            step = min(seconds, 1.25)
            self.bench.clock.advance(step)
            seconds -= step
            await self.beat()

    async def own(self) -> dict[str, int]:
        return await self.owner.ownership.run_once()

    async def read(self) -> int:
        """A look at every queue, as after a wake-up for each."""
        self.owner.reader.want([(tenant, priority) for tenant in self.owner.board.tenants for priority in range(4)])
        return (await self.owner.reader.run_once())["added"]

    async def begin(self) -> list[Begun]:
        """One round of begins; what it gave to the executor."""
        before = len(self.calls.orders)
        await self.owner.beginner.run_once()
        return self.calls.runs[before:]

    async def go(self) -> list[Begun]:
        """Follows the tenants, reads and begins."""
        await self.own()
        await self.read()
        return await self.begin()

    async def end(self, run: Begun, state: RunState | None = RunState.SUCCEEDED, retry_in: float = 0.0) -> None:
        """The call of a run ends: its completion commits, and the owner is told."""
        now = self.bench.clock.now()
        retry_at = now + timedelta(seconds=retry_in) if state is None else None
        completion = Completion(
            run_id=run.run_id,
            fence=run.fence,
            ended_at=now,
            outcome=Outcome.SUCCESS if state is RunState.SUCCEEDED else Outcome.HTTP_ERROR,
            sent=True,
            state=state,
            tenant_id=run.tenant_id,
            task_id=run.task_id,
            kind=run.kind,
            slot=run.slot,
            last_slot=run.last_slot,
            due_at=run.due_at,
            losses=run.losses,
            retry_at=retry_at,
        )
        await self.runs.complete(self.lease_id, [completion])
        self.owner.landed(run, returned(run, due_at=retry_at) if state is None else None)

    async def put_back(self) -> None:
        """What the engine asked to be put back is."""
        runs, self.calls.back = self.calls.back, []
        await self.runs.put_back(self.lease_id, [(run.run_id, run.fence) for run in runs])
        for run in runs:
            self.owner.landed(run, returned(run, losses=run.losses + 1))
