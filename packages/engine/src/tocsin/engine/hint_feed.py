"""What the hint index is to be told: what this owner has begun, planted and got back. It knows all that without asking.

What others plant (the API, another owner) and what is due later than the index keeps is told by nobody: looks at the
queues find it in time.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tocsin.common.hints.port import HORIZON
from tocsin.common.models import Kind
from tocsin.common.store.rows import BeginItem, Pending
from tocsin.engine.begin import planted


class HintFeed:
    """Keeps it until it is taken. The last that was said of a run counts."""

    def __init__(self) -> None:
        self._pending: dict[UUID, Pending] = {}
        self._gone: dict[UUID, UUID] = {}

    def begun(self, items: Sequence[BeginItem], gotten: Collection[UUID]) -> None:
        """A begin took these of its rows, and planted what follows them."""
        for item in items:
            row = item.row
            if row.run_id not in gotten:
                continue
            self._pending.pop(row.run_id, None)
            self._gone[row.run_id] = row.tenant_id
            if row.kind is Kind.NEXT:
                for plant in item.plants:
                    self.pending(planted(row, plant, plant.due_at))

    def pending(self, row: Pending) -> None:
        """It was planted, or is back."""
        self._pending[row.run_id] = row
        self._gone.pop(row.run_id, None)

    def take(self, now: datetime) -> tuple[list[Pending], list[tuple[UUID, UUID]]]:
        """Pending rows due within the index's horizon; and runs, by tenant and id, that are no longer pending."""
        rows = [row for row in self._pending.values() if row.due_at <= now + HORIZON]
        gone = [(tenant_id, run_id) for run_id, tenant_id in self._gone.items()]
        self._pending, self._gone = {}, {}
        return rows, gone
