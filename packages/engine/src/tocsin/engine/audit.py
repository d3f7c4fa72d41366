"""The audit of next rows: every live task has one, but for an active one whose schedule has no slot left.

That holds by conservation (rule 2), not by an index; so somebody has to look. The audit alarms and repairs nothing: a
fault here is one of the code, or of a hand in the tables, and its traces are what finds it.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tocsin.common.models import TaskState
from tocsin.common.store.next_rows import FIRST_TASK, NextRowCount, NextRowStore
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import NEXT_ROW_FAULTS
from tocsin.common.time.schedule import next_slot

log = logging.getLogger("tocsin.engine.audit")

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """A statement looks at `page` tasks; at most `named` tasks of a kind are named in the log."""

    page: int = 1000
    named: int = 20


class NextRowAudit:
    def __init__(self, store: NextRowStore, meter: Meter, config: AuditConfig | None = None) -> None:
        self._store = store
        self._meter = meter
        self._config = config or AuditConfig()

    async def run_once(self) -> dict[str, int]:
        """Looks at every task; says how many have no next row (`none`) and how many several (`several`)."""
        none: list[UUID] = []
        several: list[UUID] = []
        after: UUID | None = FIRST_TASK
        while after is not None:
            page = await self._store.suspects(after, self._config.page)
            if page.suspects:
                # a second look: only what is at fault both times is one
                for count in await self._store.count(page.suspects):
                    if count.next_rows > 1:
                        several.append(count.task_id)
                    elif lacks_next_row(count):
                        none.append(count.task_id)
            after = page.last
        self._meter.set(NEXT_ROW_FAULTS, len(none) + len(several))
        self._alarm("no next row, though their schedule goes on", none)
        self._alarm("more than one next row", several)
        return {"none": len(none), "several": len(several)}

    def _alarm(self, fault: str, tasks: list[UUID]) -> None:
        if tasks:
            shown = ", ".join(map(str, tasks[: self._config.named]))
            more = ", ..." if len(tasks) > self._config.named else ""
            log.error("audit: %d tasks have %s: %s%s", len(tasks), fault, shown, more)


def lacks_next_row(count: NextRowCount) -> bool:
    """Whether a task has no next row and should: its schedule has a slot after all that was accounted for.

    Slots before the last write on the task are not looked for, nor any older than a day: history ages out, and an audit
    of every ten minutes has said so long before.
    """
    if count.next_rows or count.state is not TaskState.ACTIVE:
        return False
    if count.task is None:
        return True  # nobody can tell, and nobody would begin it
    try:
        return next_slot(count.task.plan, _accounted(count, count.task.updated_at)) is not None
    except Exception:
        log.exception("audit: task %s has no next row and cannot be planned", count.task_id)
        return True


def _accounted(count: NextRowCount, updated_at: datetime) -> datetime:
    since = max(updated_at, count.now - _DAY)
    return since if count.greatest_slot is None else max(since, count.greatest_slot)
