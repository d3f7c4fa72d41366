"""The next rows of all tasks, as the Supervisor looks after them: the port and its values.

Its methods are single statements, and raise what those of `ports.py` do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from tocsin.common.models import TaskState
from tocsin.common.store.rows import Task

FIRST_TASK = UUID(int=0)
"""Before every task id."""


@dataclass(frozen=True, slots=True)
class ZoneDataState:
    """By which release of zone data next rows are planned, and which the live leases report.

    `release` is empty where several may have planned. `through`: the last task that was looked at by this release;
    None: all were. `now`: the store's time.
    """

    release: str
    through: UUID | None
    live: frozenset[str]
    now: datetime


@dataclass(frozen=True, slots=True)
class Planned:
    """What a next row says of its slot; `slot` is None while it is parked."""

    slot: datetime | None
    due_at: datetime
    last_slot: datetime | None


@dataclass(frozen=True, slots=True)
class ZonedPage:
    """Tasks with their next rows (None: there is none), and tasks whose definition cannot be read.

    `last` is the page's last task, None where no further page follows.
    """

    tasks: tuple[tuple[Task, Planned | None], ...]
    unreadable: tuple[UUID, ...]
    last: UUID | None


@dataclass(frozen=True, slots=True)
class SuspectPage:
    """`suspects`: tasks of the page that may lack a next row, or have several. `last`: None for an empty page."""

    suspects: tuple[UUID, ...]
    last: UUID | None


@dataclass(frozen=True, slots=True)
class NextRowCount:
    """A task's next rows. `task` is None where its definition cannot be read.

    `greatest_slot`: the greatest slot that the task ever accounted for; None too where it has a next row.
    """

    task_id: UUID
    state: TaskState
    next_rows: int
    task: Task | None
    greatest_slot: datetime | None
    now: datetime


class NextRowStore(Protocol):
    async def zone_data(self) -> ZoneDataState: ...

    async def note_zone_data(self, seen: ZoneDataState, release: str, through: UUID | None) -> bool:
        """Replaces what was `seen`; False, and nothing is written, where another process has replaced it."""
        ...

    async def zoned(self, after: UUID, limit: int) -> ZonedPage:
        """A page of the active tasks on a cron schedule in a zone other than UTC, by id."""
        ...

    async def suspects(self, after: UUID, limit: int) -> SuspectPage:
        """Looks at a page of `limit` tasks, by id.

        An active task without a next row is suspect until a day after its one instant or its end has passed.
        """
        ...

    async def count(self, task_ids: Sequence[UUID]) -> list[NextRowCount]:
        """How many next rows these tasks have, those that are not deleted."""
        ...
