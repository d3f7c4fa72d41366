"""Read: brings the heads of the owned queues into memory, and plans their successors ahead.

Every two seconds a sweep asks each queue for its first rows from ten seconds ago; at take-over, and every
ten seconds in turns, from the queue's start (rule 10). A queue whose page was full is read on from its last
key when memory runs low. Rows already in memory are dropped by their pair.

What is read and kept of a queue does not grow with its backlog: a read asks for at most `KNOWN_BEFORE` rows more
than it wants, and takes nothing into a queue that holds `FULL`. What commits late before the last key, behind more
known rows than that, is found as the queue drains.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tocsin.common.clock import Clock, DatabaseClock
from tocsin.common.hints.null import NullHints
from tocsin.common.hints.port import HintIndex
from tocsin.common.models import Priority
from tocsin.common.store.ports import Store
from tocsin.common.store.rows import FIRST_RUN, MARGIN_SECONDS, Pending, QueuePage
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import DUE_OLDEST_AGE, READ_SECONDS
from tocsin.engine.board import Board
from tocsin.engine.planner import Planner
from tocsin.engine.tenant import PAGE, Queue, TenantScheduler

log = logging.getLogger("tocsin.engine.read")

QueueKey = tuple[UUID, int]
RowKey = tuple[datetime, UUID]

EVERYTHING = datetime.min.replace(tzinfo=UTC)
"""As `from_due`: from the queue's start; PostgreSQL reads it as `-infinity`."""

KNOWN_BEFORE = 2 * PAGE
"""Rows that a read asks for at most beyond what it wants, since memory knows as many that may stand before those."""

FULL = 3 * PAGE
"""Queued rows of one queue above which reads take none up."""


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """`lead` seconds ahead are read; the first look takes `glance` rows a queue, `batch` rows at most a statement.

    `hint_wait`: seconds after which an index that does not answer counts as failed.
    """

    lead: float = 5.0
    sweep_every: float = 2.0
    everything_turns: int = 5
    glance: int = 16
    batch: int = 2048
    planned_at_once: int = 100
    hint_wait: float = 0.05


class Reader:
    def __init__(
        self,
        store: Store,
        board: Board,
        clock: Clock,
        database_clock: DatabaseClock,
        planner: Planner,
        meter: Meter,
        config: ReadConfig | None = None,
        hints: HintIndex | None = None,
    ) -> None:
        self._store = store
        self._board = board
        self._clock = clock
        self._database_clock = database_clock
        self._planner = planner
        self._meter = meter
        self._config = config or ReadConfig()
        self._hints = hints or NullHints()
        self._hints_failed = False
        self._wanted: dict[QueueKey, None] = {}
        self._new_tenants: set[UUID] = set()
        self._last_sweep = -1e9
        self._sweeps = 0

    def want(self, queues: Iterable[QueueKey]) -> None:
        """Asks for these queues in the next round."""
        self._wanted.update(dict.fromkeys(queues))

    def want_everything(self, tenant_ids: Iterable[UUID]) -> None:
        """Asks for these tenants' queues from their start, in the next round."""
        self._new_tenants.update(tenant_ids)

    async def run_once(self) -> dict[str, int]:
        added = 0
        if self._new_tenants:
            fresh, self._new_tenants = self._new_tenants, set()
            try:
                added += await self._read(self._queues(fresh), everything=True, path="take_over")
            except BaseException:
                self._new_tenants |= fresh
                raise
        if self._wanted:
            wanted, self._wanted = self._wanted, {}
            try:
                added += await self._read(list(wanted), everything=False, path="wake")
            except BaseException:
                self.want(wanted)
                raise
        added += await self._read_hints()
        if low := self.low():
            added += (await self._pages(self._pages_on(low), path="page"))[0]
        if self._clock.monotonic() - self._last_sweep >= self._config.sweep_every:
            self._last_sweep = self._clock.monotonic()
            added += await self._sweep()
        return {"added": added}

    def low(self) -> list[QueueKey]:
        """Queues that go on in the database and of which memory holds less than half a page."""
        return [
            (scheduler.tenant_id, priority)
            for scheduler in self._board.tenants.values()
            for priority, queue in scheduler.queues.items()
            if queue.cursor is not None and len(queue) < PAGE // 2
        ]

    async def _read_hints(self) -> int:
        """Looks up what the hint index names; whatever it names, only pending rows of owned tenants are taken up."""
        try:
            async with asyncio.timeout(self._config.hint_wait):
                named = await self._hints.due(self._board.tenants.keys(), self._config.lead, self._config.batch)
        except Exception as error:
            if not self._hints_failed:
                reason = str(error) or type(error).__name__
                log.warning("no hints (%s); the sweep finds every row without them", reason)
            self._hints_failed = True
            return 0
        self._hints_failed = False
        if not named:
            return 0
        began = self._clock.monotonic()
        rows = await self._store.runs.hinted(named[: self._config.batch], self._config.lead)
        self._meter.observe(READ_SECONDS, self._clock.monotonic() - began, "hints")
        owned = [row for row in rows if row.tenant_id in self._board.tenants]
        return await self._admit([row for row in owned if not self._board.knows(row)])

    async def _sweep(self) -> int:
        turn = self._sweeps % self._config.everything_turns
        self._sweeps += 1
        tenants = list(self._board.tenants)
        in_turn = [t for t in tenants if t.int % self._config.everything_turns == turn]
        others = [t for t in tenants if t.int % self._config.everything_turns != turn]
        added = await self._read(self._queues(others), everything=False, path="sweep")
        added += await self._read(self._queues(in_turn), everything=True, path="sweep")
        self._report_oldest()
        return added

    def _queues(self, tenant_ids: Iterable[UUID]) -> list[QueueKey]:
        return [
            (tenant_id, priority)
            for tenant_id in tenant_ids
            if (scheduler := self._board.tenants.get(tenant_id)) is not None
            for priority in scheduler.queues
        ]

    async def _read(self, queues: Sequence[QueueKey], *, everything: bool, path: str) -> int:
        """A glance at every queue, then a page more of those whose glance was full and that hold less than a page."""
        glances = (self._page(key, self._config.glance, everything=everything) for key in queues)
        added, full = await self._pages(glances, path=path)
        more, _ = await self._pages(self._pages_on(full), path=path)
        return added + more

    async def _pages(self, pages: Iterable[QueuePage | None], *, path: str) -> tuple[int, list[QueueKey]]:
        """Reads these pages, a batch of rows at most a statement; says the queues whose page was full."""
        added = 0
        full: list[QueueKey] = []
        together: list[QueuePage] = []
        rows = 0
        for page in pages:
            if page is None:
                continue
            if together and rows + page.limit > self._config.batch:
                added += await self._statement(together, full, path)
                together, rows = [], 0
            together.append(page)
            rows += page.limit
        if together:
            added += await self._statement(together, full, path)
        return added, full

    async def _statement(self, pages: Sequence[QueuePage], full: list[QueueKey], path: str) -> int:
        began = self._clock.monotonic()
        rows = await self._store.runs.heads(pages, self._config.lead)
        self._meter.observe(READ_SECONDS, self._clock.monotonic() - began, path)
        by_queue: dict[QueueKey, list[Pending]] = {}
        for row in rows:
            by_queue.setdefault((row.tenant_id, int(row.priority)), []).append(row)
        new: list[Pending] = []
        cursors: dict[QueueKey, RowKey | None] = {}
        for page in pages:
            key = (page.tenant_id, int(page.priority))
            scheduler = self._board.tenants.get(page.tenant_id)
            if scheduler is None:
                continue
            taken, cursors[key] = self._take(scheduler.queues[key[1]], page, by_queue.get(key, []))
            new += taken
        added = await self._admit(new)
        for key, cursor in cursors.items():
            scheduler = self._board.tenants.get(key[0])
            if scheduler is None:
                continue
            scheduler.queues[key[1]].cursor = cursor
            if cursor is not None:
                full.append(key)
        return added

    def _take(self, queue: Queue, page: QueuePage, found: Sequence[Pending]) -> tuple[list[Pending], RowKey | None]:
        """What to take up of the rows found, and where the queue is to be read on: nowhere, if that is all of it."""
        new: list[Pending] = []
        last: RowKey = (page.from_due or EVERYTHING, page.from_run)
        for row in found:
            if not self._board.knows(row):
                if len(queue) + len(new) >= FULL:
                    return new, last
                new.append(row)
            last = (row.due_at, row.run_id)
        if len(found) < page.limit:
            return new, None
        # a page of known rows only says nothing of those behind it: going back to its end could go on for ever
        return new, last if new or queue.cursor is None else max(last, queue.cursor)

    def _page(self, key: QueueKey, limit: int, *, everything: bool) -> QueuePage | None:
        """A look at a queue: from its start, from the margin, or, longer than its page, from its last key.

        None where it is not owned, or where its last key is older than the margin and memory holds a page of it:
        what is new stands behind that key, and is read when memory runs low.
        """
        scheduler = self._board.tenants.get(key[0])
        if scheduler is None:
            return None
        queue, margin = scheduler.queues[key[1]], self._margin()
        # what memory knows may stand before what it does not
        limit_known = limit + min(self._board.known_of(*key), KNOWN_BEFORE)
        if everything:
            return _page_of(scheduler, key, limit_known, EVERYTHING)
        if queue.cursor is None or queue.cursor[0] >= margin:
            return _page_of(scheduler, key, limit_known, margin)
        return None if len(queue) >= PAGE else _page_of(scheduler, key, limit, *queue.cursor)

    def _pages_on(self, queues: Iterable[QueueKey]) -> Iterator[QueuePage]:
        """The next page of each queue that is longer than what was read of it, and holds less than a page."""
        for key in queues:
            scheduler = self._board.tenants.get(key[0])
            if scheduler is None:
                continue
            queue = scheduler.queues[key[1]]
            if queue.cursor is not None and len(queue) < PAGE:
                yield _page_of(scheduler, key, PAGE, *queue.cursor)

    def _margin(self) -> datetime:
        """Ten seconds ago: what commits late has its due instant after that."""
        return self._database_clock.now() - timedelta(seconds=MARGIN_SECONDS)

    async def _admit(self, rows: Sequence[Pending]) -> int:
        """Plans rows ahead and puts them on the board, a hundred at a time, so that calls are never held up."""
        await self._planner.load({row.task_id for row in rows})
        added = 0
        for start in range(0, len(rows), self._config.planned_at_once):
            for row in rows[start : start + self._config.planned_at_once]:
                if self._board.add(row):
                    self._planner.warm(row)
                    added += 1
            await asyncio.sleep(0)
        return added

    def _report_oldest(self) -> None:
        oldest = self._board.oldest_due()
        age = 0.0 if oldest is None else (self._database_clock.now() - oldest).total_seconds()
        self._meter.set(DUE_OLDEST_AGE, max(0.0, age))


def _page_of(
    scheduler: TenantScheduler, key: QueueKey, limit: int, from_due: datetime, from_run: UUID = FIRST_RUN
) -> QueuePage:
    lane_first, lane_last = scheduler.lanes
    return QueuePage(key[0], Priority(key[1]), lane_first, lane_last, limit, from_due, from_run)
