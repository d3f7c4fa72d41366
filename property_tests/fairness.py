"""The fairness machine: what a board chooses among tenants of different weights, caps and backlogs (promises 9, 10).

The real board and the real choice, over rows and calls that the machine makes, lands, puts back and finds busy.
"""

import itertools
from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from property_tests.fairness_mirror import Limits, Mirror
from property_tests.machine import Machine
from tocsin.common.clock import ManualClock
from tocsin.common.models import AtSchedule, CallSpec, Kind, PlanSpec, Priority, TaskState
from tocsin.common.store.rows import Begun, Pending, Task, begun_of, returned
from tocsin.common.store.tenants import OwnedTenant, Tenant
from tocsin.engine.board import TRIALS, Board
from tocsin.engine.endpoints import Endpoint

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
PROCESS_CAP = 12
ENDPOINTS = 2
MOST_WAITING = 150
"""Rows of one queue that the machine makes wait: fewer than a page, so that memory has a place for all of them."""

LIMITS = (Limits(1.0, 3, None), Limits(1.0, 40, 2), Limits(3.0, 40, None), Limits(0.5, 40, 3))
"""Of the tenants, at first."""

TOLERANCE = 0.2
"""By which part a tenant's share of in-flight seconds may differ from its weight's, but for half a slot."""

tenants = st.integers(0, len(LIMITS) - 1)


class CountingBoard(Board):
    """A board that counts the rows that its choices look at."""

    def __init__(self, clock: ManualClock, process_cap: int) -> None:
        super().__init__(clock, process_cap)
        self.looked = 0

    def _take_endpoint(self, row: Pending, taken: Counter[Endpoint], refused: list[tuple[Pending, Endpoint]]) -> bool:
        self.looked += 1
        return super()._take_endpoint(row, taken, refused)


def owned(number: int, limits: Limits) -> list[OwnedTenant]:
    """A tenant on one shard."""
    tenant = Tenant(UUID(int=number + 1), f"tenant {number}", 0, limits.weight, limits.cap, limits.endpoint_cap)
    return [OwnedTenant(tenant, 0, 0, 1024, 1)]


def a_task(number: int, endpoint: int) -> Task:
    call = CallSpec(url=f"https://endpoint{endpoint}.example/")
    task_id, tenant_id = UUID(int=100 * (number + 1) + endpoint), UUID(int=number + 1)
    plan = PlanSpec(schedule=AtSchedule(at=START))
    return Task(task_id, tenant_id, "task", TaskState.ACTIVE, 1, 1, plan, call, None, START, START)


def a_row(task: Task, priority: int, due_at: datetime, number: int) -> Pending:
    run_id = UUID(int=10**9 + number)
    return Pending(
        run_id, 0, task.tenant_id, task.id, Priority(priority), due_at, None, None, 0, Kind.NOW, plan_version=1
    )


class FairnessMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START)
        self.board = CountingBoard(self.clock, PROCESS_CAP)
        self.mirror = Mirror(PROCESS_CAP)
        self.numbers = itertools.count(1)
        self.flights: list[tuple[Pending, Begun]] = []
        self.contended = False
        self.may_look = 0
        """How many rows choices may have looked at by now."""
        for number, limits in enumerate(LIMITS):
            self._limit(number, limits)
            for endpoint in range(ENDPOINTS):
                task = a_task(number, endpoint)
                self.board.definitions.put(task)
                self.mirror.endpoint[task.id] = endpoint

    def _limit(self, number: int, limits: Limits) -> None:
        self.mirror.limits[UUID(int=number + 1)] = limits
        self.mirror.watches.pop(UUID(int=number + 1), None)
        self.board.add_tenant(owned(number, limits))

    # --- rows ---------------------------------------------------------------------------------------------------

    @rule(
        tenant=tenants,
        endpoint=st.integers(0, ENDPOINTS - 1),
        priority=st.integers(0, 3),
        count=st.integers(1, 40),
        late=st.sampled_from([0.0, 1.0, 30.0]),
    )
    def runs_are_due(self, tenant: int, endpoint: int, priority: int, count: int, late: float) -> None:
        task = a_task(tenant, endpoint)
        for _ in range(min(count, MOST_WAITING - self.mirror.waiting(task.tenant_id, priority))):
            number = next(self.numbers)  # no two due at one instant
            due_at = self.clock.now() - timedelta(seconds=late) + timedelta(microseconds=number)
            self._add(a_row(task, priority, min(due_at, self.clock.now()), number))

    def _add(self, row: Pending) -> None:
        assert self.board.add(row)
        self.mirror.add(row)
        self.may_look += 1

    @rule(seconds=st.sampled_from([0.05, 0.5, 3.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(tenant=tenants, limits=st.builds(Limits, st.sampled_from([0.5, 1.0, 4.0]), st.integers(1, 8), st.none()))
    def limits_change(self, tenant: int, limits: Limits) -> None:
        """But for the endpoints', which are counted only while there is a cap."""
        kept = self.mirror.limits[UUID(int=tenant + 1)].endpoint_cap
        self._limit(tenant, Limits(limits.weight, limits.cap, kept))

    # --- choices ------------------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 20), busy=st.sets(st.integers(0, 19), max_size=4))
    def choose(self, limit: int, busy: set[int]) -> None:
        """As a round of begins does it; the tasks of some of the chosen rows are found busy."""
        now = self.clock.monotonic()
        over = sum(until <= now for _, until in self.mirror.aside.values())
        self.may_look += limit + 2 * min(over, TRIALS) + self._released()
        self.board.return_deferred()
        chosen = self.board.choose(self.clock.now() + timedelta(milliseconds=100), limit)
        self.mirror.check(chosen, limit, now)
        for index, row in enumerate(chosen):
            if index in busy:
                self.mirror.fly(row, -1)
                self.mirror.put_aside(row, now + 0.5)
                self.board.defer(row, 0.5)
            else:
                run = begun_of(row, 1)
                self.board.forget(row)
                self.board.take_flight(run, self.board.definitions.get(row.task_id))
                self.flights.append((row, run))

    def _released(self) -> int:
        """Rows that come back from waiting for endpoints: of each priority, as many as there is room for."""
        room = 0
        for tenant_id, limits in self.mirror.limits.items():
            if limits.endpoint_cap is not None:
                for endpoint in range(ENDPOINTS):
                    room += max(0, limits.endpoint_cap - self.mirror.flying_to[tenant_id, endpoint])
        return room * len(Priority)

    @rule(first=st.integers(0, 11), count=st.integers(1, 12), back=st.booleans())
    def calls_end(self, first: int, count: int, back: bool) -> None:
        """`back`: they return to wait at once, as after an answer that is to be retried."""
        for row, run in self.flights[first : first + count]:
            self.board.land(run)
            self.mirror.fly(row, -1)
            if back:
                self._add(returned(run, due_at=self.clock.now()))
            self.board.return_deferred_of(run.task_id)
            self.may_look += sum(1 for aside, _ in self.mirror.aside.values() if aside.task_id == run.task_id)
            self.mirror.return_aside(run.task_id)
        del self.flights[first : first + count]

    @rule(
        tenant=tenants,
        endpoint=st.integers(0, ENDPOINTS - 1),
        rounds=st.integers(1, 12),
        priority=st.integers(0, 2),
        limit=st.integers(1, 12),
        ending=st.integers(1, PROCESS_CAP),
    )
    def a_stream(self, tenant: int, endpoint: int, rounds: int, priority: int, limit: int, ending: int) -> None:
        """More is due of one tenant in each round than is begun in it; some calls end."""
        for _ in range(rounds):
            self.runs_are_due(tenant, endpoint, priority, limit + 1, 0.0)
            self.calls_end(0, ending, False)
            self.clock.advance(0.05)
            self.choose(limit, set())

    # --- promises -----------------------------------------------------------------------------------------------

    @invariant()
    def promise_10_no_cap_is_exceeded(self) -> None:
        """By the machine's own count of calls; each pick is held to it as well (`Mirror`). Not held of calls that
        were in flight when a cap was lowered."""
        in_flight = Counter(run.tenant_id for run in self.board.in_flight.values())
        assert in_flight == +self.mirror.flying, "promise 10: the board has other calls in flight than were begun"
        assert len(self.board.in_flight) <= PROCESS_CAP, "promise 10: more calls than the process may have"

    @invariant()
    def promise_10_finding_work_costs_what_is_found(self) -> None:
        """A row is looked at when it is chosen, and else once each time that it comes into its queue: so many rows of
        full endpoints, and so many that wait behind, are passed over once and not at every choice."""
        assert self.board.looked <= self.may_look, (
            f"promise 10: choices looked at {self.board.looked} rows, where {self.may_look} had come or gone"
        )

    @precondition(lambda self: not self.contended)  # once: it takes longer than all else
    @rule(seconds=st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(LIMITS), max_size=len(LIMITS)))
    def promise_10_tenants_share_by_weight(self, seconds: list[float]) -> None:
        """Under contention, by what each uses in the last twenty of thirty seconds, whatever its calls take. A tenant
        whose cap is below its share leaves the rest to the others."""
        self.contended = True
        limits = [self.mirror.limits[UUID(int=number + 1)] for number in range(len(LIMITS))]
        used = contend(limits, seconds)
        for number, fair in enumerate(fair_shares(limits)):
            allowed = TOLERANCE * fair + 0.5
            assert abs(used[number] - fair) <= allowed, (
                f"promise 10: tenant {number} has {used[number]:.2f} calls in flight, and {fair:.2f} are its share"
            )


def ceiling(limits: Limits) -> int:
    """What a tenant can have in flight when it alone has work."""
    return limits.cap if limits.endpoint_cap is None else min(limits.cap, ENDPOINTS * limits.endpoint_cap)


def fair_shares(limits: list[Limits]) -> list[float]:
    """Slots by weight; what a tenant cannot use is shared by the others in the same way."""
    shares = [0.0] * len(limits)
    open_ones, slots = set(range(len(limits))), float(PROCESS_CAP)
    while open_ones:
        weight = sum(limits[n].weight for n in open_ones)
        full = {n for n in open_ones if ceiling(limits[n]) <= slots * limits[n].weight / weight}
        for n in full or open_ones:
            shares[n] = ceiling(limits[n]) if full else slots * limits[n].weight / weight
        if not full:
            return shares
        open_ones -= full
        slots -= sum(shares[n] for n in full)
    return shares


def contend(limits: list[Limits], seconds: list[float]) -> list[float]:
    """A board on which each tenant always has more due than it can begin: its calls in flight, on average, in the last
    twenty of thirty seconds."""
    step, rounds, measured = 0.5, 60, 40
    clock = ManualClock(START)
    board = Board(clock, PROCESS_CAP)
    numbers = itertools.count(1)
    tasks = [[a_task(number, endpoint) for endpoint in range(ENDPOINTS)] for number in range(len(limits))]
    for number, each in enumerate(limits):
        board.add_tenant(owned(number, each))
        for task in tasks[number]:
            board.definitions.put(task)
    flights: deque[tuple[float, Begun]] = deque()
    used = Counter[int]()
    for turn in range(rounds):
        for number in range(len(limits)):
            for _ in range(PROCESS_CAP if board.known_of(UUID(int=number + 1), 2) < 2 * PROCESS_CAP else 0):
                for task in tasks[number]:
                    board.add(a_row(task, 2, clock.now(), next(numbers)))
        for entry in [entry for entry in flights if entry[0] <= clock.monotonic()]:
            flights.remove(entry)
            board.land(entry[1])
        for row in board.choose(clock.now(), PROCESS_CAP):
            board.forget(row)
            run = begun_of(row, 1)
            board.take_flight(run, board.definitions.get(row.task_id))
            flights.append((clock.monotonic() + seconds[row.tenant_id.int - 1], run))
        if turn >= rounds - measured:
            used.update(run.tenant_id.int - 1 for run in board.in_flight.values())
        clock.advance(step)
    return [used[number] / measured for number in range(len(limits))]
