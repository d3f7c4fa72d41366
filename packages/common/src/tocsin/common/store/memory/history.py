"""History's days and idempotency keys, in memory."""

from datetime import UTC, date, timedelta

from tocsin.common.store.memory.database import DAY, MemoryDatabase
from tocsin.common.store.rows import KeepResult
from tocsin.common.store.views import HistoryRow


class MemoryHistory:
    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def keep(self, today: date | None, days_ahead: int) -> KeepResult:
        await self._db.round_trip()
        today = today or self._db.today()
        strays = self._strays()
        wanted = {today + DAY * n for n in range(-1, days_ahead + 1)} | {_day(row) for row in strays}
        made = sorted(wanted - self._db.partitions)
        self._db.partitions |= wanted
        return KeepResult(tuple(_name(day) for day in made), len(strays), ())

    async def expire(self, older_than_days: int) -> list[str]:
        await self._db.round_trip()
        bound = self._db.today() - DAY * older_than_days
        old = sorted(day for day in self._db.partitions if day + DAY <= bound)
        self._db.partitions -= set(old)
        self._db.history = {key: row for key, row in self._db.history.items() if _day(row) not in old}
        return [_name(day) for day in old]

    async def default_rows(self) -> int:
        await self._db.round_trip()
        return len(self._strays())

    async def expire_keys(self, seconds: float) -> int:
        await self._db.round_trip()
        bound = self._db.now() - timedelta(seconds=seconds)
        old = [key for key, held in self._db.idempotency.items() if held.created_at < bound]
        for key in old:
            del self._db.idempotency[key]
        return len(old)

    def _strays(self) -> list[HistoryRow]:
        return [row for row in self._db.history.values() if _day(row) not in self._db.partitions]


def _day(row: HistoryRow) -> date:
    return row.ended_at.astimezone(UTC).date()


def _name(day: date) -> str:
    return f"history_{day:%Y%m%d}"
