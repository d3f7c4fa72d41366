"""An executor process, composed: the engine's owner and the executor's pool of calls, for one lease after another.

It is the same thing inside a Ray actor, as a plain process, and in a test.
"""

import asyncio
import gc
import logging
import random
from dataclasses import dataclass
from uuid import UUID

from tocsin.cli.limits import connection_limit, in_flight_limit
from tocsin.common.calls import Listener
from tocsin.common.clock import Clock, DatabaseClock, SystemClock
from tocsin.common.errors import LeaseLostError, StoreUnavailableError
from tocsin.common.ids import Ids
from tocsin.common.settings import Settings
from tocsin.common.store.postgres.migrate import require_schema
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.postgres.wakeups import PostgresWakeUps
from tocsin.common.store.tenants import Process
from tocsin.common.telemetry.meter import Meter
from tocsin.common.time.zones import zone_data_version
from tocsin.engine.lease import Lease, LeaseConfig
from tocsin.engine.owner import Owner, OwnerConfig
from tocsin.engine.process import this_process
from tocsin.executor.egress import EgressGuard, EgressPolicy
from tocsin.executor.pool import CallPool
from tocsin.executor.resolver import AiodnsLookup, CachingResolver
from tocsin.executor.transport.aiohttp_transport import AiohttpTransport
from tocsin.executor.transport.lean import LeanTransport
from tocsin.executor.transport.port import Transport

log = logging.getLogger("tocsin.node")

_GC_THRESHOLD = 100_000
"""With thousands of calls in flight the full passes cost more than they find: 5,200 against 7,100 calls a second."""

_RETRY_SECONDS = 1.0


def collect_garbage_rarely() -> None:
    """For a process that makes thousands of small objects a second, and few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 20)


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What a dashboard shows of an executor."""

    cell: str
    lease_id: UUID | None
    shards: int
    tenants: int
    in_flight: int

    def __str__(self) -> str:
        lease = "no lease" if self.lease_id is None else f"lease {str(self.lease_id)[-6:]}"
        return f"{self.cell}: {lease}, {self.shards} shards, {self.tenants} tenants, {self.in_flight} in flight"


class ExecutorNode:
    """Serves a cell until drained. When a lease ends it drops everything and takes a new one."""

    def __init__(
        self, settings: Settings, cell: str, generation: int, meter: Meter, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._cell = cell
        self._generation = generation
        self._meter = meter
        self._clock = clock or SystemClock()
        self._rng = random.Random()  # noqa: S311 - jitter and ids, not secrets
        self._process: Process | None = None
        self._owner: Owner | None = None
        self._store: PostgresStore | None = None
        self._draining = False
        self._outdated = False

    async def run(self) -> None:
        """Returns after `drain`, and where it would take a lease when a newer generation has begun (rule 12)."""
        self._process = await asyncio.to_thread(this_process)
        collect_garbage_rarely()
        while not (self._draining or self._outdated):
            try:
                await self._one_lease(self._process)
            except LeaseLostError as error:
                log.warning("%s; starting anew", error)
            except StoreUnavailableError as error:
                log.warning("the database cannot be reached (%s); trying again", error)
                await asyncio.sleep(_RETRY_SECONDS)
            finally:
                self._owner = None

    async def _one_lease(self, process: Process) -> None:
        lease_id = Ids(self._clock, self._rng).new()
        dsn = self._settings.database_url.get_secret_value()
        store = PostgresStore(dsn, lease_id=lease_id, beat_timeout=0.4 * self._settings.lease_ttl_seconds)
        try:
            await require_schema(dsn)
            await store.open()
            if self._draining:  # asked for while the database was waited for
                return
            if await self._superseded(store):
                log.warning("a newer generation than %d has begun; taking no lease", self._generation)
                self._outdated = True
                return
            self._store = store
            self._owner = Owner(
                store,
                lease_id,
                process,
                PostgresWakeUps(dsn, store.name),
                lambda lease, listener, clock: self._calls(store, lease, listener, clock),
                self._clock,
                self._rng,
                self._meter,
                OwnerConfig(
                    cell=self._cell,
                    generation=self._generation,
                    process_cap=in_flight_limit(self._settings),
                    zone_data=zone_data_version(),
                    lease=LeaseConfig(self._settings.lease_ttl_seconds, self._settings.trust_margin),
                ),
            )
            await self._owner.run()
        finally:
            self._store = None
            await store.close()

    def _calls(self, store: PostgresStore, lease: Lease, listener: Listener, database_clock: DatabaseClock) -> CallPool:
        transport = self._transport()
        return CallPool(
            transport,
            store.runs,
            lease.id,
            lease,
            listener,
            self._clock,
            database_clock,
            self._rng,
            self._meter,
            warmer=transport if isinstance(transport, LeanTransport) else None,
        )

    def _transport(self) -> Transport:
        policy = EgressPolicy.parse(self._settings.egress_allow)
        servers = tuple(s.strip() for s in self._settings.dns_servers.split(",") if s.strip())
        guard = EgressGuard(policy, CachingResolver(AiodnsLookup(servers), self._clock))
        if self._settings.transport == "lean":
            return LeanTransport(guard, self._clock, self._rng, open_limit=connection_limit())
        return AiohttpTransport(guard, self._clock, self._rng)

    async def drain(self, grace: float) -> bool:
        """Finishes within `grace` seconds and ends `run`; says whether everything was finished."""
        self._draining = True
        owner = self._owner
        return True if owner is None else await owner.drain(grace)

    @property
    def status(self) -> NodeStatus:
        owner = self._owner
        if owner is None:
            return NodeStatus(self._cell, None, 0, 0, 0)
        return NodeStatus(
            self._cell,
            owner.lease.id,
            len(owner.ownership.shards),
            len(owner.board.tenants),
            len(owner.board.in_flight),
        )

    async def outdated(self) -> bool:
        """Whether a newer Supervisor has begun a generation: this executor is to drain (rule 12)."""
        store = self._store
        if self._outdated or store is None:
            return self._outdated
        try:
            return await self._superseded(store)
        except StoreUnavailableError:
            return False

    async def _superseded(self, store: PostgresStore) -> bool:
        """Generation 0 is of no Supervisor, and none replaces it."""
        return self._generation > 0 and await store.tenants.generation() > self._generation
