"""Tasks and runs as their tenant reads them."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tocsin.common.models import Kind
from tocsin.common.states import RunState
from tocsin.common.store.rows import Outcome, Task


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One ended attempt, or one skip, as the API shows it."""

    run_id: UUID
    fence: int
    ended_at: datetime
    tenant_id: UUID
    task_id: UUID
    kind: Kind
    slot: datetime | None
    last_slot: datetime | None
    due_at: datetime | None
    losses: int
    state: RunState | None
    outcome: Outcome
    sent: bool
    stale: bool
    lease_id: UUID | None
    started_at: datetime | None
    http_status: int | None
    reason: str | None
    error: str | None
    response: bytes | None
    until_slot: datetime | None = None
    skip_count: int | None = None
    skip_exact: bool | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as its tenant reads it. `task` is None where the stored definition cannot be read: `fault` says why.

    `next_due_at` is `PARKED` while the task waits for a resume, None where the schedule has ended.
    """

    id: UUID
    name: str
    task: Task | None
    fault: str | None
    next_slot: datetime | None
    next_due_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list: its state and its newest attempt. For a skip, `slot` to `until_slot` are its slots."""

    run_id: UUID
    state: RunState
    kind: Kind
    slot: datetime | None
    due_at: datetime | None
    attempts: int
    outcome: Outcome | None
    started_at: datetime | None
    ended_at: datetime | None
    http_status: int | None
    reason: str | None
    until_slot: datetime | None
    skip_count: int | None
    skip_exact: bool | None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with every ended attempt, stale results included."""

    run_id: UUID
    task_id: UUID
    state: RunState
    kind: Kind
    slot: datetime | None
    due_at: datetime | None
    cancelled: bool
    attempts: tuple[HistoryRow, ...]
