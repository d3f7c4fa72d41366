"""Hints: ids of the index, looked up in the place of a look at the queues (promise 11).

Whatever the index says or fails to say, only pending rows of owned tenants come out, and within `hint_wait` seconds the
reader goes on without it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from tocsin.common.clock import Clock, DatabaseClock
from tocsin.common.hints.port import HintIndex
from tocsin.common.store.rows import Pending
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import HINT_VERDICT, READ_SECONDS
from tocsin.engine.board import Board
from tocsin.engine.endpoints import QueueKey
from tocsin.engine.hint_feed import HintFeed
from tocsin.engine.hint_judge import HintJudge, Way
from tocsin.engine.read_config import ReadConfig
from tocsin.engine.tenant import ASIDE_FULL, FULL, key_of

log = logging.getLogger("tocsin.engine.hints")


class HintReader:
    """`feed`: what the index is told; None: its filling is somebody else's."""

    def __init__(
        self,
        index: HintIndex,
        board: Board,
        clock: Clock,
        database_clock: DatabaseClock,
        meter: Meter,
        config: ReadConfig,
        feed: HintFeed | None = None,
    ) -> None:
        self._index = index
        self._board = board
        self._clock = clock
        self._database_clock = database_clock
        self._meter = meter
        self._config = config
        self._feed = feed
        self._judge = HintJudge()
        self._judged = Way.SCAN
        self._scanned_last = False
        self._failed = self._lied = False

    def takes_turn(self) -> bool:
        """Whether the next look ahead is by hints. Every second one at least is not: it finds what they do not know,
        and comes more often than memory's lead is long."""
        if self._config.hint_mode == "auto":
            return self._judge.next() is Way.HINTS
        self._scanned_last = not self._scanned_last
        return not self._scanned_last

    async def tell(self) -> None:
        """Brings the index up to date. What it does not hear is not kept for later."""
        if self._feed is None:
            return
        rows, gone = self._feed.take(self._database_clock.now())
        if self._failed or not (rows or gone):
            return
        try:
            async with asyncio.timeout(self._config.hint_wait):
                await self._index.remove(gone)
                await self._index.add(rows)
        except Exception as error:
            self._fail(error)

    async def read(self, look_up: Callable[[Sequence[UUID]], Awaitable[list[Pending]]]) -> list[Pending] | None:
        """Rows that the index knows of, due within the lead and new to memory; None where it fails or lies, so that the
        queues are to be looked at now. `look_up`: which of these ids are pending and due.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._config.hint_wait):
                named = await self._index.due(self._board.tenants.keys(), self._config.lead, self._config.batch)
        except Exception as error:
            self._fail(error)
            return None
        self._failed = False
        named = list(dict.fromkeys(named[: self._config.batch]))
        rows = await look_up(named) if named else []
        seconds = self._clock.monotonic() - began
        self._meter.observe(READ_SECONDS, seconds, "hints")
        owned = [row for row in rows if row.tenant_id in self._board.tenants]
        believed = self._judge.hinted(seconds, len(named), len(owned))
        self._report()
        if not believed:
            if not self._lied:
                log.warning("of %d runs that the hint index named, %d are pending here", len(named), len(owned))
            self._lied = True
            return None
        self._lied = False
        return self._new(owned)

    def _new(self, rows: list[Pending]) -> list[Pending]:
        """Those that memory does not know and has a place for, the first due ones of each queue."""
        new: list[Pending] = []
        taken: Counter[QueueKey] = Counter()
        for row in sorted((row for row in rows if not self._board.knows(row)), key=key_of):
            key = (row.tenant_id, int(row.priority))
            queued = len(self._board.tenants[row.tenant_id].queues[key[1]])
            if queued + taken[key] < FULL and self._board.aside_of(*key) + taken[key] < ASIDE_FULL:
                taken[key] += 1
                new.append(row)
        return new

    def scanned(self, seconds: float, rows: int) -> None:
        """A look at the queues took so long, and found so many rows."""
        self._judge.scanned(seconds, rows)
        self._report()

    def _fail(self, error: Exception) -> None:
        self._judge.failed()
        self._report()
        if not self._failed:
            text = "no hints (%s); the sweep finds every row without them"
            log.warning(text, str(error) or type(error).__name__)
        self._failed = True

    def _report(self) -> None:
        verdict = self._judge.verdict
        self._meter.set(HINT_VERDICT, float(verdict is Way.HINTS))
        if verdict is not self._judged:
            scan, hints = (self._judge.milliseconds_a_row(way) for way in (Way.SCAN, Way.HINTS))
            log.info("a row found costs %.3f ms by scan, %.3f ms by hints: the verdict is %s", scan, hints, verdict)
        self._judged = verdict
