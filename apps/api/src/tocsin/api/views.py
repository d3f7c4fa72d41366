"""Tasks, runs and slots as JSON."""

from collections.abc import Iterable
from typing import Any

from tocsin.api.definitions import definition_document
from tocsin.api.timestamps import format_timestamp
from tocsin.common.models import TaskState
from tocsin.common.states import RunState
from tocsin.common.store.rows import Outcome
from tocsin.common.store.views import HistoryRow, RunSummary, RunView, TaskView
from tocsin.common.time.schedule import PreviewSlot


def task_document(view: TaskView, *, with_body: bool = True) -> dict[str, Any]:
    """A task, its definition and its next slot. Without its body: the body's size instead."""
    task = view.task
    if task is None:
        return {
            "id": str(view.id),
            "name": view.name,
            "state": TaskState.FAULTY,
            "fault": view.fault,
            "next": None,
        }
    definition = definition_document(task, with_body=with_body)
    if not with_body:
        definition["request"]["body_bytes"] = len(task.body or b"")
    return {
        "id": str(task.id),
        **definition,
        "state": task.state,
        "version": task.version,
        "created_at": format_timestamp(task.created_at),
        "updated_at": format_timestamp(task.updated_at),
        "fault": view.fault,
        "next": _next(view),
    }


def _next(view: TaskView) -> dict[str, Any] | None:
    if view.next_slot is None:
        return None
    return {
        "scheduled_for": format_timestamp(view.next_slot),
        "due_at": format_timestamp(view.next_due_at),
    }


def run_summary_document(run: RunSummary) -> dict[str, Any]:
    return {
        "id": str(run.run_id),
        "state": run.state,
        "kind": run.kind,
        "scheduled_for": format_timestamp(run.slot),
        "due_at": format_timestamp(run.due_at),
        "attempts": run.attempts,
        "outcome": run.outcome,
        "http_status": run.http_status,
        "started_at": format_timestamp(run.started_at),
        "ended_at": format_timestamp(run.ended_at),
        "reason": run.reason,
        "skipped": None
        if run.skip_count is None
        else {
            "first": format_timestamp(run.slot),
            "last": format_timestamp(run.until_slot),
            "count": run.skip_count,
            "exact": run.skip_exact,
        },
    }


def run_document(run: RunView) -> dict[str, Any]:
    """A run with every attempt whose call ended; results that came too late to count are marked stale."""
    last = next((row for row in reversed(run.attempts) if not row.stale), None)
    ended = last is not None and run.state.terminal
    skip = last if last is not None and run.state is RunState.SKIPPED else None
    return {
        "id": str(run.run_id),
        "task_id": str(run.task_id),
        "state": run.state,
        "kind": run.kind,
        "scheduled_for": format_timestamp(run.slot),
        "due_at": format_timestamp(run.due_at),
        "cancel_requested": run.cancelled,
        "reason": last.reason if ended and last is not None else None,
        "skipped": None
        if skip is None
        else {
            "first": format_timestamp(skip.slot),
            "last": format_timestamp(skip.until_slot),
            "count": skip.skip_count,
            "exact": skip.skip_exact,
        },
        "attempts": [_attempt_document(row) for row in run.attempts if _is_attempt(row)],
    }


def _is_attempt(row: HistoryRow) -> bool:
    """Rows of no attempt: a skip, or a cancellation before the call."""
    if row.outcome is Outcome.CANCELLED:
        return row.sent or row.started_at is not None
    return row.outcome is not Outcome.SKIPPED


def _attempt_document(row: HistoryRow) -> dict[str, Any]:
    return {
        "attempt": row.fence - row.losses,
        "outcome": row.outcome,
        "sent": row.sent,
        "stale": row.stale,
        "http_status": row.http_status,
        "started_at": format_timestamp(row.started_at),
        "ended_at": format_timestamp(row.ended_at),
        "reason": row.reason,
        "error": row.error,
        "response": None if row.response is None else row.response.decode("utf-8", "replace"),
    }


def preview_document(slots: Iterable[PreviewSlot], *, saved: bool, spread: bool) -> dict[str, Any]:
    """Slots to come, nominal (`scheduled_for`) and effective (`due_at`).

    A task's share of a spread comes of its id: of an unsaved definition with a spread it is not known.
    """
    known = saved or not spread
    return {
        "slots": [
            {
                "scheduled_for": format_timestamp(slot.slot),
                "due_at": format_timestamp(slot.due_at) if known else None,
                "local": slot.local,
                "effect": slot.effect,
            }
            for slot in slots
        ]
    }
