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


@dataclass(slots=True)
class _Queue:
    candidate: Candidate
    rows: Iterator[Pending]
    head: Pending


_Key = tuple[int, float, datetime, int]


class _Order:
    """The queues by one key, smallest first. Keys only grow, so an outdated entry is re-keyed when it comes up."""

    def __init__(self, queues: Iterable[_Queue], *, with_priority: bool) -> None:
        self._with_priority = with_priority
        self._heap = [(self._key(queue, number), queue.head, queue) for number, queue in enumerate(queues)]
        heapq.heapify(self._heap)

    def _key(self, queue: _Queue, number: int) -> _Key:
        first = int(queue.head.priority) if self._with_priority else queue.candidate.last_patient
        return (first, queue.candidate.usage, queue.head.due_at, number)

    def first(self) -> _Queue | None:
        while self._heap:
            key, head, queue = self._heap[0]
            if queue.head is _GONE or queue.candidate.room <= 0:
                heapq.heappop(self._heap)
                continue
            current = self._key(queue, key[3])
            if current == key and head is queue.head:
                return queue
            heapq.heapreplace(self._heap, (current, queue.head, queue))
        return None


_GONE: Pending = None  # type: ignore[assignment]  # the head of a queue that has run out


def urgency(row: Pending) -> tuple[int, datetime]:
    """The order of what is begun together where all of it may be begun."""
    return row.priority, row.due_at


def choose(candidates: Iterable[Candidate], limit: int, picks: int, take_endpoint: Callable[[Pending], bool]) -> Chosen:
    """At most `limit` rows to begin, the most urgent first.

    `picks` is the count of picks so far. `take_endpoint` says whether the endpoint of a row may take one
    more call, and counts it when it says yes; a row without room there is passed over, and its queue goes
    on with the next. Cost: O(log queues) a pick.
    """
    queues = [
        _Queue(candidate, rows, head)
        for candidate in candidates
        for rows in candidate.queues.values()
        if (head := next(rows, None)) is not None
    ]
    urgent = _Order(queues, with_priority=True)
    patient = _Order(queues, with_priority=False)
    chosen: list[Pending] = []
    while len(chosen) < limit:
        is_patient = (picks + 1) % ANY_PRIORITY == 0
        order = patient if is_patient else urgent
        queue = order.first()
        if queue is None:
            break
        row = queue.head
        queue.head = next(queue.rows, _GONE)
        if not take_endpoint(row):
            continue
        picks += 1
        chosen.append(row)
        if is_patient:
            queue.candidate.last_patient = picks
        queue.candidate.room -= 1
        queue.candidate.usage += queue.candidate.cost
    return Chosen(chosen, picks)
