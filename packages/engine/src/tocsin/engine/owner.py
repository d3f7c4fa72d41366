"""The owner: everything one executor process does for the shards it owns, for the life of one lease.

It knows nothing of HTTP: `make_calls` gives it the port by which runs are called. When the lease ends,
`run` raises, everything here is dropped, and whoever started it makes a new one from the database.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from tocsin.common.calls import Calls, Listener
from tocsin.common.clock import Clock, DatabaseClock
from tocsin.common.crashpoints import reach
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.hints.port import HintIndex
from tocsin.common.ids import Ids
from tocsin.common.service import Service
from tocsin.common.store.ports import Store
from tocsin.common.store.rows import Begun, Completion, Pending
from tocsin.common.store.tenants import Process
from tocsin.common.telemetry.meter import Meter
from tocsin.engine.begin import BeginConfig, Beginner
from tocsin.engine.board import Board
from tocsin.engine.give_back import GiveBack
from tocsin.engine.lease import Beat, Judge, Lease, LeaseConfig
from tocsin.engine.ownership import Ownership
from tocsin.engine.planner import Planner
from tocsin.engine.read import ReadConfig, Reader

log = logging.getLogger("tocsin.engine.owner")

_INSIST_PAUSE = 0.25

_BEAT_PAUSE = 0.5
"""The longest between two heartbeats while the database is away: the first that arrives ends everybody's waiting."""


class WakeUps(Protocol):
    """Coalesced NOTIFYs. A lost one costs lateness, never a run; of a cancel, the rest of its call's time."""

    def start(
        self,
        queues: Callable[[Sequence[tuple[UUID, int]]], None],
        tenants: Callable[[], None],
        cancelled: Callable[[Sequence[UUID]], None],
    ) -> None:
        """Calls `queues` with (tenant, priority) pairs that changed, `tenants` when tenants or shards did, and
        `cancelled` with the ids of running runs that are said to be cancelled."""
        ...

    async def stop(self) -> None: ...


class DrainingCalls(Calls, Protocol):
    async def drained(self) -> None:
        """Returns once nothing is in flight."""
        ...

    async def close(self) -> None: ...


MakeCalls = Callable[[Lease, Listener, DatabaseClock], DrainingCalls]


@dataclass(frozen=True, slots=True)
class OwnerConfig:
    cell: str = "shared"
    generation: int = 0
    process_cap: int = 10_000
    zone_data: str = ""
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    begin: BeginConfig = field(default_factory=BeginConfig)
    read: ReadConfig = field(default_factory=ReadConfig)
    begin_every: float = 0.05
    read_every: float = 0.2
    give_back_every: float = 1.0
    abort_every: float = 1.0


class Owner:
    def __init__(
        self,
        store: Store,
        lease_id: UUID,
        process: Process,
        wakeups: WakeUps,
        make_calls: MakeCalls,
        clock: Clock,
        rng: random.Random,
        meter: Meter,
        config: OwnerConfig,
        hints: HintIndex | None = None,
    ) -> None:
        database_clock = DatabaseClock(clock)
        self.config = config
        self._database_clock = database_clock
        self.lease = Lease(lease_id, clock, config.lease)
        self.board = Board(clock, config.process_cap)
        self.calls = make_calls(self.lease, _Landing(self), database_clock)
        self._store = store
        self._process = process
        self._wakeups = wakeups
        self._beat = Beat(store.leases, self.lease, clock, database_clock)
        ids = Ids(database_clock, rng)  # a run's deadline counts from its id's time
        planner = Planner(store, self.board, ids, self.calls.expect)
        self.reader = Reader(store, self.board, clock, database_clock, planner, meter, config.read, hints)
        self.beginner = Beginner(
            store, self.lease, self.board, planner, self.calls, clock, database_clock, meter, config.begin
        )
        self.ownership = Ownership(store, self.lease, config.cell, self.board, self.beginner, self.reader, meter)
        self._judge = Judge(store.leases, self.lease, process, meter)
        give_back = GiveBack(store, lease_id, self.board, self.reader, self.beginner, clock, meter)
        self._said_cancelled: set[UUID] = set()
        self._left = asyncio.Event()
        self._ended = asyncio.Event()
        every = config.lease.every
        self._begin_service = Service("begin", self._begin_once, config.begin_every)
        self._read_service = Service("read", self._read_once, config.read_every)
        self._ownership_service = Service("ownership", self._own_once, every)
        self._abort_service = Service("abort", self._abort_once, config.abort_every)
        self._services = [
            Service("beat", self._beat.run_once, every, longest_pause=min(every, _BEAT_PAUSE), on_back=self._wake_all),
            Service("judge", self._judge_once, every),
            self._ownership_service,
            Service("give back", give_back.run_once, config.give_back_every),
            self._read_service,
            self._begin_service,
            self._abort_service,
        ]

    async def run(self) -> None:
        """Registers the lease, then serves until `drain` has ended or the lease is lost.

        Raises:
            StoreUnavailableError: the lease could not be registered.
            LeaseLostError: the lease has ended; what it held will be given back.
        """
        if self.lease.draining:
            return
        await self._beat.register(self.config.cell, self.config.generation, self._process, self.config.zone_data)
        self._wakeups.start(self._queues_changed, self._ownership_service.wake, self._cancels_heard)
        tasks = [asyncio.create_task(service.run(), name=service.name) for service in self._services]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                if (error := task.exception()) is not None:
                    raise error
            await self._left.wait()  # whoever runs this closes the store next
        finally:
            self._ended.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._wakeups.stop()
            await self.calls.close()

    async def drain(self, grace: float) -> bool:
        """Stops beginning, gives the shards away at once, finishes what is in flight within `grace` seconds, and
        ends the lease; says whether everything was finished (rule 13). `run` returns after it."""
        self.lease.draining = True
        self.beginner.stopped = True
        finishing = asyncio.create_task(self._finish(), name="finish")
        ended = asyncio.create_task(self._ended.wait(), name="ended")  # a lease lost meanwhile leaves nothing to finish
        await asyncio.wait({finishing, ended}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        finished = finishing.done() and not finishing.cancelled() and finishing.exception() is None
        if not finished:
            log.warning("not everything was finished within %g s", grace)
        for waiting in (finishing, ended):
            waiting.cancel()
        await asyncio.gather(finishing, ended, return_exceptions=True)
        for service in self._services:
            service.stop()
        try:
            self.lease.give_up()
            async with asyncio.timeout(1.0):
                reach("leave.before")
                await self._store.leases.leave(self.lease.id)
                reach("leave.after")
        except (TimeoutError, StoreUnavailableError):
            log.warning("lease %s could not be ended; it will run out", self.lease.id)
        finally:
            self._left.set()
        return finished

    async def _finish(self) -> None:
        await _insist(self._beat.run_once)
        await _insist(self.ownership.give_all)
        await self.calls.drained()

    def _wake_all(self) -> None:
        """The database is back: nobody waits out the pause that an outage has brought it to."""
        for service in self._services:
            service.is_back()

    async def _read_once(self) -> dict[str, int]:
        counts = await self.reader.run_once()
        if counts["added"]:
            self._begin_service.wake()
        return counts

    async def _begin_once(self) -> dict[str, int]:
        counts = await self.beginner.run_once()
        if counts.get("begun") and self.reader.hungry():
            self._read_service.wake()  # a long queue is read on as fast as it is begun
        return counts

    async def _judge_once(self) -> dict[str, int]:
        counts = await self._judge.run_once()
        if counts["expired"]:
            self._ownership_service.wake()
        return counts

    async def _own_once(self) -> dict[str, int]:
        before = set(self.board.tenants)
        counts = await self.ownership.run_once()
        if set(self.board.tenants) - before:
            self._read_service.wake()
        return counts

    def _queues_changed(self, queues: Sequence[tuple[UUID, int]]) -> None:
        mine = [queue for queue in queues if queue[0] in self.board.tenants]
        if mine:
            self.reader.want(mine)
            self._read_service.wake()

    def _cancels_heard(self, run_ids: Sequence[UUID]) -> None:
        self._said_cancelled.update(run_ids)
        self._abort_service.wake()

    async def _abort_once(self) -> dict[str, int]:
        """Aborts the calls of the runs that are said to be cancelled, where the database says so too (rule 8): a
        wake-up is a hint, and an aborted call ends its run for good."""
        said, self._said_cancelled = self._said_cancelled, set()
        pairs = [pair for pair in self.board.in_flight if pair[0] in said] if said else []
        if not pairs:
            return {}
        try:
            rows = await self._store.runs.recheck(self.lease.id, pairs)
        except StoreUnavailableError:
            self._said_cancelled |= said
            raise
        marked = [row.run_id for row in rows if row.cancelled]
        for run_id in marked:
            self.calls.abort(run_id)
        return {"aborted": len(marked)}

    def landed(self, run: Begun, again: Pending | None) -> None:
        """Brings the board to a run's end: room for another, its own return, the rows that waited for it."""
        self.board.land(run)
        if again is not None and again.due_at <= self._database_clock.now() + timedelta(seconds=self.config.read.lead):
            self.board.add(again)
        if self.board.return_deferred_of(run.task_id):
            self._begin_service.wake()


class _Landing:
    """The executor's `Listener`: what it says goes to the owner's board."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def started(self, run: Begun) -> None:
        """Nothing to do: a run counts against its caps from its begin."""

    def released(self, run: Begun, completion: Completion | None, again: Pending | None) -> None:
        self._owner.landed(run, again)


async def _insist(step: Callable[[], Awaitable[object]]) -> None:
    """Repeats a step until the database has taken it: what is in flight is worth waiting for (promise 7)."""
    while True:
        try:
            await step()
        except StoreUnavailableError:
            await asyncio.sleep(_INSIST_PAUSE)
        else:
            return
