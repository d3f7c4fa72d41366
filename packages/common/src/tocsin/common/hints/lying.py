"""Hint indexes that lie, one way each: what the conformance suite and the machines put in an honest one's place."""

import random
from collections.abc import Collection, Sequence
from uuid import UUID

from tocsin.common.store.rows import Pending


class StaleHints:
    """Never forgets: names every run that was ever added, begun and ended ones included."""

    def __init__(self) -> None:
        self._rows: dict[UUID, Pending] = {}

    async def add(self, rows: Sequence[Pending]) -> None:
        self._rows.update({row.run_id: row for row in rows})

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        return [run_id for run_id, row in self._rows.items() if row.tenant_id in tenant_ids][:limit]

    async def remove(self, runs: Sequence[tuple[UUID, UUID]]) -> None:
        """Deaf to it."""


class ForeignHints(StaleHints):
    """Names other tenants' runs, and none of those asked for."""

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        return [run_id for run_id, row in self._rows.items() if row.tenant_id not in tenant_ids][:limit]


class InventedHints(StaleHints):
    """Names ids that never were, among them some that are, each several times."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        real = (await super().due(tenant_ids, lead, limit)) * 3
        invented = [UUID(int=self._rng.getrandbits(128)) for _ in range(10)]
        named = real + invented
        self._rng.shuffle(named)
        return named[:limit]


class FailingHints:
    """Raises, whatever it is asked."""

    async def add(self, rows: Sequence[Pending]) -> None:
        raise ConnectionError("the hint index is gone")

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        raise ConnectionError("the hint index is gone")

    async def remove(self, runs: Sequence[tuple[UUID, UUID]]) -> None:
        raise ConnectionError("the hint index is gone")
