"""The processes of the lease machine, their ways to the database, and its own knowledge of who may be ended.

Time is counted thrice: true seconds, which only the machine knows; the database's clock; each process's clocks. What
is held against the product is worked out from the machine's own records of when which beat took effect.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tocsin.common.clock import DatabaseClock, ManualClock
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.leases import MemoryLeases
from tocsin.common.store.tenants import OwnedShard, Process
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.engine.lease import Beat, Judge, Lease, LeaseConfig

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
TTL = 10.0
MARGIN = 2.0
SAMPLES = 16
"""Answered beats after which nothing is left of what the database's clock said before it was set back."""


@dataclass(slots=True)
class Record:
    """What the machine itself knows of one lease: the database's time at each beat that took effect."""

    peer: "Peer"
    beats: list[float]
    stepped: float
    ended: bool = False
    draining: bool = False
    excused: bool = False
    """Ended after the database's clock had been set forward, since its last beat, by more than the margin."""


class Court:
    """Who may end whom, by rule 6 and promise 7; `wrongs` are (promise, what happened)."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.database = MemoryDatabase(self.clock)
        self.true = 0.0
        self.stepped = 0.0
        self.stepped_at = -1e9
        self.outages: list[tuple[float, float]] = []
        self.down_since = 0.0
        self.peers: list[Peer] = []
        self.records: dict[UUID, Record] = {}
        self.given_up: list[tuple[UUID, bool]] = []
        self.wrongs: list[tuple[int, str]] = []

    def wrong(self, promise: int, what: str) -> None:
        self.wrongs.append((promise, what))

    def pass_time(self, seconds: float, asleep: Collection["Peer"] = ()) -> None:
        """For everybody; the machines of those `asleep` are suspended."""
        self.true += seconds
        self.clock.advance(seconds)
        for peer in self.peers:
            if peer in asleep:
                peer.clock.suspend(seconds)
            else:
                peer.clock.advance(seconds)

    def now(self) -> float:
        return self.clock.now().timestamp()

    def took_effect(self, lease_id: UUID, now: datetime | None, *, draining: bool) -> None:
        """A beat arrived, and this is what the database said."""
        record = self.records[lease_id]
        if now is None:
            return
        if record.ended:
            self.wrong(6, "a beat of an ended lease was taken for a renewal")
        record.beats.append(now.timestamp())
        record.stepped, record.draining = self.stepped, draining

    def holders(self) -> set[UUID | None]:
        """Leases that a run or a shard names."""
        used: set[UUID | None] = {row.lease_id for row in self.database.running.values()}
        return used | {shard.owner for shard in self.database.shards.values()}

    @contextlib.contextmanager
    def watching(self, by: "Peer") -> Iterator[None]:
        """Around a statement that may end leases: each that it ends must be ended rightly."""
        live = [lease_id for lease_id, record in self.records.items() if not record.ended]
        yield
        rightly = self._rightly(by, live)
        for lease_id in live:
            if (row := self.database.leases.get(lease_id)) is None or row.expired_at is not None:
                record = self.records[lease_id]
                record.ended = True
                record.excused = self.stepped - record.stepped > MARGIN
                proven = record.peer.dead and record.peer.host == by.host
                if not (record.peer is by or proven or rightly(record)):
                    silent = self.now() - record.beats[-1]
                    self.wrong(7, f"a lease was ended without right, silent for {silent:g} s by the database's clock")

    def _rightly(self, by: "Peer", live: Sequence[UUID]) -> Callable[[Record], bool]:
        """Rule 6, as things were before the statement."""
        now = self.now()
        overdue = [lease_id for lease_id in live if now - self.records[lease_id].beats[-1] > TTL]
        silent_for = 2 * TTL if 2 * len(overdue) > len(live) else TTL
        may_judge = by.lease.id in live and self._steady(self.records[by.lease.id], now) and not self._away()
        return lambda record: may_judge and now - record.beats[-1] > silent_for

    def _steady(self, record: Record, now: float) -> bool:
        """Whether a process has seen the database without a break for a whole ttl."""
        since = record.beats[-1]
        if now - since > TTL / 4:
            return False
        for earlier in reversed(record.beats[:-1]):
            if since - earlier > TTL / 4:
                break
            since = earlier
        return now - since >= TTL

    def _away(self) -> bool:
        """Whether, by true time, the database was away within the last ttl for longer than a beat may be. Not known
        where the database's clock was set: the rule goes by that clock, and a break may be hidden in the step."""
        if self.true - self.stepped_at < 2 * TTL:
            return False
        spans = [*self.outages, (self.down_since, self.true)] if self.database.unavailable else self.outages
        return any(end - since > TTL / 4 and end > self.true - TTL for since, end in spans)


class Journey:
    """One slow beat under way: it waits to arrive, then for its answer to be read."""

    def __init__(self) -> None:
        self.arrives, self.answered = asyncio.Event(), asyncio.Event()
        self.arrived = self.lost = False


class Peer:
    """One process: its clocks, its lease, its way to the database. Two hosts, the same pids on both."""

    def __init__(self, court: Court, number: int, new_id: Callable[[], UUID]) -> None:
        self._court, self._new_id = court, new_id
        self.clock = ManualClock(START + timedelta(hours=number - 2), monotonic=1000.0 * (number + 1))
        self.host = number % 2
        self.process = Process("node", f"boot {self.host}", "pid:1", 100 + number // 2, float(number))
        self.frozen = self.dead = self.left = self.lost = self.cut = self.lose_answer = False
        self.there = self.back = 0.0
        """Seconds that a beat takes on each way, where it is not a journey."""
        self.journey: Journey | None = None
        self.under_way: asyncio.Task[Any] | None = None
        self.take_lease()

    def take_lease(self) -> None:
        self.lost = False
        self.samples = SAMPLES
        self.lease = Lease(self._new_id(), self.clock, LeaseConfig(TTL, MARGIN))
        self.database_clock = DatabaseClock(self.clock)
        self.leases = Link(self._court, self)
        self.beat = Beat(self.leases, self.lease, self.clock, self.database_clock)
        self.judge = Judge(self.leases, self.lease, self.process, MemoryMeter())

    @property
    def acts(self) -> bool:
        return not (self.frozen or self.dead or self.left or self.lost)


class Link(MemoryLeases):
    """A process's way to the database, and the machine's ear at its end."""

    def __init__(self, court: Court, peer: Peer) -> None:
        super().__init__(court.database)
        self._court, self._peer = court, peer

    def _refuse(self) -> None:
        if self._peer.cut:
            raise StoreUnavailableError("cut off")

    async def register(
        self, lease_id: UUID, cell: str, generation: int, process: Process, zone_data: str, ttl: float
    ) -> datetime:
        self._refuse()
        now = await super().register(lease_id, cell, generation, process, zone_data, ttl)
        self._court.records[lease_id] = Record(self._peer, [now.timestamp()], self._court.stepped)
        return now

    async def beat(self, lease_id: UUID, *, draining: bool) -> datetime | None:
        self._refuse()
        journey = self._peer.journey
        if journey is not None:
            await journey.arrives.wait()
            if journey.lost:
                self._court.given_up.append((lease_id, draining))
                raise OutcomeUnknownError("given up before it arrived")
        self._court.pass_time(self._peer.there)
        now = await super().beat(lease_id, draining=draining)
        self._court.took_effect(lease_id, now, draining=draining)
        self._court.pass_time(self._peer.back)
        if journey is not None:
            journey.arrived = True
            await journey.answered.wait()
        if self._peer.lose_answer or (journey is not None and journey.lost):
            raise OutcomeUnknownError("the answer was lost")
        self._peer.samples += 1
        return now

    async def judge(self, lease_id: UUID) -> list[UUID]:
        self._refuse()
        with self._court.watching(self._peer):
            return await super().judge(lease_id)

    async def expire(self, lease_ids: Sequence[UUID]) -> list[UUID]:
        self._refuse()
        with self._court.watching(self._peer):
            return await super().expire(lease_ids)

    async def leave(self, lease_id: UUID) -> None:
        self._refuse()
        with self._court.watching(self._peer):
            await super().leave(lease_id)

    async def remove(self, older_than: float) -> int:
        self._refuse()
        before, holders = set(self._db.leases), self._court.holders()
        count = await super().remove(older_than)
        for lease_id in before - set(self._db.leases):
            if lease_id in holders or not self._court.records[lease_id].ended:
                self._court.wrong(1, "a lease was forgotten that lives, or holds a run or a shard")
        return count

    async def take_shards(self, lease_id: UUID, cell: str, limit: int) -> list[OwnedShard]:
        self._refuse()
        taken = await super().take_shards(lease_id, cell, limit)
        record = self._court.records[lease_id]
        if taken and (record.draining or record.ended):
            self._court.wrong(10, "a lease that drains or has ended took shards")
        return taken
