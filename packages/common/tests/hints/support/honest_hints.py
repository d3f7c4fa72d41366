"""The smallest honest hint index: what it was told is pending and due, and nothing else."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tocsin.common.clock import Clock
from tocsin.common.store.rows import Pending


class HonestHints:
    """Rows by id; the longest due first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[UUID, Pending] = {}

    async def add(self, rows: Sequence[Pending]) -> None:
        self._rows.update({row.run_id: row for row in rows})

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        until = self._clock.now() + timedelta(seconds=lead)
        rows = [row for row in self._rows.values() if row.tenant_id in tenant_ids and row.due_at <= until]
        return [row.run_id for row in sorted(rows, key=lambda row: (row.due_at, row.run_id))[:limit]]

    def due_at(self, run_id: UUID) -> datetime:
        return self._rows[run_id].due_at

    async def remove(self, runs: Sequence[tuple[UUID, UUID]]) -> None:
        for _, run_id in runs:
            self._rows.pop(run_id, None)
