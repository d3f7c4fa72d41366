"""Begin: chooses what may start now, moves it to running in one statement, and hands it to the executor.

Every 50 ms, and at once when woken; one begin of a tenant at a time. A begin whose answer was lost is closed first:
its backend is ended, and only then are its runs adopted or put back (rule 4).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tocsin.common.calls import Calls, Order
from tocsin.common.clock import Clock, DatabaseClock
from tocsin.common.crashpoints import reach
from tocsin.common.errors import OutcomeUnknownError, RowRefusedError, StoreUnavailableError
from tocsin.common.models import Kind, Overlap, Priority, TaskState
from tocsin.common.store.ports import Store
from tocsin.common.store.rows import (
    Backend,
    BeginItem,
    BeginResult,
    Begun,
    Held,
    Outcome,
    Pending,
    Plant,
    SkipReason,
    Task,
    begun_of,
)
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import BEGIN_SECONDS, CALLS_IN_FLIGHT, DUE_LAG, RUNS, SKIPS
from tocsin.engine.board import Board
from tocsin.engine.lease import Lease
from tocsin.engine.plan import is_exclusive
from tocsin.engine.planner import Planner

log = logging.getLogger("tocsin.engine.begin")


_LONGEST_PAUSE = 0.5
"""Seconds between two tries to close a lost begin: nothing is begun before, however long the database was away."""

TOGETHER = 500
"""Runs above which a begin is parted in two."""


@dataclass(frozen=True, slots=True)
class BeginConfig:
    """`lead` seconds before its due instant a run may be begun; at most `batch` runs a begin.

    `busy_retry`: how long a row waits at first whose task is busy; twice as long at each further such answer, up to
    `busy_retry_here` while a run of the task is in flight here, since its landing brings the row back at once, and else
    up to `busy_retry_elsewhere`: of what ends elsewhere nothing is told.
    `backlog`: no begin while so many results wait for the database.
    """

    lead: float = 0.1
    batch: int = 1000
    busy_retry: float = 0.5
    busy_retry_here: float = 30.0
    busy_retry_elsewhere: float = 5.0
    backlog: int = 10_000
    refused_retry: float = 60.0
    adopt_within: float = 0.25
    end_backend_wait: float = 2.0
    read_ahead: float = 5.0


class Beginner:
    def __init__(
        self,
        store: Store,
        lease: Lease,
        board: Board,
        planner: Planner,
        calls: Calls,
        clock: Clock,
        database_clock: DatabaseClock,
        meter: Meter,
        config: BeginConfig | None = None,
        settled: Callable[[Sequence[BeginItem], Collection[UUID]], None] = lambda items, gotten: None,
    ) -> None:
        """`settled` is told the items of each begin, and which runs were gotten."""
        self._settled = settled
        self._store = store
        self._lease = lease
        self._board = board
        self._planner = planner
        self._calls = calls
        self._clock = clock
        self._database_clock = database_clock
        self._meter = meter
        self._config = config or BeginConfig()
        self._overlapped: set[UUID] = set()
        self._cancel_wanted: set[UUID] = set()
        self.between_begins = asyncio.Lock()
        """Held during a begin, lost answers included: shards are given and tenants moved only while it is free."""
        self.stopped = False

    async def run_once(self) -> dict[str, int]:
        async with self.between_begins:
            # what is begun while no call may start would only be put back, and each time is a loss
            if self.stopped or not self._database_clock.known or not self._lease.trusted:
                return {}
            begun = await self._round()
        await self._cancel_previous()
        self._meter.set(CALLS_IN_FLIGHT, len(self._board.in_flight))
        return {"begun": begun}

    async def _round(self) -> int:
        self._board.return_deferred()
        total = 0
        while self._calls.backlog() < self._config.backlog:
            until = self._database_clock.now() + timedelta(seconds=self._config.lead)
            rows = self._board.choose(until, self._config.batch)
            if not rows:
                return total
            # to its end on both connections: an outage on one must not leave the other's begin unsettled
            done = await asyncio.gather(*(self._begin(part) for part in parts(rows)), return_exceptions=True)
            for result in done:
                if isinstance(result, BaseException):
                    raise result
                total += result
            if len(rows) < self._config.batch:
                return total
        return total

    async def _begin(self, rows: list[Pending]) -> int:
        try:
            stale = {row.task_id for row in rows if self._planner.stale(row)}
            if stale:
                await self._planner.load(stale, again=True)
            await self._planner.load({row.task_id for row in rows if row.tenant_id not in self._board.secrets})
            items, later = self._plan(rows)
            await self._planner.report_faults()
        except BaseException:
            self._readmit(rows)
            raise
        sent = self._clock.monotonic()
        backends: list[Backend] = []
        try:
            result = await self._store.runs.begin(self._lease.id, items, backends.append)
        except OutcomeUnknownError as error:
            self._readmit(later)
            await self._resolve(items, backends[-1:], error)
            return 0
        except RowRefusedError as error:
            self._readmit(later)
            return await self._begin_halves(items, error)
        except Exception as error:
            self._readmit(later)
            if backends and not isinstance(error, StoreUnavailableError):
                await self._resolve(items, backends, error)  # it was sent, and failed here: who knows what it did
            else:
                self._readmit([item.row for item in items])
            raise
        except BaseException:
            self._readmit([*(item.row for item in items), *later])
            raise
        self._meter.observe(BEGIN_SECONDS, self._clock.monotonic() - sent)
        self._settle(items, result)
        self._wait_for_task(later, items, result)
        await self._hand_over(result.begun, sent)
        await self._count_withdrawn(items, result)
        return len(result.begun)

    async def _begin_halves(self, items: Sequence[BeginItem], error: RowRefusedError) -> int:
        """A begin that the database cannot hold: its halves, down to the row at fault, which waits and stops nobody."""
        rows = [item.row for item in items]
        if len(rows) > 1:
            middle = len(rows) // 2
            try:
                begun = await self._begin(rows[:middle])
            except BaseException:
                self._readmit(rows[middle:])
                raise
            return begun + await self._begin(rows[middle:])
        log.error("run %s of task %s cannot be begun (%s); set aside", rows[0].run_id, rows[0].task_id, error)
        self._board.defer(rows[0], self._config.refused_retry)
        return 0

    def _plan(self, rows: list[Pending]) -> tuple[list[BeginItem], list[Pending]]:
        """The items of a begin, and the rows left for a later one: an exclusive run is the only one of its task."""
        now = self._database_clock.now()
        items: list[BeginItem] = []
        later: list[Pending] = []
        alone: dict[UUID, bool] = {}
        for row in rows:
            item = self._planner.item(row, now, overlapped=row.run_id in self._overlapped)
            if row.task_id in alone and (item.exclusive or alone[row.task_id]):
                later.append(row)
                continue
            alone[row.task_id] = item.exclusive
            items.append(item)
        return items, later

    def _readmit(self, rows: Sequence[Pending]) -> None:
        for row in rows:
            self._board.readmit(row)

    def _settle(self, items: Sequence[BeginItem], result: BeginResult) -> None:
        """Brings the board to what the begin did: planted successors in, busy rows aside, all others forgotten."""
        busy = set(result.busy)
        gotten = {run.run_id for run in result.begun} | set(result.skipped)
        now = self._database_clock.now()
        self._planner.settle((item.row.run_id for item in items), gotten)
        self._settled(items, gotten)
        for item in items:
            row = item.row
            if row.run_id in busy:
                self._keep_busy(row)
                continue
            self._board.forget(row)
            self._overlapped.discard(row.run_id)
            if row.run_id not in gotten:
                continue
            self._count_skips(item)
            if row.kind is Kind.NEXT:
                self._add_planted(item, now)
        for run in result.begun:
            self._cancel_wanted.discard(run.task_id)  # what ran before it has ended by itself

    def _count_skips(self, item: BeginItem) -> None:
        """Counts the skips of an item that was gotten: its verdict, and, of a next row, what it passes over."""
        if item.skip is not None:
            self._count_skip(item.skip.reason, item.skip.count)
        for skip in item.skips if item.row.kind is Kind.NEXT else ():
            self._count_skip(skip.reason, skip.count)

    def _count_skip(self, reason: SkipReason, slots: int = 1) -> None:
        self._meter.add(SKIPS, slots, reason)
        self._meter.add(RUNS, 1, Outcome.SKIPPED)

    async def _count_withdrawn(self, items: Sequence[BeginItem], result: BeginResult) -> None:
        """Counts what the begin skipped by itself: it does not say why, but the task does."""
        skipped = set(result.skipped)
        tasks = [item.row.task_id for item in items if item.row.run_id in skipped and item.skip is None]
        if not tasks:
            return
        with contextlib.suppress(StoreUnavailableError):
            await self._planner.load(set(tasks), again=True)
        for task_id in tasks:
            task = self._board.definitions.get(task_id)
            is_paused = task is not None and task.state is TaskState.PAUSED
            self._count_skip(SkipReason.PAUSED if is_paused else SkipReason.DELETED)

    def _add_planted(self, item: BeginItem, now: datetime) -> None:
        horizon = now + timedelta(seconds=self._config.read_ahead)
        for plant in item.plants:
            if plant.due_at <= horizon:
                self._board.add(planted(item.row, plant, max(plant.due_at, now)))

    def _wait_for_task(self, later: Sequence[Pending], items: Sequence[BeginItem], result: BeginResult) -> None:
        """Rows that had to wait for another of their task in this begin: that one made the task busy, or was gone.

        Were they queued again, one at a time would be found busy, and they would stand before their tenant's others.
        """
        answered = {run.run_id for run in result.begun} | set(result.busy)
        busy = {item.row.task_id for item in items if item.row.run_id in answered}
        for row in later:
            if row.task_id in busy and self._is_exclusive(row):
                self._keep_busy(row)
            else:
                self._board.readmit(row)

    def _is_exclusive(self, row: Pending) -> bool:
        task = self._board.definitions.get(row.task_id)
        return task is not None and is_exclusive(row, task.plan)

    def _keep_busy(self, row: Pending) -> None:
        """What becomes of a row whose task is busy. `buffer_one` holds one row; what comes after it is skipped."""
        task = self._board.definitions.get(row.task_id)
        overlap = Overlap.ALLOW if task is None else task.plan.overlap
        if overlap is Overlap.SKIP or (overlap is Overlap.BUFFER_ONE and self._board.is_waiting(row.task_id)):
            self._overlapped.add(row.run_id)
            self._board.readmit(row)
            return
        self._board.defer(row, self._busy_wait(row))
        if overlap is Overlap.CANCEL_PREVIOUS:
            self._cancel_wanted.add(row.task_id)

    def _busy_wait(self, row: Pending) -> float:
        first = self._config.busy_retry
        if self._board.has_landed(row.task_id):
            return first  # maybe after the database said that it was busy: then no landing will tell
        is_here = self._board.is_in_flight(row.task_id)
        most = self._config.busy_retry_here if is_here else self._config.busy_retry_elsewhere
        return min(most, first * 2.0 ** min(self._board.times_aside(row), 30))

    async def _hand_over(self, begun: Sequence[Begun], sent: float) -> None:
        """Gives every begun run to the executor: to be called, or put back where its definition is not at hand."""
        for run in begun:
            self._board.take_flight(run, self._board.definitions.get(run.task_id))
        if other := {run.task_id for run in begun if self._task(run) is None}:
            with contextlib.suppress(StoreUnavailableError):
                await self._planner.load(other, again=True)
        now = self._database_clock.timestamp()
        for run in begun:
            if (lag := now - run.due_at.timestamp()) > 0:
                self._meter.observe(DUE_LAG, lag, run.priority.name.lower())
            task, secrets = self._task(run), self._board.secrets.get(run.tenant_id)
            if task is None or secrets is None:
                # edited again since: what was begun is not what the task now says; or no call could be signed
                self._calls.put_back(run)
            else:
                self._calls.submit(Order(run, task, secrets, sent))

    async def _cancel_previous(self) -> None:
        if not self._cancel_wanted:
            return
        wanted, self._cancel_wanted = self._cancel_wanted, set()
        reach("cancel_of_tasks.before")
        marked = await self._store.runs.cancel_of_tasks(list(wanted))
        reach("cancel_of_tasks.after")
        for run_id in marked:
            self._calls.abort(run_id)

    async def _resolve(self, items: Sequence[BeginItem], backends: Sequence[Backend], error: Exception) -> None:
        """Closes a begin of unknown outcome, then takes what it began and readmits what it did not (rule 4)."""
        log.warning("a begin of %d runs lost its answer (%s); closing its connection", len(items), error)
        try:
            held = await self._closed(backends)
        except BaseException:
            self._readmit([item.row for item in items])  # by their fences, what has begun is not begun again
            raise
        by_id = {item.row.run_id: item for item in items}
        young: list[Begun] = []
        old: list[Begun] = []
        for row in held:
            item = by_id.get(row.run_id)
            if item is None or row.fence != item.row.fence + 1:
                continue
            if (row.run_id, row.fence) in self._board.in_flight:  # of an earlier begin, which was answered
                continue
            run = begun_of(item.row, row.version)
            self._board.forget(item.row)
            self._count_skips(item)
            if item.row.kind is Kind.NEXT:
                self._add_planted(item, self._database_clock.now())
            (young if row.age <= self._config.adopt_within else old).append(run)
            del by_id[row.run_id]
        self._planner.settle((item.row.run_id for item in items), {run.run_id for run in (*young, *old)})
        self._readmit([item.row for item in by_id.values()])
        for run in old:
            self._board.take_flight(run, None)
            self._calls.put_back(run)
        await self._hand_over(young, self._clock.monotonic() - self._config.adopt_within)
        log.warning("that begin had taken %d runs; %d of them are put back", len(young) + len(old), len(old))

    async def _closed(self, backends: Sequence[Backend]) -> list[Held]:
        pause = 0.05
        while True:
            try:
                for backend in backends:
                    while not await self._store.leases.end_backend(backend, self._config.end_backend_wait):
                        log.warning("backend %d of a lost begin is still there", backend.pid)
                return await self._store.runs.held(self._lease.id)
            except StoreUnavailableError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _task(self, run: Begun) -> Task | None:
        """The definition in memory, if it is the one of the begin."""
        task = self._board.definitions.get(run.task_id)
        return task if task is not None and task.version == run.version else None


def parts(rows: list[Pending]) -> list[list[Pending]]:
    """What one begin takes, and for a large one what two take at once, over two connections: a peak is begun in little
    more than half the time where the database has a core to spare. A tenant's rows stay together, in their order:
    begins of one tenant never run in parallel."""
    if len(rows) <= TOGETHER:
        return [rows]
    halves: tuple[list[Pending], list[Pending]] = ([], [])
    home: dict[UUID, int] = {}
    for row in rows:
        half = home.setdefault(row.tenant_id, int(len(halves[1]) < len(halves[0])))
        halves[half].append(row)
    return [half for half in halves if half]


def planted(source: Pending, plant: Plant, due_at: datetime) -> Pending:
    """The row that a plant became, as the begin wrote it."""
    return Pending(
        run_id=plant.run_id,
        fence=0,
        tenant_id=source.tenant_id,
        task_id=source.task_id,
        priority=Priority.LOW if plant.kind is Kind.CATCHUP else source.priority,
        due_at=due_at,
        slot=plant.slot,
        last_slot=plant.last_slot,
        lane=source.lane,
        kind=plant.kind,
        plan_version=source.plan_version,
    )
