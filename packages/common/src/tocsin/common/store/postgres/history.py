"""History's partitions, one a UTC day of `ended_at`, and idempotency keys: what is made ahead and what ages out."""

import re
from datetime import UTC, date, datetime, timedelta

from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.postgres.database import Database
from tocsin.common.store.postgres.leases import now_of
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.rows import KeepResult

_NAME = re.compile(r"history_(\d{4})(\d\d)(\d\d)")
_DAY = timedelta(days=1)

_KEEP_LOCK_SECONDS = 2.0
"""For DEFAULT alone: only readers of history queue behind the keeper. Longer than the second after which
PostgreSQL ends an autovacuum that stands in the way."""

_EXPIRE_LOCK_SECONDS = 0.2
"""For history itself: begins and completions queue behind retention."""

_SCRIPT_SECONDS = 120.0
"""For moving a day's rows out of DEFAULT."""


class PostgresHistory:
    """The partition keeper's and retention's statements.

    A day's partition has fixed bounds in UTC, written out, whatever zone the connection has. No lock is waited
    for longer than named above: what cannot be had now is left for the next time, so that no queue forms behind
    somebody's long transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, today: date | None, days_ahead: int) -> KeepResult:
        """Makes missing partitions, and moves what DEFAULT holds of their days into them, one transaction a day.

        DEFAULT then holds nothing: a day far from today that has rows there gets its partition too. Rows move and
        the partition is attached while DEFAULT is locked, so none can come in between; other days go on.
        """
        if today is None:
            today = now_of(await self._database.fetch("now")).astimezone(UTC).date()
        strays = {row["day"]: row["rows"] for row in await self._database.fetch("history_default_days")}
        wanted = {today + _DAY * n for n in range(-1, days_ahead + 1)} | set(strays)
        present = {day for _, day, attached in await self._partitions() if attached}
        made, postponed, moved = [], [], 0
        for day in sorted(wanted - present):
            try:
                moved += await self._make(day)
                made.append(_name(day))
            except StoreUnavailableError:
                postponed.append(_name(day))
        return KeepResult(tuple(made), moved, tuple(postponed))

    async def _make(self, day: date) -> int:
        values = {"name": _name(day), "first": _midnight(day), "end": _midnight(day + _DAY)}
        scripts = [query(name).format(**values) for name in ("history_fill", "history_attach")]
        filled, _ = await self._database.alter(scripts, lock_timeout=_KEEP_LOCK_SECONDS, timeout=_SCRIPT_SECONDS)
        return int(filled.rpartition(" ")[2])  # the tag "INSERT 0 n"

    async def expire(self, older_than_days: int) -> list[str]:
        """Drops whole partitions: detached first, in a transaction of its own, so that history is locked for no
        longer than a catalogue entry takes. A table that was detached and not yet dropped is dropped by the next call.
        """
        today = now_of(await self._database.fetch("now")).astimezone(UTC).date()
        dropped = []
        for name, day, attached in await self._partitions():
            if day + _DAY > today - _DAY * older_than_days:
                continue
            try:
                if attached:
                    await self._alter_at_once("history_detach", name)
                await self._alter_at_once("history_drop", name)
            except StoreUnavailableError:
                continue
            dropped.append(name)
        return dropped

    async def _alter_at_once(self, script: str, name: str) -> None:
        await self._database.alter(
            [query(script).format(name=name)], lock_timeout=_EXPIRE_LOCK_SECONDS, timeout=_SCRIPT_SECONDS
        )

    async def default_rows(self) -> int:
        return sum(row["rows"] for row in await self._database.fetch("history_default_days"))

    async def expire_keys(self, seconds: float) -> int:
        return len(await self._database.fetch("idempotency_expire", seconds))

    async def _partitions(self) -> list[tuple[str, date, bool]]:
        """Name, day, and whether it is attached, of every table that was made as a day's partition."""
        found = []
        for row in await self._database.fetch("history_partitions"):
            if (parts := _NAME.fullmatch(row["name"])) is not None:
                found.append((row["name"], date(*map(int, parts.groups())), row["attached"]))
        return found


def _name(day: date) -> str:
    return f"history_{day:%Y%m%d}"


def _midnight(day: date) -> str:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).isoformat(sep=" ")
