"""Tenants, and who serves them: leases, shards and cells as values."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant as owners read it. `shard` is its shard; `move_to` the one that it was asked to move to."""

    id: UUID
    name: str
    shard: int
    weight: float
    max_in_flight: int
    max_in_flight_per_endpoint: int | None
    move_to: int | None = None


@dataclass(frozen=True, slots=True)
class OwnedTenant:
    """A tenant that shard `shard` of this process serves: its lanes [lane_first, lane_last).

    `parts` is the number of shards that share the tenant's cap.
    """

    tenant: Tenant
    shard: int
    lane_first: int
    lane_last: int
    parts: int


@dataclass(frozen=True, slots=True)
class OwnedShard:
    """A shard of this process. `closing`: its cell is being closed, let it go."""

    shard: int
    closing: bool


@dataclass(frozen=True, slots=True)
class FairPart:
    """Shards of a cell, executors that share them, and those that this one owns."""

    shards: int
    executors: int
    mine: int

    @property
    def fair(self) -> int:
        """The greatest number that one executor should own."""
        return -(-self.shards // max(1, self.executors))


@dataclass(frozen=True, slots=True)
class Process:
    """One life of one process, as others on the same machine can recognise it.

    `started` is its start: on Linux in clock ticks since the boot, elsewhere in Unix seconds. Only starts of
    one boot and pid namespace can be compared; there an equal pid and start mean the same process.
    """

    node: str
    boot: str
    pid_namespace: str
    pid: int
    started: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A live lease whose process this one can look at."""

    lease_id: UUID
    pid: int
    started: float


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """What a person reads of a lease."""

    id: UUID
    cell: str
    generation: int
    node: str
    pid: int
    zone_data: str
    started_at: datetime
    heartbeat_at: datetime
    expired_at: datetime | None
    draining: bool
    shards: int
    running: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A cell as the Supervisor keeps it."""

    cell: str
    executors: int
    tenant_id: UUID | None
    closing: bool
    generation: int


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as a person reads it; the key itself was shown once and only its hash is stored."""

    id: UUID
    name: str
    created_at: datetime
    revoked_at: datetime | None
