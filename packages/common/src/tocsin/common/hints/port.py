"""The port of the hint index: ids of runs that may be due. A hint is never proof of anything (promise 11).

A hinted id is looked up in the database and takes the same way as a row that a read found: it is begun only if it is
pending, due, of an owned tenant, and within every cap. So an index that is empty, stale, foreign or lying changes when
a row is found, at most, never what becomes of it.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from tocsin.common.store.rows import Pending

HORIZON = timedelta(hours=1)
"""What is due later need not be told: a look at its queue finds it as it comes near."""


class HintIndex(Protocol):
    """Every method may fail with any exception: the caller logs it once and goes on without hints."""

    async def add(self, rows: Sequence[Pending]) -> None:
        """Says that these rows are pending."""
        ...

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        """At most `limit` run ids of these tenants that may be due within `lead` seconds."""
        ...

    async def remove(self, runs: Sequence[tuple[UUID, UUID]]) -> None:
        """Says that these runs, by tenant id and run id, are no longer pending."""
        ...
