"""What the database says: history, read row by row."""

import sys
from datetime import datetime
from typing import Any

import asyncpg

from bench.system import Connection
from property_tests.chaos.ledger import Row


async def read_rows(connection: Connection) -> list[Row]:
    """All of history. What many rows share is one object in all: they may be millions."""
    rows: list[Row] = []
    same: dict[Any, Any] = {}
    async with connection.transaction(readonly=True):
        async for row in connection.cursor(
            "select run_id, task_id, fence, kind, due_at, slot, last_slot, until_slot, ended_at, state, outcome, sent,"
            " stale, lease_id from history",
            prefetch=5000,
        ):
            rows.append(_row(row, same))
    return rows


def _row(row: asyncpg.Record, same: dict[Any, Any]) -> Row:
    def shared(value: Any) -> Any:
        return same.setdefault(value, value)

    return Row(
        run_id=row["run_id"],
        task_id=shared(row["task_id"]),
        fence=row["fence"],
        kind=sys.intern(row["kind"]),
        due_at=_unix(row["due_at"]),
        slot=shared(_unix(row["slot"])),
        last_slot=shared(_unix(row["last_slot"])),
        until_slot=shared(_unix(row["until_slot"])),
        ended_at=row["ended_at"].timestamp(),
        state=row["state"] and sys.intern(row["state"]),
        outcome=sys.intern(row["outcome"]),
        sent=row["sent"],
        stale=row["stale"],
        lease_id=shared(row["lease_id"]),
    )


def _unix(instant: datetime | None) -> float | None:
    return None if instant is None else instant.timestamp()
