"""A lease: one life of one process. Its heartbeat, the trust that rests on it, and the judging of others."""

import asyncio
import logging
import math
from dataclasses import dataclass
from uuid import UUID

from tocsin.common.clock import Clock, DatabaseClock
from tocsin.common.crashpoints import reach
from tocsin.common.errors import LeaseLostError
from tocsin.common.store.ports import LeaseStore
from tocsin.common.store.tenants import Process
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import LEASES_LOST
from tocsin.engine.process import is_gone

log = logging.getLogger("tocsin.engine.lease")

REMOVE_AFTER = 120.0
"""Seconds after its end at which a lease may be forgotten: far longer than any statement."""


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Seconds. Beaten every `ttl / 8`; no call starts in the last `margin` before it could end."""

    ttl: float = 10.0
    margin: float = 2.0

    @property
    def every(self) -> float:
        return self.ttl / 8


class Lease:
    """This process's lease. `trusted` is promise 6: it needs no database, only the clock that counts through sleep."""

    def __init__(self, lease_id: UUID, clock: Clock, config: LeaseConfig) -> None:
        self.id = lease_id
        self.config = config
        self.draining = False
        self._clock = clock
        self._beaten_at = -math.inf
        self._given_up = False

    def beaten(self, started: float) -> None:
        """A heartbeat succeeded that was sent at the boot-time instant `started`."""
        self._beaten_at = max(self._beaten_at, started)

    def give_up(self) -> None:
        """No call starts any more: the lease is about to be ended. The answer of a heartbeat still under way changes
        nothing about it."""
        self._given_up = True

    @property
    def trusted(self) -> bool:
        """Whether a call may start now: nobody can yet have taken this lease for dead."""
        trusted_until = self._beaten_at + self.config.ttl - self.config.margin
        return not self._given_up and self._clock.boottime() < trusted_until


class Beat:
    """Renews the lease and samples the database's clock. Nothing else runs in this service: nothing may delay it."""

    def __init__(self, leases: LeaseStore, lease: Lease, clock: Clock, database_clock: DatabaseClock) -> None:
        self._leases = leases
        self._lease = lease
        self._clock = clock
        self._database_clock = database_clock

    async def register(self, cell: str, generation: int, process: Process, zone_data: str) -> None:
        """Takes the lease."""
        started, sent = self._clock.boottime(), self._clock.monotonic()
        now = await self._leases.register(self._lease.id, cell, generation, process, zone_data, self._lease.config.ttl)
        self._lease.beaten(started)
        self._database_clock.sample(now, sent, self._clock.monotonic())

    async def run_once(self) -> dict[str, int]:
        """Raises:
        LeaseLostError: the lease has ended; drop everything and take a new one.
        """
        reach("beat.before")
        started, sent = self._clock.boottime(), self._clock.monotonic()
        now = await self._leases.beat(self._lease.id, draining=self._lease.draining)
        reach("beat.after")
        if now is None:
            raise LeaseLostError(self._lease.id)
        self._lease.beaten(started)
        self._database_clock.sample(now, sent, self._clock.monotonic())
        return {"beaten": 1}


class Judge:
    """Ends the leases of the dead: those overdue on the database's clock, and those whose process is provably gone."""

    def __init__(self, leases: LeaseStore, lease: Lease, process: Process, meter: Meter) -> None:
        self._leases = leases
        self._lease = lease
        self._process = process
        self._meter = meter

    async def run_once(self) -> dict[str, int]:
        reach("judge.before")
        expired = await self._leases.judge(self._lease.id)
        reach("judge.after")
        neighbours = await self._leases.neighbours(self._process.boot, self._process.pid_namespace)
        gone = await asyncio.to_thread(
            lambda: [n.lease_id for n in neighbours if n.lease_id != self._lease.id and is_gone(n.pid, n.started)]
        )
        if gone:
            reach("expire.before")
            expired += await self._leases.expire(gone)
            reach("expire.after")
        for lease_id in expired:
            log.warning("lease %s has ended: its process is dead or silent; its runs will be given back", lease_id)
        if expired:
            self._meter.add(LEASES_LOST, len(expired))
        await self._leases.remove(REMOVE_AFTER)
        return {"expired": len(expired)}
