"""The rows of the store as values: what goes into a statement and what comes back from it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from tocsin.common.models import CallSpec, Kind, PlanSpec, Priority, TaskState
from tocsin.common.states import RunState

if TYPE_CHECKING:
    from dataclasses import dataclass as row
else:

    def row(*, frozen: bool, slots: bool):
        """A value that nobody changes, as its type says; at run time not frozen, which makes it four times as fast
        to build: a begin of a thousand runs builds thousands."""
        assert frozen
        return dataclass(slots=slots, unsafe_hash=True)


MARGIN_SECONDS = 10.0
"""How far before now a queue is read: longer than any writing transaction (rule 10)."""

MAX_BEGIN = 1000
"""Runs that one begin takes."""

MAX_LOSSES = 5
"""The loss that ends a run."""

FIRST_RUN = UUID(int=0)
"""Before every run id."""

PARTITION_DAYS_AHEAD = 7
"""Days for which history has partitions ahead."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A server process, for ending it when an answer was lost. `name` guards against a pid used again."""

    pid: int
    name: str


class SkipReason(StrEnum):
    MISFIRE = "misfire"
    OVERLAP = "overlap"
    PAUSED = "paused"
    DELETED = "deleted"
    EDITED = "edited"
    SKIPPED = "skipped_by_user"
    FAULTY = "faulty"
    ZONE_DATA = "zone_data"


class Outcome(StrEnum):
    """How one attempt ended."""

    SUCCESS = "success"
    HTTP_ERROR = "http_error"
    TIMEOUT = "timeout"
    DNS_ERROR = "dns_error"
    CONNECT_ERROR = "connect_error"
    TLS_ERROR = "tls_error"
    EGRESS_REFUSED = "egress_refused"
    PROTOCOL_ERROR = "protocol_error"
    CONNECTION_LOST = "connection_lost"
    CANCELLED = "cancelled"
    LOST = "lost"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Task:
    """A task as stored. `plan` and `call` were validated when it was read."""

    id: UUID
    tenant_id: UUID
    name: str
    state: TaskState
    version: int
    plan_version: int
    plan: PlanSpec
    call: CallSpec
    body: bytes | None
    created_at: datetime
    updated_at: datetime
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class TaskFault:
    """Why planning a task's run raised, and by which version of its plan."""

    task_id: UUID
    plan_version: int
    reason: str


@dataclass(frozen=True, slots=True)
class TaskReference:
    """A locked task without its definition, and the store's time once the lock was had."""

    state: TaskState
    now: datetime


@row(frozen=True, slots=True)
class Pending:
    """A row of `pending`: a next row or a waiting run.

    `due_at` is `PARKED` for a parked next row, and then `slot` is None, as it is for a run-now.
    `last_slot` is the last slot of the task accounted for before this one.
    """

    run_id: UUID
    fence: int
    tenant_id: UUID
    task_id: UUID
    priority: Priority
    due_at: datetime
    slot: datetime | None
    last_slot: datetime | None
    lane: int
    kind: Kind
    plan_version: int
    losses: int = 0


@row(frozen=True, slots=True)
class Plant:
    """A row to put into `pending` for the next row that is begun with it.

    Tenant, task, lane, priority and plan_version are that row's. A `due_at` already past becomes the
    database's time at the insert (rule 10).
    """

    run_id: UUID
    kind: Kind
    due_at: datetime
    slot: datetime | None
    last_slot: datetime


@dataclass(frozen=True, slots=True)
class Skip:
    """Slots `first_slot` to `until_slot` that get no run, recorded as one history row.

    `previous_slot` is the slot before the first; `count` is a lower bound where `exact` is False.
    """

    run_id: UUID
    first_slot: datetime | None
    until_slot: datetime | None
    previous_slot: datetime | None
    count: int
    exact: bool
    reason: SkipReason


@row(frozen=True, slots=True)
class BeginItem:
    """One pending row, by its pair (run_id, fence), to begin, with its verdict.

    `skip` set: the row goes to history as skipped, instead of running; of a run without a slot only
    the reason counts. `exclusive`: take it only while nothing else of its
    task is running or between attempts. `plants` and `skips` are written only if the row is gotten
    and is a next row.
    """

    row: Pending
    exclusive: bool = False
    skip: Skip | None = None
    plants: tuple[Plant, ...] = ()
    skips: tuple[Skip, ...] = ()


@row(frozen=True, slots=True)
class Begun:
    """A run that is running under this process's lease; `fence` is the one its writes must carry.

    `version` is the task's at the begin.
    """

    run_id: UUID
    fence: int
    tenant_id: UUID
    task_id: UUID
    priority: Priority
    due_at: datetime
    slot: datetime | None
    last_slot: datetime | None
    lane: int
    kind: Kind
    plan_version: int
    losses: int
    version: int

    @property
    def attempt(self) -> int:
        """1 for the first call; never stored."""
        return self.fence - self.losses


def begun_of(row: Pending, version: int) -> Begun:
    """A pending row as it runs: the fence grown by one, a next row become its slot's run."""
    kind = Kind.SLOT if row.kind is Kind.NEXT else row.kind
    return Begun(  # by position, in the order of the fields: thousands a second, and keywords cost a third
        row.run_id,
        row.fence + 1,
        row.tenant_id,
        row.task_id,
        row.priority,
        row.due_at,
        row.slot,
        row.last_slot,
        row.lane,
        kind,
        row.plan_version,
        row.losses,
        version,
    )


def check_items(items: Sequence[BeginItem]) -> None:
    """Refuses what no begin may ask for.

    Raises:
        ValueError: more than `MAX_BEGIN` items, a run twice, or an exclusive run beside another of its task.
    """
    if len(items) > MAX_BEGIN:
        raise ValueError(f"a begin takes at most {MAX_BEGIN} runs")
    if len({item.row.run_id for item in items}) != len(items):
        raise ValueError("a begin takes a run once")
    alone = {item.row.task_id for item in items if item.exclusive}
    if alone and any(count > 1 and task in alone for task, count in Counter(i.row.task_id for i in items).items()):
        raise ValueError("a begin takes an exclusive run as the only one of its task")


def returned(run: Begun, *, losses: int | None = None, due_at: datetime | None = None) -> Pending:
    """A begun run as it is back in `pending`: same run, same fence, never a next row again."""
    return Pending(
        run_id=run.run_id,
        fence=run.fence,
        tenant_id=run.tenant_id,
        task_id=run.task_id,
        priority=run.priority,
        due_at=run.due_at if due_at is None else due_at,
        slot=run.slot,
        last_slot=run.last_slot,
        lane=run.lane,
        kind=run.kind,
        plan_version=run.plan_version,
        losses=run.losses if losses is None else losses,
    )


@dataclass(frozen=True, slots=True)
class BeginResult:
    """What one begin did. A pair in none of these was gone, locked or of another fence."""

    begun: tuple[Begun, ...]
    skipped: tuple[UUID, ...]
    busy: tuple[UUID, ...]


@row(frozen=True, slots=True)
class Completion:
    """The end of one attempt. `state` None: the run is due again at `retry_at`.

    `ended_at` is stamped once, by the executor, and sent again unchanged: it is a part of the key.
    """

    run_id: UUID
    fence: int
    ended_at: datetime
    outcome: Outcome
    sent: bool
    state: RunState | None
    tenant_id: UUID
    task_id: UUID
    kind: Kind
    slot: datetime | None
    last_slot: datetime | None
    due_at: datetime
    losses: int
    retry_at: datetime | None = None
    started_at: datetime | None = None
    http_status: int | None = None
    reason: str | None = None
    error: str | None = None
    response: bytes | None = None


def check_completions(completions: Sequence[Completion]) -> None:
    """Refuses an attempt that is ended twice.

    Raises:
        ValueError: a pair (run id, fence) stands in it twice.
    """
    if len({(c.run_id, c.fence) for c in completions}) != len(completions):
        raise ValueError("an attempt ends once")


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """`stale`: pairs whose fence no longer held; they were recorded and changed nothing else.

    A pair in neither had been recorded before: it was sent again after a lost answer.
    """

    applied: tuple[tuple[UUID, int], ...]
    stale: tuple[tuple[UUID, int], ...]


@dataclass(frozen=True, slots=True)
class QueuePage:
    """What to read of one queue: at most `limit` rows after (`from_due`, `from_run`) in queue order.

    `from_due` None: from the margin before now; `EVERYTHING`: from the queue's start.
    """

    tenant_id: UUID
    priority: Priority
    lane_first: int
    lane_last: int
    limit: int
    from_due: datetime | None = None
    from_run: UUID = FIRST_RUN


@dataclass(frozen=True, slots=True)
class Held:
    """A running run of one's own lease; `age` in seconds since its begin."""

    run_id: UUID
    fence: int
    version: int
    age: float


@dataclass(frozen=True, slots=True)
class Recheck:
    """Whether a begun run may still be called as it was begun."""

    run_id: UUID
    current: bool
    cancelled: bool


@dataclass(frozen=True, slots=True)
class GivenBack:
    run_id: UUID
    tenant_id: UUID
    state: RunState | None


@dataclass(frozen=True, slots=True)
class KeepResult:
    """Names of the partitions made, rows moved out of DEFAULT, and partitions that must wait for the next time:
    somebody held a lock for longer than the keeper would wait."""

    made: tuple[str, ...]
    moved: int
    postponed: tuple[str, ...]
