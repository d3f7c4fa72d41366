"""A small world for the small machines: owners over one store in memory that do only what they are told, when told.

No service runs by itself and no endpoint is called: a call is an order that stays open until the machine ends it.
"""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from tocsin.common.calls import Order
from tocsin.common.clock import ManualClock
from tocsin.common.hints.port import HintIndex
from tocsin.common.ids import Ids
from tocsin.common.models import CallSpec, PlanSpec
from tocsin.common.states import RunState
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.rows import Begun, Completion, Outcome, Pending, Task, returned
from tocsin.common.store.tenants import Process, Tenant
from tocsin.common.store.views import HistoryRow
from tocsin.common.tasks import NewTask, Tasks
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.engine.owner import Owner, OwnerConfig
from tocsin.engine.read import ReadConfig

T = TypeVar("T")

CALL = CallSpec(url="https://example.com/hook")
LEAD = timedelta(seconds=0.1)
"""How long before its due instant a run may be begun."""


class Steps:
    """An event loop that runs while something is asked of it, and stands otherwise."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        self._loop.close()


class CountedDatabase(MemoryDatabase):
    """`statements`: round trips so far."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.statements = 0

    async def round_trip(self) -> None:
        self.statements += 1
        await super().round_trip()


class OpenCalls:
    """The executor as a list of what it was told."""

    def __init__(self) -> None:
        self.orders: dict[UUID, Order] = {}
        self.back: list[Begun] = []
        self.aborted: set[UUID] = set()

    @property
    def open(self) -> list[Begun]:
        return [order.run for order in self.orders.values()]

    def submit(self, order: Order) -> None:
        self.orders[order.run.run_id] = order

    def expect(self, due_at: datetime, task: Task) -> None:
        """Nothing is prepared here."""

    def put_back(self, run: Begun) -> None:
        self.back.append(run)

    def abort(self, run_id: UUID) -> None:
        self.aborted.add(run_id)

    def backlog(self) -> int:
        return 0

    async def drained(self) -> None:
        """Nothing is waited for here."""

    async def close(self) -> None:
        """Nothing is open."""


def completion_of(run: Begun, ended_at: datetime, retry_at: datetime | None) -> Completion:
    """Of a call that was answered well, or, with `retry_at`, with a failure after which the run is due again then."""
    return Completion(
        run_id=run.run_id,
        fence=run.fence,
        ended_at=ended_at,
        outcome=Outcome.SUCCESS if retry_at is None else Outcome.HTTP_ERROR,
        sent=True,
        state=RunState.SUCCEEDED if retry_at is None else None,
        tenant_id=run.tenant_id,
        task_id=run.task_id,
        kind=run.kind,
        slot=run.slot,
        last_slot=run.last_slot,
        due_at=run.due_at,
        losses=run.losses,
        retry_at=retry_at,
    )


class NoWakeUps:
    """What a wake-up would bring sooner, rounds bring."""

    def start(self, *_: Any) -> None:
        """Nobody notifies."""

    async def stop(self) -> None:
        """Nothing runs."""


@dataclass(frozen=True, slots=True)
class Links:
    """Everything of a task that accounts for slots: its runs, wherever they are, and its skips."""

    pending: list[Pending]
    running: list[Begun]
    history: list[HistoryRow]


class SmallWorld:
    """The tables, their clock, and what a tenant may do to a task."""

    def __init__(self, now: datetime) -> None:
        self.clock = ManualClock(now.astimezone(UTC))
        self.database = CountedDatabase(self.clock)
        self.store = MemoryStore(self.database)
        self.woken: list[tuple[UUID, int]] = []
        self.ids = Ids(self.clock, random.Random(1))
        self.tasks = Tasks(self.store.tasks, self.ids, lambda tenant, priority: self.woken.append((tenant, priority)))

    @property
    def now(self) -> datetime:
        return self.clock.now()

    async def a_tenant(self, name: str) -> Tenant:
        tenant = Tenant(self.ids.new(), name, 0, 1.0, 10_000, None)
        await self.store.tenants.insert(tenant, ["c2VjcmV0"])
        return self.database.tenants[tenant.id]

    async def a_task(self, tenant_id: UUID, name: str, plan: PlanSpec) -> Task:
        created = await self.tasks.create(tenant_id, NewTask(name, lambda _now: plan, CALL, None))
        return self.database.tasks[created.task_id]

    def links(self, task_id: UUID) -> Links:
        return Links(
            self.database.pending.of_task(task_id),
            [row.run for row in self.database.of_task(task_id)],
            [row for row in self.database.history.values() if row.task_id == task_id],
        )


class StepOwner:
    """One executor process: an owner, and the calls that it has open."""

    def __init__(self, world: SmallWorld, number: int, hints: HintIndex | None = None) -> None:
        self.world = world
        self.calls = OpenCalls()
        lease_id = UUID(int=number)
        self.store = MemoryStore(world.database, lease_id=lease_id)
        self.process = Process("node", f"boot {number}", "pid:1", number, 1.0)
        self.owner = Owner(
            self.store,
            lease_id,
            self.process,
            NoWakeUps(),
            lambda _lease, _listener, _clock: self.calls,
            world.clock,
            random.Random(1_000 + number),
            MemoryMeter(),
            OwnerConfig(read=ReadConfig(hint_wait=0.001)),
            hints,
        )

    async def start(self) -> None:
        """Takes the lease."""
        await self.owner._beat.register("shared", 0, self.process, "2026a")

    async def own(self) -> None:
        """Takes its part of the shards, and follows the tenants that they bring."""
        await self.owner.ownership.run_once()

    async def look(self, *, everything: bool = True) -> None:
        """Renews the lease, and reads; `everything`: all there is, not only what a sweep finds."""
        await self.owner._beat.run_once()
        if everything:
            self.owner.reader.want_everything(self.owner.board.tenants)
        await self.owner.reader.run_once()

    async def begin(self) -> None:
        await self.owner.beginner.run_once()

    async def end(self, run: Begun, retry_in: float | None = None) -> None:
        """The call of a run ends: answered well, aborted, or with a failure after which it is due again."""
        now = self.world.now
        del self.calls.orders[run.run_id]
        retry = retry_in is not None and run.run_id not in self.calls.aborted
        retry_at = now + timedelta(seconds=retry_in or 0) if retry else None
        cancelled = self.world.database.running[run.run_id].cancelled
        completion = completion_of(run, self.world.database.stamp(), retry_at)
        await self.store.runs.complete(self.owner.lease.id, [completion])
        again = returned(run, due_at=retry_at) if retry and not cancelled else None
        self.owner.landed(run, again)
        self.calls.aborted.discard(run.run_id)
