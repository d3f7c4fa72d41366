"""Identifiers, and the two stable hashes that place tenants and tasks."""

import hashlib
import random
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

SHARED_SHARDS = 64
"""Shards that tenants share by hash; a promoted tenant's own shards have higher numbers."""

LANES = 1024
"""Values of `lane`; a tenant with k shards serves k equal ranges of them."""


class WallTime(Protocol):
    """A clock, as far as ids need one; where a run's age decides anything it is the database's."""

    def now(self) -> datetime: ...


class Ids:
    """Makes UUIDv7 (RFC 9562, section 5.7): 48 bits of Unix milliseconds, the rest random.

    Ids of one process rise within a millisecond too: a 12-bit counter stands where the RFC
    allows one (`rand_a`, method 1), so rows planted together lie together in an index.
    """

    def __init__(self, clock: WallTime, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._millisecond = 0
        self._counter = 0

    def new(self, at: datetime | None = None) -> UUID:
        """An id of the instant `at`, or of the clock's now; of a later one where it must be, so as to rise."""
        millisecond = int((at or self._clock.now()).timestamp() * 1000)
        if millisecond > self._millisecond:
            self._millisecond = millisecond
            self._counter = self._rng.getrandbits(8)
        else:
            self._counter += 1
            if self._counter > 0xFFF:
                self._millisecond += 1
                self._counter = self._rng.getrandbits(8)
        value = (self._millisecond & (2**48 - 1)) << 80
        value |= 0x7 << 76 | self._counter << 64
        value |= 0b10 << 62 | self._rng.getrandbits(62)
        return UUID(int=value)

    def separate(self) -> "Ids":
        """Ids of the same clock and randomness that rise by themselves."""
        return Ids(self._clock, self._rng)


def shard_of(tenant_id: UUID) -> int:
    """The shared shard of a tenant, 0 to 63: the same on every machine and in every version."""
    return _stable(tenant_id) % SHARED_SHARDS


def lane_of(task_id: UUID) -> int:
    """The lane of a task, 0 to 1023."""
    return _stable(task_id) % LANES


def _stable(value: UUID) -> int:
    return int.from_bytes(hashlib.blake2b(value.bytes, digest_size=8).digest(), "big")


def planted_at(run_id: UUID) -> datetime:
    """When a run's row was planted, to the millisecond: its id says so."""
    return datetime.fromtimestamp((run_id.int >> 80) / 1000, UTC)
