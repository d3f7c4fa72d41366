"""Read: brings the heads of the owned queues into memory, and plans their successors ahead.

Every two seconds a sweep asks each queue for its first rows from ten seconds ago; at take-over, and every ten seconds
in turns, from the queue's start (rule 10). The turns look farther ahead, so that what a peak needs is at hand before
it. Where there is a hint index, every second look from ten seconds ago may ask that instead. A queue whose page was
full is read on from its last key when memory runs low. Rows already in memory are dropped by their pair.

What is read and kept of a queue does not grow with its backlog: a read asks for at most `KNOWN_BEFORE` rows more
than it wants, and takes nothing into a queue that holds `FULL`. What commits late before the last key, behind more
known rows than that, is found as the queue drains.

Rows that wait for full endpoints are in no queue, so one whose head is of such endpoints is read on, past them, a page
a round. What memory has no place for is left; it is read from where it stands as the rows of its endpoint are begun.
Meanwhile the looks at all of the queue go through it in turns, a page each, and those from the margin are followed, a
few pages a round, to where the queue is read on.

A part of a round that fails holds up no other; a round fails where the database answers no part of it.
"""

import asyncio
import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from tocsin.common.clock import Clock, DatabaseClock
from tocsin.common.store.ports import Store
from tocsin.common.store.rows import MARGIN_SECONDS, Pending, QueuePage
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import DUE_OLDEST_AGE, READ_SECONDS
from tocsin.engine.board import Board
from tocsin.engine.endpoints import QueueKey
from tocsin.engine.hint_reader import HintReader
from tocsin.engine.look import (
    START,
    Laps,
    Look,
    ahead,
    batches,
    begin_all,
    behind,
    by_queue,
    from_margin,
    in_order,
    look_of,
    low,
    move_on,
    queue_of,
    queues_of,
    start_of,
)
from tocsin.engine.parts import Parts
from tocsin.engine.planner import Planner
from tocsin.engine.read_config import ReadConfig
from tocsin.engine.reviews import Reviews
from tocsin.engine.tenant import ASIDE_FULL, FULL, PAGE, Queue, RowKey, TenantScheduler, key_of
from tocsin.engine.turns import Turns

__all__ = ["EVERYTHING", "KNOWN_BEFORE", "ReadConfig", "Reader"]

log = logging.getLogger("tocsin.engine.read")

EVERYTHING = START[0]
"""As `from_due`: from the queue's start; PostgreSQL reads it as `-infinity`."""

KNOWN_BEFORE = 2 * PAGE
"""Rows that a read asks for at most beyond what it wants, since memory knows as many that may stand before those."""


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
        hints: HintReader | None = None,
    ) -> None:
        self._store = store
        self._board = board
        self._clock = clock
        self._database_clock = database_clock
        self._planner = planner
        self._meter = meter
        self._config = config or ReadConfig()
        self._hints = hints
        self._heads_seconds, self._heads_rows = 0.0, 0
        self._wanted, self._woken = dict[QueueKey, None](), set[QueueKey]()
        self._laps = Laps()
        self._reviews = Reviews(board, planner)
        self._turns = Turns(self._config.everything_turns)
        self._last_sweep, self._parts = -1e9, Parts()
        self._glanced: datetime | None = None

    def want(self, queues: Iterable[QueueKey]) -> None:
        """Asks for these queues in the next round."""
        queues = list(queues)
        self._wanted.update(dict.fromkeys(queues))
        self._woken.update(queues)

    def want_everything(self, tenant_ids: Iterable[UUID]) -> None:
        """Asks for these tenants' queues from their start, in the next round."""
        self._turns.owe(tenant_ids)

    async def run_once(self) -> dict[str, int]:
        """A round; each part is done though another failed. Where all were refused, the sweep tells if it is an outage.

        Raises:
            StoreUnavailableError: the database answered nothing; the next round sweeps at once.
        """
        added, parts = 0, self._parts
        parts.begin()
        self._owe_what_was_passed(self._database_clock.now())
        if self._hints is not None:
            await self._hints.tell()
        try:
            for group in self._turns.owed():
                added += await parts.run(self._everything(group, "take_over"))
            for part in (self._wake, self._read_on, self._follow, self._reviews.run_once):
                added += await parts.run(part())
            if parts.outage or self._clock.monotonic() - self._last_sweep >= self._config.sweep_every:
                self._last_sweep = self._clock.monotonic()
                added += await self._sweep()
        finally:
            self._turns.settle(answered=parts.answered)
        if (error := parts.outage) is not None:
            self._last_sweep = -1e9  # so that no round says that the database is back that has not asked
            raise error
        parts.end()
        return {"added": added}

    def _owe_what_was_passed(self, now: datetime) -> None:
        """What came due before the margin was never read where the last look from there is longer ago, on the
        database's clock: after an outage, a suspension, a step of that clock. All are looked at whole then, and first:
        what is oldest has waited longest."""
        self._glanced = self._glanced or now
        if (now - self._glanced).total_seconds() > MARGIN_SECONDS:
            self._turns.owe(self._board.tenants)
            self._glanced = now

    async def _everything(self, group: list[UUID], path: str) -> int:
        """A look at all of these tenants' queues."""
        try:
            lead = self._config.far_lead if path == "sweep" else None
            added = await self._read(queues_of(self._board, group), everything=True, path=path, lead=lead)
            if path == "sweep":
                self._reviews.plan(group)
                await self._planner.refresh_secrets(group)
        except BaseException:
            self._turns.missed(group, taken_over=path == "take_over")
            raise
        self._turns.done(group)
        return added

    async def _wake(self) -> int:
        wanted, self._wanted = self._wanted, {}
        try:
            return await self._read(list(wanted), everything=False, path="wake")
        except BaseException:
            self.want(wanted)
            raise

    async def _read_on(self) -> int:
        added, _ = await self._pages(self._pages_on(low(self._board)), path="page")
        return added + await self._read_left(list(behind(self._board)))

    def hungry(self) -> bool:
        """Whether some queue is to be read on, and memory holds little of it."""
        return bool(low(self._board)) or next(behind(self._board), None) is not None

    async def _read_left(self, left: Sequence[tuple[QueueKey, str]]) -> int:
        """A page of each queue, from where rows of this endpoint were left."""
        added = 0
        at_once = max(1, self._config.batch // PAGE)
        for start in range(0, len(left), at_once):
            looks: list[tuple[TenantScheduler, Queue, str, Look]] = []
            for key, endpoint in left[start : start + at_once]:
                scheduler = self._board.tenants.get(key[0])
                first = None if scheduler is None else scheduler.queues[key[1]].left.get(endpoint)
                if scheduler is not None and first is not None:  # else the tenant was given away meanwhile
                    before = UUID(int=max(0, first[1].int - 1))
                    look = look_of(scheduler, key, PAGE, first[0], before)
                    looks.append((scheduler, scheduler.queues[key[1]], endpoint, look))
            found = by_queue(await self._heads([page for *_, look in looks for page in look], "page"))
            for scheduler, queue, endpoint, look in looks:
                if self._board.tenants.get(scheduler.tenant_id) is scheduler:
                    added += await self._take_left(queue, endpoint, look, found.get(queue_of(look), []))
        return added

    async def _take_left(self, queue: Queue, endpoint: str, look: Look, rows: Sequence[Pending]) -> int:
        """Takes up what was left; the last key is where the next page begins, but for what is read on anyway."""
        new, last, more = self._new(queue, look, rows)
        first = queue.left.pop(endpoint)
        try:
            added = await self._admit(new)
        except BaseException:
            queue.left[endpoint] = first
            raise
        if more and (queue.cursor is None or last < queue.cursor):
            queue.left[endpoint] = min(queue.left.get(endpoint, last), last)
        return added

    async def _follow(self) -> int:
        """The pages behind the looks from the margin that were full: a few in all, a page of a queue at a time."""
        added, pages = 0, self._config.followed
        while pages > 0:
            self._laps.keep(self._board.tenants)
            # a queue that holds a page takes up no more: what is behind is found as it drains
            going = ((key, at) for key, at in self._laps if len(self._board.tenants[key[0]].queues[key[1]]) < PAGE)
            at_once = min(pages, max(1, self._config.batch // KNOWN_BEFORE))
            looks = [look_of(self._board.tenants[k[0]], k, KNOWN_BEFORE, *at) for k, at in islice(going, at_once)]
            if not looks:
                break
            pages -= sum(len(look) for look in looks)
            found = by_queue(await self._heads([page for look in looks for page in look], "page"))
            for look in looks:
                key = queue_of(look)
                if (scheduler := self._board.tenants.get(key[0])) is not None:  # not given away meanwhile
                    queue = scheduler.queues[key[1]]
                    new, last, more = self._new(queue, look, found.get(key, []))
                    added += await self._admit(new)
                    self._laps.move(key, last if more and ahead(queue, last) else None)
        return added

    async def _hinted(self, run_ids: Sequence[UUID]) -> list[Pending]:
        self._parts.asked += 1
        return await self._store.runs.hinted(run_ids, self._config.lead)

    async def _sweep(self) -> int:
        others, in_turn = self._turns.take(self._board.tenants)
        added = await self._parts.run(self._look_ahead(others, in_turn))
        for group in self._turns.groups(in_turn):
            added += await self._parts.run(self._everything(group, "sweep"))
        if self._parts.outage:  # others may be none
            added += await self._parts.run(self._glance(in_turn, ()))
        self._report_oldest()
        return added

    async def _look_ahead(self, others: Sequence[UUID], in_turn: Container[UUID]) -> int:
        """By hints or by a look from the margin, as it is whose turn; after an outage, by what asks the database."""
        hints, rows = self._hints, None
        if hints is not None and not self._parts.after_outage and hints.takes_turn():
            rows = await hints.read(self._hinted)
        return await self._glance(others, in_turn) if rows is None else await self._admit(rows)

    async def _glance(self, others: Sequence[UUID], in_turn: Container[UUID]) -> int:
        """A look from the margin."""
        woken = {key for key in self._woken if key[0] not in in_turn}
        self._woken -= woken
        now, seconds, rows = self._database_clock.now(), self._heads_seconds, self._heads_rows
        try:
            added = await self._read(queues_of(self._board, others), everything=False, path="sweep", review=woken)
        except BaseException:
            self._woken |= woken
            raise
        if self._hints is not None and others:
            self._hints.scanned(self._heads_seconds - seconds, self._heads_rows - rows)
        if others or not self._board.tenants:
            self._owe_what_was_passed(now)  # the clock may have been set on since this round began
            self._glanced = now
        return added

    async def _read(
        self,
        queues: Sequence[QueueKey],
        *,
        everything: bool,
        path: str,
        lead: float | None = None,
        review: Container[QueueKey] = (),
    ) -> int:
        """A glance at every queue, then a page more of those whose glance was full and that hold less than a page.

        Rows of queues to `review`, of all at a look at everything, are left by none but fresh definitions.
        `lead`: seconds, where not as usual.
        """
        glances = (self._page(key, self._config.glance, everything=everything) for key in queues)
        reviewed = set(queues) if everything else review
        added, full = await self._pages(glances, path=path, lead=lead, review=reviewed)
        more, _ = await self._pages(self._pages_on(full), path=path, lead=lead)
        return added + more

    async def _pages(
        self,
        looks: Iterable[Look | None],
        *,
        path: str,
        lead: float | None = None,
        review: Container[QueueKey] = (),
    ) -> tuple[int, list[QueueKey]]:
        """Takes these looks, a batch of rows at most a statement; says the queues whose page was full."""
        added = 0
        full: list[QueueKey] = []
        for together in batches(looks, self._config.batch):
            added += await self._statement(together, full, path, lead, review)
        return added, full

    async def _heads(self, pages: Sequence[QueuePage], path: str, lead: float | None = None) -> list[Pending]:
        began = self._clock.monotonic()
        self._parts.asked += 1
        rows = await self._store.runs.heads(pages, self._config.lead if lead is None else lead)
        seconds = self._clock.monotonic() - began
        self._meter.observe(READ_SECONDS, seconds, path)
        self._heads_seconds += seconds
        self._heads_rows += len(rows)
        return rows

    async def _statement(
        self,
        looks: Sequence[Look],
        full: list[QueueKey],
        path: str,
        lead: float | None,
        review: Container[QueueKey],
    ) -> int:
        found = by_queue(await self._heads([page for look in looks for page in look], path, lead))
        new: list[Pending] = []
        done: list[tuple[Queue, QueueKey, Look, bool, RowKey, bool]] = []
        for look in looks:
            key = queue_of(look)
            scheduler = self._board.tenants.get(key[0])
            if scheduler is None:
                continue
            queue = scheduler.queues[key[1]]
            taken, last, more = self._new(queue, look, found.get(key, []))
            new += taken
            done.append((queue, key, look, bool(taken), last, more))
        added = await self._admit(new, review)
        for queue, key, look, found_new, last, more in done:
            move_on(queue, start_of(look), last if more else None, last, found_new=found_new)
            if queue.left and more and from_margin(look) and ahead(queue, last):
                self._laps.begin(key, last)
            if queue.cursor is not None:
                full.append(key)
        return added

    def _new(self, queue: Queue, look: Look, rows: Sequence[Pending]) -> tuple[list[Pending], RowKey, bool]:
        """What to take up of the rows found, the last key looked at, and whether there may be more behind it."""
        new: list[Pending] = []
        last = start_of(look)
        found, more = in_order(look, rows)
        for row in found:
            if not self._board.knows(row):
                if len(queue) + len(new) >= FULL or self._board.aside_of(*queue_of(look)) + len(new) >= ASIDE_FULL:
                    return new, last, True
                new.append(row)
            last = key_of(row)
        return new, last, more

    def _page(self, key: QueueKey, limit: int, *, everything: bool) -> Look | None:
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
            return look_of(scheduler, key, limit_known, *begin_all(queue, margin))
        if queue.left or queue.cursor is None or queue.cursor[0] >= margin:
            return look_of(scheduler, key, limit_known, margin)
        return None if len(queue) >= PAGE else look_of(scheduler, key, limit, *queue.cursor)

    def _pages_on(self, queues: Iterable[QueueKey]) -> Iterator[Look]:
        """The next page of each queue that is longer than what was read of it, and holds less than a page."""
        for key in queues:
            scheduler = self._board.tenants.get(key[0])
            if scheduler is None:
                continue
            queue = scheduler.queues[key[1]]
            if queue.cursor is not None and len(queue) < PAGE:
                yield look_of(scheduler, key, PAGE, *queue.cursor)

    def _margin(self) -> datetime:
        """What commits late has its due instant after that."""
        return self._database_clock.now() - timedelta(seconds=MARGIN_SECONDS)

    async def _admit(self, rows: Sequence[Pending], review: Container[QueueKey] = ()) -> int:
        """Plans rows ahead and puts them on the board, a hundred at a time, so that calls are never held up.

        Of queues to `review`, the definitions by which rows would be left are read again: an edit may have come.
        """
        await self._planner.load({row.task_id for row in rows})
        reviewed = (row for row in rows if (row.tenant_id, int(row.priority)) in review)
        if left := list({row.task_id for row in reviewed if self._board.leaves(row)}):
            await self._planner.load(left, again=True)
        added = 0
        for start in range(0, len(rows), self._config.planned_at_once):
            for row in rows[start : start + self._config.planned_at_once]:
                if not self._board.leaves(row) and self._board.add(row):
                    self._planner.warm(row)
                    added += 1
            await asyncio.sleep(0)
        return added

    def _report_oldest(self) -> None:
        oldest = self._board.oldest_due()
        now = self._database_clock.now()
        self._meter.set(DUE_OLDEST_AGE, max(0.0, (now - (oldest or now)).total_seconds()))
