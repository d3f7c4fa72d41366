"""One tenant's scheduler: its queues, what it has in flight, and what it has used of late."""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from operator import itemgetter
from uuid import UUID

from tocsin.common.models import Priority
from tocsin.common.store.rows import Pending
from tocsin.common.store.tenants import OwnedTenant, Tenant, part_of_cap

PAGE = 256
"""Runs of one queue that memory holds, but for those that were planted here."""

FULL = 3 * PAGE
"""Queued rows of one queue above which reads take none up; and the rows of one that may wait for full endpoints."""

ASIDE_FULL = 20 * PAGE
"""Rows of one queue aside, waiting for their busy tasks, above which reads take none of it up."""

RowKey = tuple[datetime, UUID]
"""A row's place in its queue."""

_HALF_LIFE = 10.0
_TAU = _HALF_LIFE / math.log(2)


_DUE_AT, _ROW = itemgetter(0), itemgetter(2)


class Queue:
    """The head of one (tenant, priority) in due order, and where the next page begins."""

    def __init__(self) -> None:
        self._rows: list[tuple[datetime, UUID, Pending]] = []  # run ids are unique: rows are never compared
        self.cursor: RowKey | None = None
        """The last key of a full page: rows behind it are not in memory."""
        self.left: dict[str, RowKey] = {}
        """By endpoint, where a row stands that was left in the database, since too many wait for that endpoint."""
        self.reached: RowKey | None = None
        """The last key read where nothing was behind it."""
        self.looked: RowKey | None = None
        """While some are left: how far the last look at all of the queue came."""
        self.look_until: datetime | None = None
        """Where the looks at all of the queue end, and begin again: the margin as the first of them was made."""

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Pending]:
        return (row for _, _, row in self._rows)

    def add(self, row: Pending) -> None:
        insort(self._rows, (row.due_at, row.run_id, row))

    def due(self, until: datetime) -> Iterator[Pending]:
        """The rows due by `until`, in order."""
        return map(_ROW, islice(self._rows, bisect_right(self._rows, until, key=_DUE_AT)))

    def first_due(self) -> datetime | None:
        return self._rows[0][0] if self._rows else None

    def first(self, count: int | None) -> list[Pending]:
        """The first `count` rows; None: all of them."""
        return list(islice(self, count))

    def last(self) -> Pending:
        return self._rows[-1][2]

    def leave(self, endpoint: str, row: Pending) -> None:
        """Remembers that a row of this endpoint is left in the database."""
        key = key_of(row)
        self.left[endpoint] = min(self.left.get(endpoint, key), key)

    def discard(self, row: Pending) -> None:
        """Takes out a row, by its place; nothing where it is not there."""
        at = bisect_left(self._rows, (row.due_at, row.run_id))
        if at < len(self._rows) and self._rows[at][1] == row.run_id:
            del self._rows[at]


def key_of(row: Pending) -> RowKey:
    return row.due_at, row.run_id


class Usage:
    """In-flight seconds with a half-life of ten seconds: `n` calls in flight for long come to about `14 n`."""

    def __init__(self, now: float) -> None:
        self._seconds = 0.0
        self._at = now
        self._mean_call = 0.1

    def advance(self, now: float, in_flight: int) -> float:
        """Counts `in_flight` calls since the last time, and says the seconds used."""
        decay = math.exp(-(now - self._at) / _TAU)
        self._seconds = self._seconds * decay + in_flight * _TAU * (1 - decay)
        self._at = now
        return self._seconds

    def call_ended(self, seconds: float) -> None:
        self._mean_call += 0.1 * (seconds - self._mean_call)

    @property
    def mean_call(self) -> float:
        """Seconds that one more call is expected to take."""
        return max(self._mean_call, 0.001)


class TenantScheduler:
    """What an owner knows of one tenant. Built from the database, and dropped when the shard is given away."""

    def __init__(self, owned: Sequence[OwnedTenant], now: float) -> None:
        self.owned = tuple(owned)
        """The tenant's shards that this process owns: one, but where it has shards of its own."""
        self.queues = {int(priority): Queue() for priority in Priority}
        self.usage = Usage(now)
        self.in_flight = 0
        self.held_elsewhere = 0
        """Runs that other live leases hold of this tenant beyond their parts of its cap (rule 1): counted when it was
        taken up, and until there are none."""
        self.last_patient = 0
        """The pick at which it last had one that leaves priority out."""

    @property
    def tenant(self) -> Tenant:
        return self.owned[0].tenant

    @property
    def tenant_id(self) -> UUID:
        return self.tenant.id

    @property
    def shards(self) -> set[int]:
        return {part.shard for part in self.owned}

    @property
    def lanes(self) -> list[tuple[int, int]]:
        """The ranges [first, last) of lanes served, those that touch as one."""
        ranges: list[tuple[int, int]] = []
        for part in sorted(self.owned, key=lambda part: part.lane_first):
            touching = bool(ranges) and ranges[-1][1] == part.lane_first
            ranges.append((ranges.pop()[0] if touching else part.lane_first, part.lane_last))
        return ranges

    @property
    def cap(self) -> int:
        """The part of the tenant's cap that these shards have."""
        return max(1, part_of_cap(self.tenant.max_in_flight, len(self.owned), self.owned[0].parts))

    @property
    def room(self) -> int:
        """What may be begun: others keep to their parts, but for what they hold of shards that they gave away."""
        return self.cap - self.in_flight - self.held_elsewhere

    def due(self, until: datetime) -> list[Pending]:
        """The rows of all queues that are due by then."""
        found: list[Pending] = []
        for queue in self.queues.values():
            if (first := queue.first_due()) is not None and first <= until:
                found += queue.due(until)
        return found

    def serves(self, row: Pending) -> bool:
        return any(part.lane_first <= row.lane < part.lane_last for part in self.owned)
