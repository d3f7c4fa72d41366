"""No hints: what runs unless an index has proved itself by measurement."""

from collections.abc import Collection, Sequence
from uuid import UUID

from tocsin.common.store.rows import Pending


class NullHints:
    """Names nothing."""

    async def add(self, rows: Sequence[Pending]) -> None:
        """Forgets them."""

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        return []

    async def remove(self, runs: Sequence[tuple[UUID, UUID]]) -> None:
        """Nothing was remembered."""
