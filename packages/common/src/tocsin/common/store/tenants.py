"""Tenants, and who serves them: leases, shards and cells as values."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tocsin.common.errors import ConflictError


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


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who changed what. `actor` is the process by its name (`cli`), `target` the tenant or key that was changed.

    `detail` holds what it was given or changed to, and never a key or a secret.
    """

    tenant_id: UUID
    actor: str
    action: str
    target: UUID
    detail: dict[str, Any]


def actor_of(name: str) -> str:
    """The actor of a process by the name of its server processes: `cli` of `tocsin cli`."""
    return name.removeprefix("tocsin ")


def limits_of(tenant: Tenant) -> dict[str, float | int | None]:
    """What an operator may change of a tenant after its creation."""
    return {
        "weight": tenant.weight,
        "max_in_flight": tenant.max_in_flight,
        "max_in_flight_per_endpoint": tenant.max_in_flight_per_endpoint,
    }


def changed_limits(old: Tenant, new: Tenant) -> dict[str, float | int | None]:
    """The limits of `new` that differ from those of `old`."""
    before = limits_of(old)
    return {name: value for name, value in limits_of(new).items() if value != before[name]}


def part_of_cap(cap: int, owned: int, shards: int) -> int:
    """What an owner of `owned` of the `shards` that serve a tenant may have in flight of its cap (rule 1).

    Rounded down: the parts of all owners come to the cap at most.
    """
    return cap * owned // shards


def require_room_for_shards(tenant: Tenant, shards: int) -> None:
    """Each of a tenant's own shards may have one call at least (rule 1: k <= cap).

    Raises:
        ConflictError: its cap is lower than that.
    """
    if shards > tenant.max_in_flight:
        raise ConflictError(
            f"{shards} executors of its own need a cap of {shards} calls in flight at least;"
            f" that of {tenant.name} is {tenant.max_in_flight}"
        )


def second_cell(tenant: Tenant) -> ConflictError:
    """What is raised where a tenant that has a cell is promoted."""
    return ConflictError(f"{tenant.name} has a cell of its own, or is about to leave it: demote it first, and wait")
