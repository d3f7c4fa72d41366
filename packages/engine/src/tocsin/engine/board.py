"""What an owner holds in memory: its tenants' schedulers, the pairs it knows, what is in flight, the definitions."""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from tocsin.common.clock import Clock
from tocsin.common.store.rows import Begun, Pending, Task
from tocsin.common.store.tenants import OwnedTenant
from tocsin.engine.choose import Candidate, choose, urgency
from tocsin.engine.endpoints import Endpoint, Endpoints, QueueKey, count_down, endpoint_of
from tocsin.engine.tenant import FULL, PAGE, TenantScheduler, key_of

Pair = tuple[UUID, int]

_DEFINITIONS = 50_000

TRIALS = PAGE
"""Rows aside that are looked at before a choice, at most."""


class Definitions:
    """Tasks by id, the least recently used dropped first."""

    def __init__(self, size: int = _DEFINITIONS) -> None:
        self._size = size
        self._tasks: OrderedDict[UUID, Task] = OrderedDict()

    def get(self, task_id: UUID) -> Task | None:
        task = self._tasks.get(task_id)
        if task is not None:
            self._tasks.move_to_end(task_id)
        return task

    def put(self, task: Task) -> None:
        self._tasks[task.id] = task
        self._tasks.move_to_end(task.id)
        while len(self._tasks) > self._size:
            self._tasks.popitem(last=False)

    def drop(self, task_id: UUID) -> None:
        self._tasks.pop(task_id, None)


class Board:
    """Not shared between threads; every method runs within one step of the event loop."""

    def __init__(self, clock: Clock, process_cap: int) -> None:
        self._clock = clock
        self.process_cap = process_cap
        self.tenants: dict[UUID, TenantScheduler] = {}
        self.definitions = Definitions()
        self.secrets: dict[UUID, tuple[str, ...]] = {}
        self.in_flight: dict[Pair, Begun] = {}
        self._known: dict[UUID, Pending] = {}
        self._known_of: Counter[QueueKey] = Counter()
        self.endpoints = Endpoints()
        self._flights: dict[Pair, tuple[float, Endpoint | None]] = {}
        """Of what is in flight, when it was begun and where it goes."""
        self._aside: dict[UUID, dict[UUID, Pending]] = {}
        self._aside_until: list[tuple[float, int, Pending]] = []
        self._aside_of: Counter[QueueKey] = Counter()
        self._deferrals = 0
        self._picks = 0
        self._on_trial: dict[UUID, Pending] = {}
        self._tried: set[UUID] = set()
        self._held: Counter[Pair] = Counter()
        self._flights_of: Counter[UUID] = Counter()
        self._landed: set[UUID] = set()

    # --- tenants -----------------------------------------------------------------------------------------------

    def add_tenant(self, owned: Sequence[OwnedTenant]) -> bool:
        """Takes a tenant up with all of its shards that are owned here, or its new limits; says whether it is new,
        or served over other shards than before."""
        tenant_id = owned[0].tenant.id
        present = self.tenants.get(tenant_id)
        if present is not None and present.shards == {part.shard for part in owned}:
            present.owned = tuple(owned)
            return False
        if present is not None:
            self.drop_tenant(tenant_id)
        scheduler = TenantScheduler(owned, self._clock.monotonic())
        scheduler.in_flight = sum(1 for run in self.in_flight.values() if run.tenant_id == tenant_id)
        self.tenants[tenant_id] = scheduler
        return True

    def drop_tenant(self, tenant_id: UUID) -> None:
        """Forgets all it knows of a tenant's pending rows; what is in flight goes on."""
        scheduler = self.tenants.pop(tenant_id, None)
        if scheduler is None:
            return
        aside = [row for rows in self._aside.values() for row in rows.values() if row.tenant_id == tenant_id]
        for row in aside:
            self._take_aside(row)
        waiting = self.endpoints.of_tenant(tenant_id)
        for row in waiting:
            self.endpoints.leave(row)
        for row in [*aside, *waiting, *(row for queue in scheduler.queues.values() for row in queue)]:
            self.forget(row)
        self.secrets.pop(tenant_id, None)

    # --- pending rows ------------------------------------------------------------------------------------------

    def knows(self, row: Pending) -> bool:
        """Whether this pair, or a later one of its run, is in memory: fences only grow."""
        known = self._known.get(row.run_id)
        return known is not None and known.fence >= row.fence

    def known_of(self, tenant_id: UUID, priority: int) -> int:
        """How many rows of a queue are in memory: queued, aside, waiting for endpoints, or in the begin under way."""
        return self._known_of[tenant_id, priority]

    def add(self, row: Pending) -> bool:
        """Takes a pending row up; says whether it was new. Rows of other tenants or lanes are not taken.

        An earlier pair of its run gives way: it was read before the begin that this one comes back from. One whose
        begin is in flight already is out of date: the answer that brings it was long on its way.
        """
        scheduler = self.tenants.get(row.tenant_id)
        if scheduler is None or not scheduler.serves(row) or self.knows(row):
            return False
        if (row.run_id, row.fence + 1) in self.in_flight:
            return False
        if (earlier := self._known.get(row.run_id)) is not None:
            scheduler.queues[earlier.priority].discard(earlier)
            self.endpoints.leave(earlier)
            self._take_aside(earlier)
            self.forget(earlier)
        self._known[row.run_id] = row
        self._known_of[row.tenant_id, row.priority] += 1
        scheduler.queues[row.priority].add(row)
        return True

    def readmit(self, row: Pending) -> None:
        """Puts back a row that was taken for a begin which did not happen. A held one is still held, unless it is
        out of date by now."""
        self._unknow(row)
        if not self.add(row):
            self._held.pop((row.run_id, row.fence), None)

    def defer(self, row: Pending, seconds: float) -> None:
        """Keeps a row aside: its task is busy. It is held from now on."""
        self._held[row.run_id, row.fence] += 1
        self._put_aside(row, self._clock.monotonic() + seconds)

    def times_aside(self, row: Pending) -> int:
        """How often the row was kept aside so far."""
        return self._held[row.run_id, row.fence]

    def aside_of(self, tenant_id: UUID, priority: int) -> int:
        """How many rows of a queue are aside."""
        return self._aside_of[tenant_id, priority]

    def is_held(self, row: Pending) -> bool:
        return (row.run_id, row.fence) in self._held

    def is_waiting(self, task_id: UUID) -> bool:
        """Whether some row of the task is aside, waiting for the task."""
        return task_id in self._aside

    def forget(self, row: Pending) -> None:
        """Drops a pair: begun, skipped or gone."""
        self._unknow(row)
        self._held.pop((row.run_id, row.fence), None)

    def return_deferred(self) -> None:
        """Brings back rows whose time aside is over, for one choice, those first whose time is over longest.

        As many as there is room for, and none of a tenant of which the last choice took such rows: they may be busy
        still, and they are the oldest, so that many of them would take all room from those behind them.
        """
        now = self._clock.monotonic()
        brought: Counter[UUID] = Counter()
        taken: Counter[Endpoint] = Counter()
        rows: list[Pending] = []
        while self._aside_until and self._aside_until[0][0] <= now and len(rows) < TRIALS:
            row = heapq.heappop(self._aside_until)[2]
            if self._take_aside(row):
                rows.append(row)
        for row in rows:
            scheduler = self.tenants.get(row.tenant_id)
            if scheduler is None:
                self.forget(row)
                continue
            has_room = row.tenant_id not in self._tried and brought[row.tenant_id] < scheduler.room
            if has_room and self._take_endpoint(row, taken, []):
                brought[row.tenant_id] += 1
                self.readmit(row)
                self._on_trial[row.run_id] = row
            else:
                self._put_aside(row, now)

    def _end_trials(self, chosen: Sequence[Pending]) -> None:
        """Puts aside again what came back and was not chosen: it stands in nobody's way."""
        trials, self._on_trial = self._on_trial, {}
        taken = {row.run_id for row in chosen}
        self._tried = {row.tenant_id for row in trials.values() if row.run_id in taken}
        back = [row for row in trials.values() if row.run_id not in taken and self._known.get(row.run_id) is row]
        self._unqueue(back)
        for row in back:
            self._put_aside(row, self._clock.monotonic())

    def return_deferred_of(self, task_id: UUID) -> bool:
        """Brings back the rows of a task that is no longer busy; says whether there were any."""
        mine = self._aside.pop(task_id, {})
        for row in mine.values():
            count_down(self._aside_of, (row.tenant_id, int(row.priority)))
            self.readmit(row)
        return bool(mine)

    def _put_aside(self, row: Pending, until: float) -> None:
        self._deferrals += 1
        self._aside.setdefault(row.task_id, {})[row.run_id] = row
        self._aside_of[row.tenant_id, int(row.priority)] += 1
        heapq.heappush(self._aside_until, (until, self._deferrals, row))

    def _take_aside(self, row: Pending) -> bool:
        rows = self._aside.get(row.task_id, {})
        if rows.get(row.run_id) is not row:
            return False
        del rows[row.run_id]
        count_down(self._aside_of, (row.tenant_id, int(row.priority)))
        if not rows:
            del self._aside[row.task_id]
        return True

    def _unknow(self, row: Pending) -> None:
        known = self._known.get(row.run_id)
        if known is not None and known.fence == row.fence:
            del self._known[row.run_id]
            count_down(self._known_of, (row.tenant_id, int(row.priority)))

    # --- the choice --------------------------------------------------------------------------------------------

    def choose(self, until: datetime, limit: int) -> list[Pending]:
        """Takes at most `limit` rows due by `until` off their queues, within every cap."""
        self._landed.clear()
        chosen = self._choose(until, min(limit, self.process_cap - len(self.in_flight)))
        self._end_trials(chosen)
        return chosen

    def _choose(self, until: datetime, limit: int) -> list[Pending]:
        if limit <= 0:
            return []
        self._requeue(self.endpoints.released(self._endpoint_cap))
        if (everything := self._all_due(until, limit)) is not None:
            self._picks += len(everything)
            self._unqueue(everything)
            return everything
        taken: Counter[Endpoint] = Counter()
        refused: list[tuple[Pending, Endpoint]] = []
        candidates = list(self._candidates(until))
        chosen = choose(
            candidates,
            limit,
            self._picks,
            lambda row: self._take_endpoint(row, taken, refused),
        )
        self._picks = chosen.picks
        for candidate in candidates:
            self.tenants[candidate.tenant_id].last_patient = candidate.last_patient
        self._unqueue(chosen.rows)
        self._set_waiting(refused)
        return chosen.rows

    def _all_due(self, until: datetime, limit: int) -> list[Pending] | None:
        """All that is due, the most urgent first, where every cap has room for it: then nobody goes before another, and
        there is nothing to choose, which takes ten times as long. None where some would have to wait."""
        found: list[Pending] = []
        for scheduler in self.tenants.values():
            if mine := scheduler.due(until):
                found += mine
                has_room = len(mine) <= scheduler.room and scheduler.tenant.max_in_flight_per_endpoint is None
                if not has_room or len(found) > limit:
                    return None
        found.sort(key=urgency)
        return found

    def _requeue(self, rows: Sequence[Pending]) -> None:
        for row in rows:
            self.tenants[row.tenant_id].queues[row.priority].add(row)

    def _unqueue(self, rows: Sequence[Pending]) -> None:
        for row in rows:
            self.tenants[row.tenant_id].queues[row.priority].discard(row)

    def _set_waiting(self, refused: Sequence[tuple[Pending, Endpoint]]) -> None:
        """Takes rows of full endpoints out of their queues. What is on trial goes aside again instead, and so does a
        held row that has no place: its hold is known here alone."""
        refused = [(row, endpoint) for row, endpoint in refused if row.run_id not in self._on_trial]
        self._unqueue([row for row, _ in refused])
        for row, endpoint in refused:
            without_place = self.endpoints.wait(row, endpoint)
            if without_place is not None and self.is_held(without_place):
                self._put_aside(without_place, self._clock.monotonic())
            elif without_place is not None:
                self.tenants[row.tenant_id].queues[row.priority].leave(endpoint[1], without_place)
                self.forget(without_place)

    def leaves(self, row: Pending) -> bool:
        """Whether a row that was read stays in the database, since others of its full endpoint stay before it."""
        scheduler = self.tenants.get(row.tenant_id)
        if scheduler is None or not scheduler.queues[row.priority].left:
            return False
        task = self.definitions.get(row.task_id)
        first = None if task is None else scheduler.queues[row.priority].left.get(endpoint_of(task)[1])
        return first is not None and key_of(row) >= first

    def wants(self, key: QueueKey, endpoint: str) -> bool:
        """Whether rows of this endpoint that were left are to be read: memory holds few, and has a place for more; or
        none, and they could be begun."""
        waiting = self.endpoints.waiting((key[0], endpoint), key[1])
        if waiting >= PAGE // 2:
            return False
        cap = self._endpoint_cap(key[0])
        has_room = cap is None or self.endpoints.in_flight[key[0], endpoint] < cap
        return self.endpoints.waiting_of(key) < FULL // 2 or (not waiting and has_room)

    def return_waiting(self, tenant_id: UUID) -> None:
        """Brings the rows that wait back into their queues: their definitions may have changed."""
        rows = self.endpoints.of_tenant(tenant_id)
        for row in rows:
            self.endpoints.leave(row)
        self._requeue(rows)

    def _endpoint_cap(self, tenant_id: UUID) -> int | None:
        return self.tenants[tenant_id].tenant.max_in_flight_per_endpoint

    def _candidates(self, until: datetime) -> Iterator[Candidate]:
        now = self._clock.monotonic()
        for scheduler in self.tenants.values():
            due = {
                priority: queue
                for priority, queue in scheduler.queues.items()
                if (first := queue.first_due()) is not None and first <= until
            }
            if not due or scheduler.room <= 0:
                continue
            weight = scheduler.tenant.weight
            yield Candidate(
                tenant_id=scheduler.tenant_id,
                usage=scheduler.usage.advance(now, scheduler.in_flight) / weight,
                cost=scheduler.usage.mean_call / weight,
                room=scheduler.room,
                last_patient=scheduler.last_patient,
                queues={priority: queue.due(until) for priority, queue in due.items()},
            )

    def _take_endpoint(self, row: Pending, taken: Counter[Endpoint], refused: list[tuple[Pending, Endpoint]]) -> bool:
        cap = self._endpoint_cap(row.tenant_id)
        task = self.definitions.get(row.task_id)
        if cap is None or task is None:
            return True
        endpoint = endpoint_of(task)
        if self.endpoints.in_flight[endpoint] + taken[endpoint] >= cap:
            refused.append((row, endpoint))
            return False
        taken[endpoint] += 1
        return True

    # --- in flight ---------------------------------------------------------------------------------------------

    def take_flight(self, run: Begun, task: Task | None) -> None:
        """Counts a begun run against its caps."""
        now = self._clock.monotonic()
        pair = (run.run_id, run.fence)
        self.in_flight[pair] = run
        endpoint = None if task is None else endpoint_of(task)
        self._flights[pair] = now, endpoint
        self._flights_of[run.task_id] += 1
        scheduler = self.tenants.get(run.tenant_id)
        if scheduler is not None:
            scheduler.usage.advance(now, scheduler.in_flight)
            scheduler.in_flight += 1
        if endpoint is not None:  # without a cap too: there may be one before this lands
            self.endpoints.in_flight[endpoint] += 1

    def land(self, run: Begun) -> None:
        """Counts this begin of a run no longer: its result is committed, or it was put back."""
        pair = (run.run_id, run.fence)
        if self.in_flight.pop(pair, None) is None:
            return
        count_down(self._flights_of, run.task_id)
        self._landed.add(run.task_id)
        now = self._clock.monotonic()
        begun_at, endpoint = self._flights.pop(pair)
        if endpoint is not None:
            self.endpoints.land(endpoint)
        scheduler = self.tenants.get(run.tenant_id)
        if scheduler is not None:
            scheduler.usage.advance(now, scheduler.in_flight)
            scheduler.in_flight -= 1
            scheduler.usage.call_ended(now - begun_at)

    def is_in_flight(self, task_id: UUID) -> bool:
        """Whether a run of the task is in flight here."""
        return task_id in self._flights_of

    def has_landed(self, task_id: UUID) -> bool:
        """Whether a run of the task has landed since the last choice."""
        return task_id in self._landed

    def oldest_due(self) -> datetime | None:
        """The earliest due instant in memory."""
        queues = (q for s in self.tenants.values() for q in s.queues.values())
        firsts = (q.first_due() for q in (*queues, *self.endpoints))
        return min((first for first in firsts if first is not None), default=None)
