"""The pure choice: which due runs to begin next, under caps, by priority and by what each tenant has used.

A pick goes to the lowest (priority, the tenant's in-flight seconds over its weight, due_at) among the
queues with room. One pick in `ANY_PRIORITY` leaves priority out and goes to the longest due head of the
tenant that has gone longest without such a pick, so what has waited moves up.

The bound, for a due run of any priority whose tenant and endpoint have room all the while, and which stays
pending: it is among the next `ANY_PRIORITY * tenants * (before + 1)` picks. `before` counts its tenant's other
runs, of any priority, that are due no later than it, and so may go first; `tenants` those, its own included, that
have due runs and room at some pick in that time. For a run that is the longest due of its tenant, and as many
starts a second as picks, that is `ANY_PRIORITY * tenants / starts per second` seconds. Nothing is promised while a
cap, of the tenant, the endpoint or the process, leaves no room; nor across a hand-over of the tenant's shard,
where the turns begin anew; nor to a run whose task was found busy, which is tried again at times (`Board`).
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from uuid import UUID

from tocsin.common.store.rows import Pending

ANY_PRIORITY = 20


@dataclass(slots=True)
class Candidate:
    """A tenant with due runs.

    `queues` gives, by priority, its due rows in due order. `room` is what its cap leaves; `usage` its
    recent in-flight seconds over its weight; `cost` what one more call adds to that; `last_patient` the
    count of picks at which it last had one that left priority out. `choose` brings these up to date.
    """

    tenant_id: UUID
    usage: float
    cost: float
    room: int
    last_patient: int
    queues: dict[int, Iterator[Pending]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """`rows` in the order of their picks; `picks` continues the count for the next call."""

    rows: list[Pending]
    picks: int


class _Tenant:
    """A tenant's queues that have due rows. Of those only two heads may be next: that of the most urgent queue, and
    that which has been due for longest; so an order holds one entry a tenant, however many queues it has."""

    __slots__ = ("_rows", "candidate", "heads")

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self._rows = candidate.queues
        self.heads: dict[int, Pending] = {}
        for priority in sorted(self._rows):
            self.advance(priority)

    @property
    def urgent(self) -> Pending:
        return next(iter(self.heads.values()))

    @property
    def longest_due(self) -> Pending:
        return min(self.heads.values(), key=_due_at)

    def advance(self, priority: int) -> None:
        """Goes on to the next row of this queue."""
        head = next(self._rows[priority], None)
        if head is None:
            self.heads.pop(priority, None)
        else:
            self.heads[priority] = head


_due_at = attrgetter("due_at")

_Key = tuple[int, float, datetime, int]


class _Order:
    """The tenants by one key, smallest first. Keys only grow, so an outdated entry is re-keyed when it comes up."""

    def __init__(self, tenants: Iterable[_Tenant], *, with_priority: bool) -> None:
        self._with_priority = with_priority
        self._heap = [(self._key(tenant, number), tenant) for number, tenant in enumerate(tenants)]
        heapq.heapify(self._heap)

    def _key(self, tenant: _Tenant, number: int) -> _Key:
        candidate = tenant.candidate
        if self._with_priority:
            row = tenant.urgent
            return (row.priority, candidate.usage, row.due_at, number)
        return (candidate.last_patient, candidate.usage, tenant.longest_due.due_at, number)

    def first(self) -> _Tenant | None:
        while self._heap:
            key, tenant = self._heap[0]
            if not tenant.heads or tenant.candidate.room <= 0:
                heapq.heappop(self._heap)
                continue
            current = self._key(tenant, key[3])
            if current == key:
                return tenant
            heapq.heapreplace(self._heap, (current, tenant))
        return None


def urgency(row: Pending) -> tuple[int, datetime]:
    """The order of what is begun together where all of it may be begun."""
    return row.priority, row.due_at


def choose(candidates: Iterable[Candidate], limit: int, picks: int, take_endpoint: Callable[[Pending], bool]) -> Chosen:
    """At most `limit` rows to begin, the most urgent first.

    `picks` is the count of picks so far. `take_endpoint` says whether the endpoint of a row may take one
    more call, and counts it when it says yes; a row without room there is passed over, and its queue goes
    on with the next. Cost: O(log tenants) a pick.
    """
    tenants = [tenant for tenant in map(_Tenant, candidates) if tenant.heads]
    urgent = _Order(tenants, with_priority=True)
    patient = _Order(tenants, with_priority=False)
    chosen: list[Pending] = []
    while len(chosen) < limit:
        is_patient = (picks + 1) % ANY_PRIORITY == 0
        tenant = (patient if is_patient else urgent).first()
        if tenant is None:
            break
        row = tenant.longest_due if is_patient else tenant.urgent
        tenant.advance(row.priority)
        if not take_endpoint(row):
            continue
        picks += 1
        chosen.append(row)
        candidate = tenant.candidate
        if is_patient:
            candidate.last_patient = picks
        candidate.room -= 1
        candidate.usage += candidate.cost
    return Chosen(chosen, picks)
