"""The tables in memory, and what the rules lean on in PostgreSQL: its clock, its row locks, its outages."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from tocsin.common.clock import PARKED, Clock
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.ids import LANES, SHARED_SHARDS
from tocsin.common.models import EARLIEST, Kind, Priority
from tocsin.common.states import RunState
from tocsin.common.store.rows import PARTITION_DAYS_AHEAD, Begun, Outcome, Pending, Task
from tocsin.common.store.tenants import ApiKey, AuditEntry, Placement, Process, Tenant
from tocsin.common.store.views import HistoryRow

DAY = timedelta(days=1)


@dataclass(slots=True)
class Lease:
    id: UUID
    cell: str
    generation: int
    process: Process
    zone_data: str
    ttl: timedelta
    started_at: datetime
    heartbeat_at: datetime
    steady_since: datetime
    expired_at: datetime | None = None
    draining: bool = False


@dataclass(slots=True)
class Shard:
    cell: str
    tenant_id: UUID | None = None
    lane_first: int = 0
    lane_last: int = LANES
    owner: UUID | None = None


@dataclass(slots=True)
class Running:
    run: Begun
    lease_id: UUID
    begun_at: datetime
    cancelled: bool = False

    def again(self, due_at: datetime, losses: int) -> Pending:
        """The row by which the run returns to pending: it keeps its fence and its kind."""
        run = self.run
        return Pending(
            run_id=run.run_id,
            fence=run.fence,
            tenant_id=run.tenant_id,
            task_id=run.task_id,
            priority=run.priority,
            due_at=due_at,
            slot=run.slot,
            last_slot=run.last_slot,
            lane=run.lane,
            kind=run.kind,
            plan_version=run.plan_version,
            losses=losses,
        )


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    request_hash: bytes
    task_id: UUID
    created_at: datetime


class PendingTable:
    """Pending rows by id, by task and by queue."""

    def __init__(self) -> None:
        self._rows: dict[UUID, Pending] = {}
        self._tasks: defaultdict[UUID, set[UUID]] = defaultdict(set)
        self._queues: defaultdict[tuple[UUID, Priority], set[UUID]] = defaultdict(set)

    def __contains__(self, run_id: UUID) -> bool:
        return run_id in self._rows

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._rows.values())

    def get(self, run_id: UUID) -> Pending | None:
        return self._rows.get(run_id)

    def add(self, row: Pending) -> None:
        assert row.run_id not in self._rows, "a run id is planted once"
        self._rows[row.run_id] = row
        self._tasks[row.task_id].add(row.run_id)
        self._queues[row.tenant_id, row.priority].add(row.run_id)

    def remove(self, run_id: UUID) -> Pending:
        row = self._rows.pop(run_id)
        self._tasks[row.task_id].discard(run_id)
        self._queues[row.tenant_id, row.priority].discard(run_id)
        return row

    def of_task(self, task_id: UUID) -> list[Pending]:
        return [self._rows[run_id] for run_id in self._tasks.get(task_id, ())]

    def of_queue(self, tenant_id: UUID, priority: Priority) -> list[Pending]:
        return [self._rows[run_id] for run_id in self._queues.get((tenant_id, priority), ())]


class MemoryDatabase:
    """What several `MemoryStore`s share. Statements run on one event loop, each without a break."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.unavailable = False
        self._stamped = EARLIEST
        self.tenants: dict[UUID, Tenant] = {}
        self.secrets: dict[UUID, tuple[str, ...]] = {}
        self.keys: dict[bytes, tuple[UUID, ApiKey]] = {}
        self.tasks: dict[UUID, Task] = {}
        self.unreadable: dict[UUID, str] = {}
        """Tasks whose schedule cannot be read, and why."""
        self.pending = PendingTable()
        self.running: dict[UUID, Running] = {}
        self.history: dict[tuple[UUID, int, datetime], HistoryRow] = {}
        self.partitions = {self.today() + DAY * n for n in range(-1, PARTITION_DAYS_AHEAD + 1)}
        self.leases: dict[UUID, Lease] = {}
        self.placements = {"shared": Placement("shared", 1, None, closing=False, generation=0)}
        self.shards = {shard: Shard("shared") for shard in range(SHARED_SHARDS)}
        self.moves: dict[UUID, int] = {}
        self.idempotency: dict[tuple[UUID, str], IdempotencyKey] = {}
        self.zone_data: tuple[str, UUID | None] = ("", None)
        self.audit: list[AuditEntry] = []
        self.notified: list[str] = []
        self.ended_backends: list[UUID] = []
        self.task_locks: defaultdict[UUID, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.key_locks: defaultdict[tuple[UUID, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self.row_locks: dict[UUID, asyncio.Event] = {}
        """Runs whose row an open write has changed; the event comes with the write's end."""

    def now(self) -> datetime:
        return self.clock.now()

    def stamp(self) -> datetime:
        """The time as an ended row bears it: even where the clock stands, never the same twice, and none that a
        process has read from it."""
        self._stamped = max(self.now(), self._stamped) + timedelta(microseconds=1)
        return self._stamped

    def today(self) -> date:
        return self.now().astimezone(UTC).date()

    async def round_trip(self) -> None:
        """What stands before every statement: others have a turn, and an outage is felt.

        Raises:
            StoreUnavailableError
        """
        await asyncio.sleep(0)
        if self.unavailable:
            raise StoreUnavailableError("the store in memory was told to be unavailable")

    async def unlocked(self, run_ids: Iterable[UUID]) -> None:
        """Waits until no open write holds any of these rows."""
        wanted = list(run_ids)
        while waiting := [self.row_locks[run_id] for run_id in wanted if run_id in self.row_locks]:
            await waiting[0].wait()

    def live(self, lease_id: UUID | None) -> Lease | None:
        lease = self.leases.get(lease_id) if lease_id is not None else None
        return lease if lease is not None and lease.expired_at is None else None

    def own_shards(self, tenant_id: UUID) -> dict[int, Shard]:
        return {number: shard for number, shard in self.shards.items() if shard.tenant_id == tenant_id}

    def serving(self, tenant: Tenant) -> dict[int, Shard]:
        """The shards that serve a tenant: the shared one it names; all its own where it names one of them."""
        own = self.own_shards(tenant.id)
        if tenant.shard in own:
            return own
        named = self.shards.get(tenant.shard)
        return {tenant.shard: named} if named is not None and named.tenant_id is None else {}

    def clamped(self, due_at: datetime) -> datetime:
        """A due_at already past becomes now (rule 10)."""
        return max(due_at, self.now())

    def record(self, row: HistoryRow) -> bool:
        """Appends to history; False where the very row was there."""
        key = (row.run_id, row.fence, row.ended_at)
        if key in self.history:
            return False
        self.history[key] = row
        return True

    def of_task(self, task_id: UUID) -> list[Running]:
        return [row for row in self.running.values() if row.run.task_id == task_id]


def ended_row(
    row: Pending | Begun,
    ended_at: datetime,
    outcome: Outcome,
    state: RunState | None,
    *,
    sent: bool = False,
    reason: str | None = None,
    lease_id: UUID | None = None,
) -> HistoryRow:
    """The history row of a run's end, or of one loss."""
    return HistoryRow(
        run_id=row.run_id,
        fence=row.fence,
        ended_at=ended_at,
        tenant_id=row.tenant_id,
        task_id=row.task_id,
        kind=Kind.SLOT if row.kind is Kind.NEXT else row.kind,
        slot=row.slot,
        last_slot=row.last_slot,
        due_at=row.due_at,
        losses=row.losses,
        state=state,
        outcome=outcome,
        sent=sent,
        stale=False,
        lease_id=lease_id,
        started_at=None,
        http_status=None,
        reason=reason,
        error=None,
        response=None,
    )


def parked(row: Pending) -> bool:
    return row.due_at == PARKED
