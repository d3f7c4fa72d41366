"""Leases and shards, in memory."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tocsin.common.store.memory.database import Lease, MemoryDatabase, Shard
from tocsin.common.store.rows import Backend
from tocsin.common.store.tenants import FairPart, LeaseInfo, Neighbour, OwnedShard, OwnedTenant, Process


class MemoryLeases:
    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def register(
        self, lease_id: UUID, cell: str, generation: int, process: Process, zone_data: str, ttl: float
    ) -> datetime:
        await self._db.round_trip()
        now = self._db.now()
        self._db.leases[lease_id] = Lease(
            lease_id, cell, generation, process, zone_data, timedelta(seconds=ttl), now, now, now
        )
        return now

    async def beat(self, lease_id: UUID, *, draining: bool) -> datetime | None:
        await self._db.round_trip()
        lease = self._db.live(lease_id)
        if lease is None:
            return None
        now = self._db.now()
        if now - lease.heartbeat_at > lease.ttl / 4:
            lease.steady_since = now
        lease.heartbeat_at = now
        lease.draining = draining
        return now

    async def judge(self, lease_id: UUID) -> list[UUID]:
        await self._db.round_trip()
        now = self._db.now()
        live = [lease for lease in self._db.leases.values() if lease.expired_at is None]
        me = self._db.live(lease_id)
        if me is None or now - me.heartbeat_at > me.ttl / 4:
            return []
        overdue = [lease for lease in live if now - lease.heartbeat_at > lease.ttl]
        suspicious = len(overdue) * 2 > len(live)
        guilty = [
            lease.id
            for lease in overdue
            if lease.id != lease_id
            and now - me.steady_since >= lease.ttl
            and (not suspicious or now - lease.heartbeat_at > 2 * lease.ttl)
        ]
        return self._expire(guilty)

    async def expire(self, lease_ids: Sequence[UUID]) -> list[UUID]:
        await self._db.round_trip()
        return self._expire(lease_ids)

    async def leave(self, lease_id: UUID) -> None:
        await self._db.round_trip()
        if (lease := self._db.live(lease_id)) is not None:
            lease.expired_at = self._db.now()

    def _expire(self, lease_ids: Sequence[UUID]) -> list[UUID]:
        ended = []
        for lease_id in lease_ids:
            if (lease := self._db.live(lease_id)) is not None:
                lease.expired_at = self._db.now()
                ended.append(lease_id)
        self._db.ended_backends += ended
        return ended

    async def neighbours(self, boot: str, pid_namespace: str) -> list[Neighbour]:
        await self._db.round_trip()
        return [
            Neighbour(lease.id, lease.process.pid, lease.process.started)
            for lease in self._db.leases.values()
            if lease.expired_at is None and (lease.process.boot, lease.process.pid_namespace) == (boot, pid_namespace)
        ]

    async def remove(self, older_than: float) -> int:
        await self._db.round_trip()
        bound = self._db.now() - timedelta(seconds=older_than)
        used = {row.lease_id for row in self._db.running.values()}
        used |= {shard.owner for shard in self._db.shards.values() if shard.owner is not None}
        gone = [
            lease.id
            for lease in self._db.leases.values()
            if lease.expired_at is not None and lease.expired_at < bound and lease.id not in used
        ]
        for lease_id in gone:
            del self._db.leases[lease_id]
        return len(gone)

    async def listing(self, cell: str | None = None) -> list[LeaseInfo]:
        await self._db.round_trip()
        found = [
            LeaseInfo(
                id=lease.id,
                cell=lease.cell,
                generation=lease.generation,
                node=lease.process.node,
                pid=lease.process.pid,
                zone_data=lease.zone_data,
                started_at=lease.started_at,
                heartbeat_at=lease.heartbeat_at,
                expired_at=lease.expired_at,
                draining=lease.draining,
                shards=len(self._owned(lease.id)),
                running=sum(row.lease_id == lease.id for row in self._db.running.values()),
            )
            for lease in self._db.leases.values()
            if cell is None or lease.cell == cell
        ]
        return sorted(found, key=lambda info: (info.expired_at is not None, info.started_at))

    async def live_executors(self) -> dict[str, int]:
        await self._db.round_trip()
        now = self._db.now()
        return Counter(
            lease.cell
            for lease in self._db.leases.values()
            if lease.expired_at is None
            and not lease.draining
            and lease.generation > 0
            and now - lease.heartbeat_at <= lease.ttl
        )

    async def end_backend(self, backend: Backend, wait: float) -> bool:
        await self._db.round_trip()
        return True

    async def fair_part(self, lease_id: UUID, cell: str) -> FairPart:
        await self._db.round_trip()
        closing = cell not in self._db.placements or self._db.placements[cell].closing
        return FairPart(
            shards=0 if closing else sum(shard.cell == cell for shard in self._db.shards.values()),
            executors=sum(
                lease.cell == cell and lease.expired_at is None and not lease.draining
                for lease in self._db.leases.values()
            ),
            mine=len(self._owned(lease_id)),
        )

    async def take_shards(self, lease_id: UUID, cell: str, limit: int) -> list[OwnedShard]:
        await self._db.round_trip()
        me = self._db.live(lease_id)
        if me is None or me.draining or cell not in self._db.placements or self._db.placements[cell].closing:
            return []
        free = [
            number
            for number, shard in sorted(self._db.shards.items())
            if shard.cell == cell and self._db.live(shard.owner) is None
        ][:limit]
        for number in free:
            self._db.shards[number].owner = lease_id
        return [OwnedShard(number, closing=False) for number in free]

    async def give_shards(self, lease_id: UUID, shards: Sequence[int]) -> list[int]:
        await self._db.round_trip()
        given = [number for number in self._owned(lease_id) if number in shards]
        for number in given:
            self._db.shards[number].owner = None
        return given

    async def owned_shards(self, lease_id: UUID) -> list[OwnedShard]:
        await self._db.round_trip()
        return [
            OwnedShard(number, self._db.placements[shard.cell].closing)
            for number, shard in self._owned(lease_id).items()
        ]

    async def owned_tenants(self, lease_id: UUID) -> list[OwnedTenant]:
        await self._db.round_trip()
        found = []
        for tenant in self._db.tenants.values():
            for number, shard in self._db.serving(tenant).items():
                if shard.owner == lease_id:
                    shown = replace(tenant, move_to=self._db.moves.get(tenant.id))
                    parts = len(self._db.own_shards(tenant.id)) if shard.tenant_id is not None else 1
                    found.append(OwnedTenant(shown, number, shard.lane_first, shard.lane_last, parts))
        return found

    async def move_tenants(self, tenant_ids: Sequence[UUID], lease_id: UUID | None) -> list[UUID]:
        await self._db.round_trip()
        moved = []
        for tenant_id in tenant_ids:
            tenant, target = self._db.tenants.get(tenant_id), self._db.moves.get(tenant_id)
            if tenant is None or target is None:
                continue
            serving = self._db.serving(tenant).values()
            owners = [shard.owner if self._db.live(shard.owner) else None for shard in serving]
            if lease_id is None:
                allowed = all(owner is None for owner in owners)
            else:
                allowed = all(owner == lease_id for owner in owners)
            if owners and allowed:
                self._db.tenants[tenant_id] = replace(tenant, shard=self._db.moves.pop(tenant_id))
                moved.append(tenant_id)
        return moved

    def _owned(self, lease_id: UUID) -> dict[int, Shard]:
        return {number: shard for number, shard in self._db.shards.items() if shard.owner == lease_id}
