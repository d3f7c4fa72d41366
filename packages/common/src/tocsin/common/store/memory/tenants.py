"""Tenants, keys and cells, in memory."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tocsin.common.errors import ConflictError
from tocsin.common.ids import LANES, SHARED_SHARDS, shard_of
from tocsin.common.store.memory.database import MemoryDatabase, Shard
from tocsin.common.store.tenants import ApiKey, Placement, Tenant


class MemoryTenants:
    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def insert(self, tenant: Tenant, signing_secrets: Sequence[str]) -> None:
        await self._db.round_trip()
        if any(other.name == tenant.name for other in self._db.tenants.values()):
            raise ConflictError(f"a tenant named {tenant.name!r} exists")
        self._db.tenants[tenant.id] = replace(tenant, shard=shard_of(tenant.id), move_to=None)
        self._db.secrets[tenant.id] = tuple(signing_secrets)

    async def find(self, *, name: str | None = None, tenant_id: UUID | None = None) -> Tenant | None:
        await self._db.round_trip()
        for tenant in self._db.tenants.values():
            if tenant.name == name or tenant.id == tenant_id:
                return replace(tenant, move_to=self._db.moves.get(tenant.id))
        return None

    async def secrets(self, tenant_ids: Sequence[UUID]) -> dict[UUID, tuple[str, ...]]:
        await self._db.round_trip()
        return {key: secrets for key, secrets in self._db.secrets.items() if key in tenant_ids}

    async def insert_key(self, key_id: UUID, tenant_id: UUID, name: str, key_hash: bytes) -> None:
        await self._db.round_trip()
        self._db.keys[key_hash] = (tenant_id, ApiKey(key_id, name, self._db.now(), None))

    async def find_key(self, key_hash: bytes) -> tuple[UUID, UUID] | None:
        await self._db.round_trip()
        found = self._db.keys.get(key_hash)
        return None if found is None or found[1].revoked_at is not None else (found[1].id, found[0])

    async def revoke_key(self, key_id: UUID) -> bool:
        await self._db.round_trip()
        for key_hash, (tenant_id, key) in self._db.keys.items():
            if key.id == key_id and key.revoked_at is None:
                self._db.keys[key_hash] = (tenant_id, replace(key, revoked_at=self._db.now()))
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
        cell = f"tenant-{tenant_id}"
        if cell not in self._db.placements:
            generation = max(placement.generation for placement in self._db.placements.values())
            self._db.placements[cell] = Placement(cell, executors, tenant_id, False, generation)
            first = max(*self._db.shards, SHARED_SHARDS - 1) + 1
            for i in range(executors):
                lanes = (i * LANES // executors, (i + 1) * LANES // executors)
                self._db.shards[first + i] = Shard(cell, tenant_id, *lanes)
        return cell

    async def close_cell(self, cell: str, tenant_id: UUID) -> bool:
        await self._db.round_trip()
        placement = self._db.placements.get(cell)
        if placement is None or placement.tenant_id is None:
            return False
        self._db.placements[cell] = replace(placement, closing=True)
        self._ask_move(placement.tenant_id, shard_of(tenant_id))
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
