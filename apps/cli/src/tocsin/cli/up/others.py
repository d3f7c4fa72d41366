"""Whether somebody else works on the database that `up` was given: read before anything is written to it."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol
from uuid import UUID

from tocsin.cli.demo.tenant import NAME
from tocsin.cli.up.options import UpError
from tocsin.common.clock import Clock
from tocsin.common.store.tenants import LeaseInfo, Tenant

log = logging.getLogger("tocsin.up")

_LOOK_SECONDS = 0.5
LEAVING_SECONDS = 10.0
"""As long as an earlier `up` that was killed may take to end its executors: until then they may go on beating."""

SILENT_SECONDS = 16.0
"""What has not beaten for so long is dead: a lease of the longest ttl, 120 s, beats every 15 s."""


class Leases(Protocol):
    async def listing(self, cell: str | None = None) -> list[LeaseInfo]: ...


class Tenants(Protocol):
    async def listing(self, after: UUID | None, limit: int) -> list[Tenant]: ...


class Others:
    """Judges from heartbeats that move on: what a `kill -9` left behind has a lease, too, but it is silent.

    Instants are of one monotonic clock; heartbeats are only ever compared with each other.
    """

    def __init__(self, now: float, heartbeats: Mapping[UUID, datetime]) -> None:
        self._began = self._last_beat = now
        self._heartbeats = dict(heartbeats)

    def look(self, now: float, heartbeats: Mapping[UUID, datetime]) -> bool | None:
        """Takes the heartbeats of the leases that have not ended; says whether somebody works, None: not known yet."""
        if not heartbeats:
            return False
        beaten = any(self._heartbeats.get(lease) != at for lease, at in heartbeats.items())
        self._heartbeats.update(heartbeats)
        if beaten:
            self._last_beat = now
            return True if now - self._began >= LEAVING_SECONDS else None
        return False if now - self._last_beat >= SILENT_SECONDS else None


async def require_alone(leases: Leases, clock: Clock, place: str) -> None:
    """Returns once it is sure that no executor works on this database, at once where no lease is left.

    Raises:
        UpError: somebody does; known after 10 s, and the longer a ttl the later: 25 s at 120 s.
    """
    live = await _live(leases)
    others = Others(clock.monotonic(), _heartbeats(live))
    if live:
        log.info("%s has leases that have not ended; looking whether somebody works there", place)
    while (works := others.look(clock.monotonic(), _heartbeats(live))) is None:
        await asyncio.sleep(_LOOK_SECONDS)
        live = await _live(leases)
    if works:
        newest = max(live, key=lambda lease: lease.heartbeat_at)
        raise UpError(
            f"another Tocsin works on {place} (pid {newest.pid} on {newest.node}): "
            f"stop it, or give this one a database of its own"
        )


async def require_no_tenant_but_the_demos(tenants: Tenants, place: str) -> None:
    """Raises:
    UpError: the database has another tenant.
    """
    if any(tenant.name != NAME for tenant in await tenants.listing(None, 2)):
        raise UpError(f"{place} has tenants other than the demo's: start without --demo, or give the demo a database")


async def _live(leases: Leases) -> list[LeaseInfo]:
    return [lease for lease in await leases.listing() if lease.expired_at is None]


def _heartbeats(live: list[LeaseInfo]) -> dict[UUID, datetime]:
    return {lease.id: lease.heartbeat_at for lease in live}
