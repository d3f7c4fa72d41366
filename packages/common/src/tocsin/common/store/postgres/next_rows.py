"""The next rows of all tasks: their release of zone data, and how many each task has."""

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from tocsin.common.errors import FaultyDefinitionError
from tocsin.common.models import TaskState
from tocsin.common.store.next_rows import NextRowCount, Planned, SuspectPage, ZoneDataState, ZonedPage
from tocsin.common.store.postgres.database import Database, instant
from tocsin.common.store.postgres.tasks import task_of
from tocsin.common.store.rows import Task


class PostgresNextRows:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def zone_data(self) -> ZoneDataState:
        row = (await self._database.fetch("zone_data_get"))[0]
        return ZoneDataState(row["release"], row["through"], frozenset(row["live"]), row["now"])

    async def note_zone_data(self, seen: ZoneDataState, release: str, through: UUID | None) -> bool:
        return bool(await self._database.fetch("zone_data_set", release, through, seen.release, seen.through))

    async def zoned(self, after: UUID, limit: int) -> ZonedPage:
        rows = await self._database.fetch("zoned_page", after, limit)
        tasks, unreadable = [], []
        for row in rows:
            task = _readable(row)
            if task is None:
                unreadable.append(row["id"])
            else:
                tasks.append((task, _planned_of(row)))
        return ZonedPage(tuple(tasks), tuple(unreadable), rows[-1]["id"] if len(rows) == limit else None)

    async def suspects(self, after: UUID, limit: int) -> SuspectPage:
        rows = await self._database.fetch("next_row_suspects", after, limit)
        found = tuple(row["id"] for row in rows if row["suspect"])
        return SuspectPage(found, rows[-1]["id"] if rows else None)

    async def count(self, task_ids: Sequence[UUID]) -> list[NextRowCount]:
        return [
            NextRowCount(
                task_id=row["id"],
                state=TaskState(row["state"]),
                next_rows=row["next_rows"],
                task=_readable(row),
                greatest_slot=row["greatest_slot"],
                now=row["now"],
            )
            for row in await self._database.fetch("next_row_count", list(task_ids))
        ]


def _readable(row: asyncpg.Record) -> Task | None:
    try:
        return task_of(row)
    except FaultyDefinitionError:
        return None


def _planned_of(row: asyncpg.Record) -> Planned | None:
    due_at = instant(row["next_due_at"])
    return None if due_at is None else Planned(row["next_slot"], due_at, row["next_last_slot"])
