"""One world for each kind of hint index, and hint indexes that the product's own liars do not cover."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

from redis.exceptions import RedisError

from property_tests.stepping import LEAD, READ, SmallWorld, StepOwner
from tocsin.common.hints.lying import FailingHints, ForeignHints, InventedHints, StaleHints
from tocsin.common.hints.null import NullHints
from tocsin.common.hints.port import HintIndex
from tocsin.common.models import Kind, PlanSpec
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.rows import Begun, Pending, Task
from tocsin.common.store.tenants import Tenant
from tocsin.engine.read_config import ReadConfig

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)


class EmptyHints(NullHints):
    """An index that is there, and has lost everything."""


class HonestHints(NullHints):
    """Knows what is pending and due."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        until = self._database.now() + timedelta(seconds=lead)
        rows = [row for row in self._database.pending if row.tenant_id in tenant_ids and row.due_at <= until]
        return [row.run_id for row in sorted(rows, key=lambda row: (row.due_at, row.run_id))][:limit]


class HangingHints(StaleHints):
    """Never answers."""

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class BoundlessHints(StaleHints):
    """Names every run that it ever heard of, whoever asks, and far more than it was asked for."""

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        return [*self._rows, *(UUID(int=number) for number in range(limit)), *self._rows]


INDEXES: dict[str, Callable[[MemoryDatabase], HintIndex]] = {
    "honest": HonestHints,
    "empty": lambda _: EmptyHints(),
    "stale": lambda _: StaleHints(),
    "foreign": lambda _: ForeignHints(),
    "lying": lambda _: InventedHints(random.Random(5)),
    "boundless": lambda _: BoundlessHints(),
    "failing": lambda _: FailingHints(),
    "hanging": lambda _: HangingHints(),
}

Outcome = tuple[str, ...]


class HintWorld:
    """Two executors and three tenants: the first two are served by the first executor, the third by the second."""

    def __init__(self, name: str, make: Callable[[MemoryDatabase], HintIndex], read: ReadConfig = READ) -> None:
        self.name = name
        self.world = SmallWorld(START)
        self.hints = make(self.world.database)
        self.owners = [StepOwner(self.world, number, self.hints, read) for number in (1, 2)]
        self.tenants: list[Tenant] = []
        self.tasks: list[Task] = []
        self.begun: Counter[Outcome] = Counter()
        self._pairs: set[tuple[UUID, int]] = set()
        self._told: set[tuple[UUID, UUID]] = set()

    async def start(self) -> None:
        for owner in self.owners:
            await owner.start()
        for owner in self.owners:
            await owner.own()
        for owner in (self.owners[0], self.owners[0], self.owners[1]):
            tenant = await self.world.a_tenant(f"tenant {len(self.world.database.tenants)}")
            while tenant.shard not in owner.owner.ownership.shards:
                tenant = await self.world.a_tenant(f"tenant {len(self.world.database.tenants)}")
            self.tenants.append(tenant)
        for owner in self.owners:
            await owner.own()

    async def create(self, tenant: int, plan: PlanSpec) -> None:
        self.tasks.append(await self.world.a_task(self.tenants[tenant].id, f"task {len(self.tasks)}", plan))

    async def tell(self) -> None:
        """What a feeder would: everything that is pending, and what no longer is."""
        rows = list(self.world.database.pending)
        pending = {(row.tenant_id, row.run_id) for row in rows}
        gone = self._told - pending
        self._told |= pending
        with suppress(ConnectionError, RedisError, ValueError):  # whatever an index that is broken may raise
            await self.hints.add(rows)
            await self.hints.remove(list(gone))

    async def round(self, *, everything: bool) -> None:
        """Each executor reads and begins once."""
        woken, self.world.woken = self.world.woken, []
        for step in self.owners:
            step.owner.reader.want(pair for pair in woken if pair[0] in step.owner.board.tenants)
            before = {row.run_id: row for row in self.world.database.pending}
            running = set(self.world.database.running)
            await self._look(step, everything=everything)
            await step.begin()
            for row in list(self.world.database.running.values()):
                if row.run.run_id not in running:
                    self._check_begun(step, row.run, before.get(row.run.run_id))

    async def _look(self, step: StepOwner, *, everything: bool) -> None:
        with suppress(ConnectionError):  # it ends the round, and the next one goes on, as a service does
            await step.look(everything=everything)

    def _check_begun(self, step: StepOwner, run: Begun, row: Pending | None) -> None:
        """What holds of everything begun, whatever an index said."""
        where = f"promise 11: with the index {self.name}, the run ({run.kind}) of {_instant(run.slot)}"
        assert row is not None, f"{where} is begun that was not pending"
        assert row.due_at <= self.world.now + LEAD, f"{where} is begun before it is due"
        shard = self.world.database.shards[self.world.database.tenants[run.tenant_id].shard]
        assert shard.owner == step.owner.lease.id, f"{where} is begun by who does not own its tenant"
        assert (run.run_id, run.fence) not in self._pairs, f"{where} is begun twice"
        self._pairs.add((run.run_id, run.fence))
        self.begun[self._name(run.task_id), _instant(run.slot), run.kind, str(run.fence)] += 1

    def open_calls(self) -> list[tuple[Outcome, int, Begun]]:
        """The calls under way, with whose they are, in an order that is the same in every world."""
        calls: list[tuple[Outcome, int, Begun]] = [
            ((self._name(run.task_id), run.kind, _instant(run.slot), str(run.fence)), number, run)
            for number, step in enumerate(self.owners)
            for run in (order.run for order in step.calls.orders.values())
        ]
        return sorted(calls, key=lambda call: call[:2])

    async def end(self, call: tuple[Outcome, int, Begun], retry_in: float | None = None) -> None:
        await self.owners[call[1]].end(call[2], retry_in)

    def outcomes(self) -> Counter[Outcome]:
        """The rows of history, without ids and instants of writing."""
        return Counter(
            (
                self._name(row.task_id),
                row.kind,
                _instant(row.slot),
                _instant(row.until_slot),
                str(row.state),
                row.outcome,
                str(row.reason),
                str(row.fence),
                str(row.skip_count),
            )
            for row in self.world.database.history.values()
        )

    def waiting(self) -> Counter[Outcome]:
        """The rows of pending, likewise."""
        return Counter(
            (self._name(row.task_id), row.kind, _instant(row.slot), _instant(row.last_slot), str(row.fence))
            for row in self.world.database.pending
        )

    def next_row(self, task: Task) -> Pending | None:
        return next((r for r in self.world.database.pending.of_task(task.id) if r.kind is Kind.NEXT), None)

    def is_due(self) -> bool:
        """Whether something is due, or under way."""
        due = any(row.due_at <= self.world.now for row in self.world.database.pending)
        return due or bool(self.world.database.running)

    def _name(self, task_id: UUID) -> str:
        return self.world.database.tasks[task_id].name


def _instant(slot: datetime | None) -> str:
    return "-" if slot is None else f"{(slot - START).total_seconds():g}"
