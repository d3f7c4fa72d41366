"""What a tenant reads of tasks and runs, in memory."""

from uuid import UUID

from tocsin.common.models import Kind
from tocsin.common.states import RunState
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.rows import Begun, Pending, Task
from tocsin.common.store.views import HistoryRow, RunSummary, TaskView


def view_of(database: MemoryDatabase, task: Task) -> TaskView:
    row = next((row for row in database.pending.of_task(task.id) if row.kind is Kind.NEXT), None)
    unreadable = database.unreadable.get(task.id)
    return TaskView(
        id=task.id,
        name=task.name,
        task=None if unreadable is not None else task,
        fault=unreadable or task.fault,
        next_slot=row.slot if row is not None else None,
        next_due_at=row.due_at if row is not None else None,
    )


def attempts_of(database: MemoryDatabase, tenant_id: UUID, run_id: UUID) -> list[HistoryRow]:
    """Every ended attempt of a run, the first one first."""
    rows = [row for row in database.history.values() if (row.tenant_id, row.run_id) == (tenant_id, run_id)]
    return sorted(rows, key=lambda row: (row.fence, row.ended_at))


def summaries(database: MemoryDatabase, tenant_id: UUID, task_id: UUID) -> list[RunSummary]:
    """A task's runs, newest planting first, each by its newest row."""
    found: dict[UUID, RunSummary] = {}
    ended = [
        row
        for row in database.history.values()
        if (row.tenant_id, row.task_id) == (tenant_id, task_id) and not row.stale
    ]
    for row in sorted(ended, key=lambda row: (row.fence, row.ended_at)):
        found[row.run_id] = _ended_summary(row)
    for pending in database.pending.of_task(task_id):
        if pending.tenant_id == tenant_id:
            found[pending.run_id] = _live_summary(pending, RunState.PENDING)
    for running in database.of_task(task_id):
        if running.run.tenant_id == tenant_id:
            found[running.run.run_id] = _live_summary(running.run, RunState.RUNNING)
    return [found[run_id] for run_id in sorted(found, reverse=True)]


def _live_summary(row: Pending | Begun, state: RunState) -> RunSummary:
    return RunSummary(
        run_id=row.run_id,
        state=state,
        kind=row.kind,
        slot=row.slot,
        due_at=row.due_at,
        attempts=row.fence - row.losses,
        outcome=None,
        started_at=None,
        ended_at=None,
        http_status=None,
        reason=None,
        until_slot=None,
        skip_count=None,
        skip_exact=None,
    )


def _ended_summary(row: HistoryRow) -> RunSummary:
    return RunSummary(
        run_id=row.run_id,
        state=row.state or RunState.PENDING,
        kind=row.kind,
        slot=row.slot,
        due_at=row.due_at,
        attempts=row.fence - row.losses,
        outcome=row.outcome,
        started_at=row.started_at,
        ended_at=row.ended_at,
        http_status=row.http_status,
        reason=row.reason,
        until_slot=row.until_slot,
        skip_count=row.skip_count,
        skip_exact=row.skip_exact,
    )
