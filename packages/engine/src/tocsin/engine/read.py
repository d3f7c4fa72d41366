"""Read: brings the heads of the owned queues into memory, and plans their successors ahead.

Every two seconds a sweep asks each queue for its first rows from ten seconds ago; at take-over, and every
ten seconds in turns, from the queue's start (rule 10). A queue whose page was full is read on from its last
key when memory runs low. Rows already in memory are dropped by their pair.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tocsin.common.clock import Clock, DatabaseClock
from tocsin.common.hints.null import NullHints
from tocsin.common.hints.port import HintIndex
from tocsin.common.models import Priority
from tocsin.common.store.ports import Store
from tocsin.common.store.rows import MARGIN_SECONDS, Pending, QueuePage
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import DUE_OLDEST_AGE, READ_SECONDS
from tocsin.engine.board import Board
from tocsin.engine.planner import Planner
from tocsin.engine.tenant import PAGE

log = logging.getLogger("tocsin.engine.read")

QueueKey = tuple[UUID, int]

EVERYTHING = datetime.min.replace(tzinfo=UTC)
"""As `from_due`: from the queue's start; PostgreSQL reads it as `-infinity`."""


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
        low = [
            (scheduler.tenant_id, priority)
            for scheduler in self._board.tenants.values()
            for priority, queue in scheduler.queues.items()
            if queue.cursor is not None and len(queue) < PAGE // 2
        ]
        if low:
            added += await self._read(low, everything=False, path="page")
        if self._clock.monotonic() - self._last_sweep >= self._config.sweep_every:
            self._last_sweep = self._clock.monotonic()
            added += await self._sweep()
        return {"added": added}

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
        """A glance at every queue, then a deep page of those whose glance was full."""
        added, full = await self._pages(queues, self._config.glance, everything=everything, path=path)
        deeper, _ = await self._pages(full, PAGE, everything=everything, path=path)
        return added + deeper

    async def _pages(
        self, queues: Sequence[QueueKey], limit: int, *, everything: bool, path: str
    ) -> tuple[int, list[QueueKey]]:
        """Reads a page of each queue, a batch of rows at most a statement; says the queues whose page was full."""
        added = 0
        full: list[QueueKey] = []
        pages: list[QueuePage] = []
        rows = 0
        for key in queues:
            page = self._page(key, limit, everything=everything)
            if page is None:
                continue
            if pages and rows + page.limit > self._config.batch:
                added += await self._statement(pages, full, path)
                pages, rows = [], 0
            pages.append(page)
            rows += page.limit
        if pages:
            added += await self._statement(pages, full, path)
        return added, full

    async def _statement(self, pages: Sequence[QueuePage], full: list[QueueKey], path: str) -> int:
        began = self._clock.monotonic()
        rows = await self._store.runs.heads(pages, self._config.lead)
        self._meter.observe(READ_SECONDS, self._clock.monotonic() - began, path)
        added = await self._admit([row for row in rows if not self._board.knows(row)])
        by_queue: dict[QueueKey, list[Pending]] = {}
        for row in rows:
            by_queue.setdefault((row.tenant_id, int(row.priority)), []).append(row)
        for page in pages:
            key = (page.tenant_id, int(page.priority))
            found = by_queue.get(key, [])
            scheduler = self._board.tenants.get(page.tenant_id)
            if scheduler is None:
                continue
            queue = scheduler.queues[key[1]]
            if len(found) < page.limit:
                queue.cursor = None
            else:
                full.append(key)
                queue.cursor = (found[-1].due_at, found[-1].run_id)
        return added

    def _page(self, key: QueueKey, limit: int, *, everything: bool) -> QueuePage | None:
        scheduler = self._board.tenants.get(key[0])
        if scheduler is None:
            return None
        queue = scheduler.queues[key[1]]
        lane_first, lane_last = scheduler.lanes
        from_due, from_run = self._margin(), UUID(int=0)
        if everything:
            from_due = EVERYTHING
        elif queue.cursor is not None and queue.cursor[0] < from_due:
            from_due, from_run = queue.cursor
        return QueuePage(
            tenant_id=key[0],
            priority=Priority(key[1]),
            lane_first=lane_first,
            lane_last=lane_last,
            # what memory knows may stand before what it does not
            limit=limit + self._board.known_of(*key),
            from_due=from_due,
            from_run=from_run,
        )

    def _margin(self) -> datetime:
        """Ten seconds ago at the latest, and never later than any cursor was compared with."""
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
