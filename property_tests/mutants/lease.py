"""Broken twins of the lease: each takes one guard out, and the lease machine must notice."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from property_tests.lease import LeaseMachine
from property_tests.machine import Profile
from property_tests.mutant import Instead, Mutant
from tocsin.common.clock import DatabaseClock
from tocsin.common.errors import LeaseLostError
from tocsin.common.store.memory.leases import MemoryLeases
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.tenants import Neighbour
from tocsin.engine.lease import Beat, Judge, Lease


def judged_by_a_workers_clock(patch: pytest.MonkeyPatch) -> None:
    run_once = Judge.run_once

    async def by_my_watch(self: Judge) -> dict[str, int]:
        now = self._lease._clock.now()
        found = await self._leases.listing()
        silent = [
            lease.id
            for lease in found
            if lease.expired_at is None and (now - lease.heartbeat_at).total_seconds() > self._lease.config.ttl
        ]
        await self._leases.expire([lease_id for lease_id in silent if lease_id != self._lease.id])
        return await run_once(self)

    patch.setattr(Judge, "run_once", by_my_watch)


def an_outage_ends_everybody(patch: pytest.MonkeyPatch) -> None:
    """Whoever beats again first ends all others: nobody asks whether the judge was there."""

    async def judge(self: MemoryLeases, lease_id: UUID) -> list[UUID]:
        await self._db.round_trip()
        now, me = self._db.now(), self._db.live(lease_id)
        if me is None or now - me.heartbeat_at > me.ttl / 4:
            return []
        live = [lease for lease in self._db.leases.values() if lease.expired_at is None]
        return self._expire([lease.id for lease in live if now - lease.heartbeat_at > lease.ttl])

    patch.setattr(MemoryLeases, "judge", judge)


def most_at_once_are_not_given_longer(patch: pytest.MonkeyPatch) -> None:
    """A steady judge ends the half and more that are silent at once after one ttl."""

    async def judge(self: MemoryLeases, lease_id: UUID) -> list[UUID]:
        await self._db.round_trip()
        now, me = self._db.now(), self._db.live(lease_id)
        if me is None or now - me.heartbeat_at > me.ttl / 4 or now - me.steady_since < me.ttl:
            return []
        live = [lease for lease in self._db.leases.values() if lease.expired_at is None]
        return self._expire([lease.id for lease in live if now - lease.heartbeat_at > lease.ttl])

    patch.setattr(MemoryLeases, "judge", judge)


def trust_counts_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    async def run_once(self: Beat) -> dict[str, int]:
        sent = self._clock.monotonic()
        now = await self._leases.beat(self._lease.id, draining=self._lease.draining)
        if now is None:
            raise LeaseLostError(self._lease.id)
        self._lease.beaten(self._clock.boottime())
        self._database_clock.sample(now, sent, self._clock.monotonic())
        return {"beaten": 1}

    patch.setattr(Beat, "run_once", run_once)


def trust_leaves_no_margin(patch: pytest.MonkeyPatch) -> None:
    def trusted(self: Lease) -> bool:
        return self._clock.boottime() < self._beaten_at + self.config.ttl

    patch.setattr(Lease, "trusted", property(trusted))


def trust_sleeps_with_the_machine(patch: pytest.MonkeyPatch) -> None:
    """By the clock that stands while the machine is suspended."""

    def beaten(self: Lease, started: float) -> None:
        self._beaten_at = max(self._beaten_at, started - self._clock.boottime() + self._clock.monotonic())

    def trusted(self: Lease) -> bool:
        return self._clock.monotonic() < self._beaten_at + self.config.ttl - self.config.margin

    patch.setattr(Lease, "beaten", beaten)
    patch.setattr(Lease, "trusted", property(trusted))


def an_answer_revives_trust_given_up(patch: pytest.MonkeyPatch) -> None:
    """A beat is under way while a drained process leaves; what it says is believed."""

    def beaten(self: Lease, started: float) -> None:
        self._beaten_at = max(self._beaten_at, started)

    def trusted(self: Lease) -> bool:
        return self._clock.boottime() < self._beaten_at + self.config.ttl - self.config.margin

    patch.setattr(Lease, "beaten", beaten)
    patch.setattr(Lease, "trusted", property(trusted))


def a_beat_revives_an_ended_lease(patch: pytest.MonkeyPatch) -> None:
    beat = MemoryLeases.beat

    async def reviving(self: MemoryLeases, lease_id: UUID, *, draining: bool) -> datetime | None:
        if (lease := self._db.leases.get(lease_id)) is not None:
            lease.expired_at = None
        return await beat(self, lease_id, draining=draining)

    patch.setattr(MemoryLeases, "beat", reviving)


def a_pid_is_proof_on_any_host(patch: pytest.MonkeyPatch) -> None:
    """Of a process on another machine nothing is seen here, and that is taken for its death."""

    async def neighbours(self: MemoryLeases, _boot: str, _pid_namespace: str) -> list[Neighbour]:
        await self._db.round_trip()
        live = [lease for lease in self._db.leases.values() if lease.expired_at is None]
        return [Neighbour(lease.id, lease.process.pid, lease.process.started) for lease in live]

    patch.setattr(MemoryLeases, "neighbours", neighbours)


def an_ended_lease_begins_runs(patch: pytest.MonkeyPatch) -> None:
    begin = MemoryRuns._begin

    def unasked(self: MemoryRuns, lease_id: UUID, items: Sequence[Any]) -> Any:
        lease = self._db.leases.get(lease_id)
        if lease is None or lease.expired_at is None:
            return begin(self, lease_id, items)
        ended, lease.expired_at = lease.expired_at, None
        result = begin(self, lease_id, items)
        lease.expired_at = ended
        return result

    patch.setattr(MemoryRuns, "_begin", unasked)


def a_sample_counts_from_its_sending(patch: pytest.MonkeyPatch) -> None:
    sample = DatabaseClock.sample

    def early(self: DatabaseClock, t_db: datetime, sent: float, _received: float) -> None:
        sample(self, t_db, sent, sent)

    patch.setattr(DatabaseClock, "sample", early)


ITS_VICTIM_GOES_ON = Instead(6, "for who is ended without right goes on in good faith, and that is looked at first")

MUTANTS: Sequence[Mutant] = (
    Mutant(
        "a lease is judged by a worker's clock",
        7,
        LeaseMachine,
        judged_by_a_workers_clock,
        Profile(200, 30),
        instead=ITS_VICTIM_GOES_ON,
    ),
    Mutant("a database outage ends everybody", 7, LeaseMachine, an_outage_ends_everybody, Profile(200, 30)),
    Mutant("most at once get no second ttl", 7, LeaseMachine, most_at_once_are_not_given_longer, Profile(200, 30)),
    Mutant(
        "a pid is proof on any host",
        7,
        LeaseMachine,
        a_pid_is_proof_on_any_host,
        Profile(200, 30),
        instead=ITS_VICTIM_GOES_ON,
    ),
    Mutant("trust counts from the answer", 6, LeaseMachine, trust_counts_from_the_answer, Profile(200, 30), seed=11),
    Mutant("trust leaves no margin", 6, LeaseMachine, trust_leaves_no_margin, Profile(200, 30)),
    Mutant("trust sleeps with the machine", 6, LeaseMachine, trust_sleeps_with_the_machine, Profile(200, 30)),
    Mutant("an answer revives trust given up", 6, LeaseMachine, an_answer_revives_trust_given_up, Profile(200, 30)),
    Mutant("a beat revives an ended lease", 6, LeaseMachine, a_beat_revives_an_ended_lease, Profile(200, 30)),
    Mutant("an ended lease begins runs", 3, LeaseMachine, an_ended_lease_begins_runs, Profile(200, 30)),
    Mutant("a sample counts from its sending", 8, LeaseMachine, a_sample_counts_from_its_sending, Profile(200, 30)),
)
