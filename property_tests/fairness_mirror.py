"""What the fairness machine itself knows of the rows and calls of a board, and what it holds against its choices."""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from tocsin.common.store.rows import Pending

ONE_IN = 20
"""Of so many picks one leaves priority out, as documented."""

RowKey = tuple[datetime, UUID]
QueueKey = tuple[UUID, int, int]
"""Tenant, priority, endpoint."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`endpoint_cap` None: none."""

    weight: float
    cap: int
    endpoint_cap: int | None


@dataclass(slots=True)
class Watch:
    """One waiting run of the lowest priority, since when it had room all the while, and what the bound counts."""

    row: Pending
    since: int
    tenants: set[UUID] = field(default_factory=set)
    before: set[UUID] = field(default_factory=set)

    @property
    def bound(self) -> int:
        return ONE_IN * len(self.tenants) * (len(self.before) + 1)


class Mirror:
    """Rows by tenant, priority and endpoint in due order; calls in flight; counts of picks."""

    def __init__(self, process_cap: int) -> None:
        self.process_cap = process_cap
        self.limits: dict[UUID, Limits] = {}
        self.rows: dict[UUID, Pending] = {}
        self.endpoint: dict[UUID, int] = {}
        self.queues: defaultdict[QueueKey, list[RowKey]] = defaultdict(list)
        self.aside: dict[UUID, tuple[Pending, float]] = {}
        self.flying: Counter[UUID] = Counter()
        self.flying_to: Counter[tuple[UUID, int]] = Counter()
        self.picks = 0
        self.last_patient: Counter[UUID] = Counter()
        self.watches: dict[UUID, Watch] = {}

    # --- rows and calls -----------------------------------------------------------------------------------------

    def _queue(self, row: Pending) -> list[RowKey]:
        return self.queues[row.tenant_id, int(row.priority), self.endpoint[row.task_id]]

    def add(self, row: Pending) -> None:
        self.rows[row.run_id] = row
        insort(self._queue(row), (row.due_at, row.run_id))

    def take(self, row: Pending) -> None:
        """Out of its queue, or from aside."""
        self.rows.pop(row.run_id)
        if self.aside.pop(row.run_id, None) is None:
            queue = self._queue(row)
            del queue[bisect_left(queue, (row.due_at, row.run_id))]

    def put_aside(self, row: Pending, until: float) -> None:
        self.rows[row.run_id] = row
        self.aside[row.run_id] = (row, until)

    def return_aside(self, task_id: UUID) -> None:
        for row, _ in [entry for entry in self.aside.values() if entry[0].task_id == task_id]:
            del self.aside[row.run_id]
            self.add(row)

    def fly(self, row: Pending, count: int = 1) -> None:
        self.flying[row.tenant_id] += count
        self.flying_to[row.tenant_id, self.endpoint[row.task_id]] += count

    def waiting(self, tenant_id: UUID, priority: int) -> int:
        return sum(1 for row in self.rows.values() if (row.tenant_id, row.priority) == (tenant_id, priority))

    @property
    def process_room(self) -> int:
        return self.process_cap - sum(self.flying.values())

    def has_room(self, tenant_id: UUID, endpoint: int) -> bool:
        limits = self.limits[tenant_id]
        if self.flying[tenant_id] >= limits.cap or self.process_room <= 0:
            return False
        return limits.endpoint_cap is None or self.flying_to[tenant_id, endpoint] < limits.endpoint_cap

    def heads(self) -> Iterator[Pending]:
        """The first row of each queue that may be begun now: by a call of its tenant to its endpoint."""
        for (tenant_id, _, endpoint), queue in self.queues.items():
            if queue and self.has_room(tenant_id, endpoint):
                yield self.rows[queue[0][1]]

    # --- the choice ---------------------------------------------------------------------------------------------

    def check(self, chosen: Sequence[Pending], limit: int, now: float) -> None:
        """Goes through a choice pick by pick.

        Raises:
            AssertionError: a pick was not the right one, or there were too few.
        """
        limit = min(limit, self.process_room)
        over = {run_id for run_id, (_, until) in self.aside.items() if until <= now}
        self._watch()
        for row in chosen:
            self.picks += 1
            self._check_pick(row, over)
            self.take(row)
            self.fly(row)
            if self.picks % ONE_IN == 0:
                self.last_patient[row.tenant_id] = self.picks
            self._check_watch(row)
        if len(chosen) < limit:
            left = next(self.heads(), None)
            assert left is None, "promise 9: a run that is due and has room waits, while a slot is idle"
        assert len(chosen) <= limit, "promise 10: more calls than the process may have"

    def _check_pick(self, row: Pending, over: set[UUID]) -> None:
        assert row.run_id in self.rows, "promise 2: a row was chosen that does not wait"
        assert row.run_id not in self.aside or row.run_id in over, "a row was chosen before its time aside was over"
        endpoint = self.endpoint[row.task_id]
        assert self.has_room(row.tenant_id, endpoint), "promise 10: a call was chosen without room for it"
        heads = list(self.heads())
        for watch in self.watches.values():
            watch.tenants |= {head.tenant_id for head in heads} | {row.tenant_id}
        own = [head for head in heads if head.tenant_id == row.tenant_id]
        key = (row.due_at, row.run_id)
        if self.picks % ONE_IN:
            most_urgent = min(head.priority for head in heads) if heads else row.priority
            assert row.priority <= most_urgent, f"promise 9: priority {row.priority} went before {most_urgent}"
            same = [(h.due_at, h.run_id) for h in own if h.priority == row.priority]
            assert not same or key <= min(same), "promise 9: a later run of a queue went first"
            return
        longest_without = min((self.last_patient[head.tenant_id] for head in heads), default=self.picks)
        assert self.last_patient[row.tenant_id] <= longest_without, "promise 9: a tenant's turn was passed over"
        assert not own or row.due_at <= min(h.due_at for h in own), "promise 9: the longest due run was passed over"

    # --- the bound for what has waited --------------------------------------------------------------------------

    def _watch(self) -> None:
        """Of each tenant the longest due run of the lowest priority that has room."""
        for tenant_id in self.limits:
            watch = self.watches.get(tenant_id)
            if watch is not None and watch.row.run_id in self.rows and watch.row.run_id not in self.aside:
                if not self.has_room(tenant_id, self.endpoint[watch.row.task_id]):
                    self.watches[tenant_id] = Watch(watch.row, self.picks)
            else:
                self.watches.pop(tenant_id, None)
                lowest = [
                    self.rows[queue[0][1]]
                    for (owner, priority, _), queue in self.queues.items()
                    if owner == tenant_id and priority == 3 and queue
                ]
                if lowest:
                    first = min(lowest, key=lambda row: (row.due_at, row.run_id))
                    self.watches[tenant_id] = Watch(first, self.picks)
        for tenant_id, watch in self.watches.items():
            mine = (row for row in self.rows.values() if row.tenant_id == tenant_id)
            watch.before |= {row.run_id for row in mine if row.due_at <= watch.row.due_at} - {watch.row.run_id}

    def _check_watch(self, row: Pending) -> None:
        for tenant_id, watch in list(self.watches.items()):
            waited = self.picks - watch.since
            assert waited <= watch.bound, (
                f"promise 9: a run of the lowest priority waits for {waited} picks; {watch.bound} are promised"
            )
            if watch.row.run_id == row.run_id:
                del self.watches[tenant_id]
            elif not self._tenant_has_room(watch.row):
                self.watches[tenant_id] = Watch(watch.row, self.picks)

    def _tenant_has_room(self, row: Pending) -> bool:
        """Whatever the process has: without room there are no picks at all."""
        limits, endpoint = self.limits[row.tenant_id], self.endpoint[row.task_id]
        within = limits.endpoint_cap is None or self.flying_to[row.tenant_id, endpoint] < limits.endpoint_cap
        return self.flying[row.tenant_id] < limits.cap and within
