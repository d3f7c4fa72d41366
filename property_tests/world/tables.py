"""What the database holds, read in one go: the world's second ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tables:
    """Rows by the names of their columns. `leases`: each one's `expired_at`, by id; `caps`: each tenant's."""

    now: datetime
    pending: Sequence[Row]
    running: Sequence[Row]
    history: Sequence[Row]
    tasks: Mapping[UUID, Row]
    leases: Mapping[UUID, datetime | None]
    caps: Mapping[UUID, int]

    def of_task(self, task_id: UUID) -> "TaskRows":
        def mine(rows: Sequence[Row]) -> list[Row]:
            return [row for row in rows if row["task_id"] == task_id]

        return TaskRows(mine(self.pending), mine(self.running), mine(self.history))


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Everything that the database has of one task."""

    pending: Sequence[Row]
    running: Sequence[Row]
    history: Sequence[Row]
