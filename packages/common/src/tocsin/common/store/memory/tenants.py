"""Tenants, keys and cells, in memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from tocsin.common.errors import ConflictError, NotFoundError
from tocsin.common.ids import LANES, SHARED_SHARDS, shard_of
from tocsin.common.store.memory.database import MemoryDatabase, Shard
from tocsin.common.store.tenants import (
    ApiKey,
    AuditEntry,
    Placement,
    Tenant,
    changed_limits,
    limits_of,
    require_room_for_shards,
    second_cell,
)


class MemoryTenants:
    def __init__(self, database: MemoryDatabase, actor: str) -> None:
        self._db = database
        self._actor = actor

    async def insert(self, tenant: Tenant, signing_secrets: Sequence[str]) -> None:
        await self._db.round_trip()
        if any(other.name == tenant.name for other in self._db.tenants.values()):
            raise ConflictError(f"a tenant named {tenant.name!r} exists")
        self._db.tenants[tenant.id] = replace(tenant, shard=shard_of(tenant.id), move_to=None)
        self._db.secrets[tenant.id] = tuple(signing_secrets)
        self._audit(tenant.id, "tenant.create", tenant.id, name=tenant.name, **limits_of(tenant))

    async def set_limits(self, tenant_id: UUID, change: Callable[[Tenant], Tenant]) -> Tenant:
        await self._db.round_trip()
        old = self._get(tenant_id)
        new = change(old)
        if not changed_limits(old, new):
            return old
        require_room_for_shards(new, sum(shard.tenant_id == tenant_id for shard in self._db.shards.values()))
        self._db.tenants[tenant_id] = replace(
            self._db.tenants[tenant_id],
            weight=new.weight,
            max_in_flight=new.max_in_flight,
            max_in_flight_per_endpoint=new.max_in_flight_per_endpoint,
        )
        self._audit(tenant_id, "tenant.set", tenant_id, **changed_limits(old, new))
        return self._get(tenant_id)

    async def find(self, *, name: str | None = None, tenant_id: UUID | None = None) -> Tenant | None:
        await self._db.round_trip()
        for tenant in self._db.tenants.values():
            if tenant.name == name or tenant.id == tenant_id:
                return self._get(tenant.id)
        return None

    async def secrets(self, tenant_ids: Sequence[UUID]) -> dict[UUID, tuple[str, ...]]:
        await self._db.round_trip()
        return {key: secrets for key, secrets in self._db.secrets.items() if key in tenant_ids}

    async def insert_key(self, key_id: UUID, tenant_id: UUID, name: str, key_hash: bytes) -> None:
        await self._db.round_trip()
        self._db.keys[key_hash] = (tenant_id, ApiKey(key_id, name, self._db.now(), None))
        self._audit(tenant_id, "key.create", key_id, name=name)

    async def find_key(self, key_hash: bytes) -> tuple[UUID, UUID] | None:
        await self._db.round_trip()
        found = self._db.keys.get(key_hash)
        return None if found is None or found[1].revoked_at is not None else (found[1].id, found[0])

    async def revoke_key(self, key_id: UUID) -> bool:
        await self._db.round_trip()
        for key_hash, (tenant_id, key) in self._db.keys.items():
            if key.id == key_id and key.revoked_at is None:
                self._db.keys[key_hash] = (tenant_id, replace(key, revoked_at=self._db.now()))
                self._audit(tenant_id, "key.revoke", key_id)
                return True
        return False

    async def keys(self, tenant_id: UUID) -> list[ApiKey]:
        await self._db.round_trip()
        found = [key for holder, key in self._db.keys.values() if holder == tenant_id]
        return sorted(found, key=lambda key: key.id)

    async def placements(self) -> list[Placement]:
        await self._db.round_trip()
        return sorted(self._db.placements.values(), key=lambda placement: placement.cell)

    async def next_generation(self) -> int:
        generation = await self.generation() + 1
        for cell, placement in self._db.placements.items():
            self._db.placements[cell] = replace(placement, generation=generation)
        return generation

    async def generation(self) -> int:
        return max((placement.generation for placement in await self.placements()), default=0)

    async def open_cell(self, tenant_id: UUID, executors: int) -> str:
        await self._db.round_trip()
        tenant = self._get(tenant_id)
        require_room_for_shards(tenant, executors)
        cell = f"tenant-{tenant_id}"
        if cell in self._db.placements:
            raise second_cell(tenant)
        generation = max(placement.generation for placement in self._db.placements.values())
        self._db.placements[cell] = Placement(cell, executors, tenant_id, False, generation)
        first = max(*self._db.shards, SHARED_SHARDS - 1) + 1
        for i in range(executors):
            lanes = (i * LANES // executors, (i + 1) * LANES // executors)
            self._db.shards[first + i] = Shard(cell, tenant_id, *lanes)
        self._audit(tenant_id, "tenant.promote", tenant_id, cell=cell, executors=executors)
        return cell

    async def close_cell(self, cell: str, tenant_id: UUID) -> bool:
        await self._db.round_trip()
        placement = self._db.placements.get(cell)
        if placement is None or placement.tenant_id is None:
            return False
        self._db.placements[cell] = replace(placement, closing=True)
        self._ask_move(placement.tenant_id, shard_of(tenant_id))
        if not placement.closing:
            self._audit(placement.tenant_id, "tenant.demote", placement.tenant_id, cell=cell)
        return True

    async def remove_cell(self, cell: str) -> bool:
        await self._db.round_trip()
        placement = self._db.placements.get(cell)
        shards = {number for number, shard in self._db.shards.items() if shard.cell == cell}
        named = {tenant.shard for tenant in self._db.tenants.values()} | set(self._db.moves.values())
        lived_in = any(lease.cell == cell and lease.expired_at is None for lease in self._db.leases.values())
        if placement is None or not placement.closing or lived_in or shards & named:
            return False
        for number in shards:
            del self._db.shards[number]
        del self._db.placements[cell]
        return True

    async def ask_move(self, tenant_id: UUID, shard: int) -> None:
        await self._db.round_trip()
        target = self._db.shards.get(shard)
        if target is not None and not self._db.placements[target.cell].closing:
            self._ask_move(tenant_id, shard)

    def _ask_move(self, tenant_id: UUID, shard: int) -> None:
        tenant = self._db.tenants.get(tenant_id)
        self._db.moves.pop(tenant_id, None)
        if tenant is not None and tenant.shard != shard:
            self._db.moves[tenant_id] = shard

    async def moving(self) -> list[UUID]:
        await self._db.round_trip()
        return list(self._db.moves)

    async def cell_shards(self, cell: str) -> list[tuple[int, UUID | None]]:
        await self._db.round_trip()
        return [
            (number, shard.owner if self._db.live(shard.owner) is not None else None)
            for number, shard in sorted(self._db.shards.items())
            if shard.cell == cell
        ]

    async def set_executors(self, cell: str, executors: int) -> None:
        await self._db.round_trip()
        if (placement := self._db.placements.get(cell)) is not None:
            self._db.placements[cell] = replace(placement, executors=executors)

    def _get(self, tenant_id: UUID) -> Tenant:
        if tenant_id not in self._db.tenants:
            raise NotFoundError("no such tenant")
        return replace(self._db.tenants[tenant_id], move_to=self._db.moves.get(tenant_id))

    def _audit(self, tenant_id: UUID, action: str, target: UUID, **detail: object) -> None:
        self._db.audit.append(AuditEntry(tenant_id, self._actor, action, target, detail))
