"""Leases and shards: who lives, who is judged, who owns what."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from tocsin.common.store.postgres.database import Database
from tocsin.common.store.rows import Backend
from tocsin.common.store.tenants import FairPart, LeaseInfo, Neighbour, OwnedShard, OwnedTenant, Process, Tenant

APPLICATION = "tocsin {}"


class PostgresLeases:
    """The heartbeat has a connection of its own, `beat`: no other work may delay it."""

    def __init__(self, beat: Database, database: Database) -> None:
        self._beat = beat
        self._database = database

    async def register(
        self, lease_id: UUID, cell: str, generation: int, process: Process, zone_data: str, ttl: float
    ) -> datetime:
        rows = await self._beat.fetch(
            "lease_register",
            lease_id,
            cell,
            generation,
            process.node,
            process.boot,
            process.pid_namespace,
            process.pid,
            process.started,
            zone_data,
            ttl,
        )
        return now_of(rows)

    async def beat(self, lease_id: UUID, *, draining: bool) -> datetime | None:
        rows = await self._beat.fetch("lease_beat", lease_id, draining)
        return now_of(rows) if rows else None

    async def judge(self, lease_id: UUID) -> list[UUID]:
        rows = await self._database.fetch("lease_judge", lease_id)
        await self._database.fetch("lease_end_backends")
        return [row["id"] for row in rows]

    async def expire(self, lease_ids: Sequence[UUID]) -> list[UUID]:
        rows = await self._database.fetch("lease_expire", list(lease_ids))
        await self._database.fetch("lease_end_backends")
        return [row["id"] for row in rows]

    async def leave(self, lease_id: UUID) -> None:
        await self._database.fetch("lease_expire", [lease_id])

    async def neighbours(self, boot: str, pid_namespace: str) -> list[Neighbour]:
        rows = await self._database.fetch("lease_neighbours", boot, pid_namespace)
        return [Neighbour(row["id"], row["pid"], row["process_started"]) for row in rows]

    async def remove(self, older_than: float) -> int:
        return len(await self._database.fetch("lease_remove", older_than))

    async def listing(self, cell: str | None = None) -> list[LeaseInfo]:
        return [LeaseInfo(**row) for row in await self._database.fetch("lease_list", cell)]

    async def live_executors(self) -> dict[str, int]:
        return {row["cell"]: row["live"] for row in await self._database.fetch("lease_live")}

    async def end_backend(self, backend: Backend, wait: float) -> bool:
        rows = await self._database.fetch("backend_end", backend.pid, backend.name, int(wait * 1000))
        return bool(rows[0]["gone"])

    async def fair_part(self, lease_id: UUID, cell: str) -> FairPart:
        row = (await self._database.fetch("shard_fair_part", lease_id, cell))[0]
        return FairPart(row["shards"], row["executors"], row["mine"])

    async def take_shards(self, lease_id: UUID, cell: str, limit: int) -> list[OwnedShard]:
        rows = await self._database.fetch("shard_take", lease_id, cell, limit)
        return [OwnedShard(row["shard"], closing=False) for row in rows]

    async def give_shards(self, lease_id: UUID, shards: Sequence[int]) -> list[int]:
        rows = await self._database.fetch("shard_give", lease_id, list(shards))
        return [row["shard"] for row in rows]

    async def owned_shards(self, lease_id: UUID) -> list[OwnedShard]:
        rows = await self._database.fetch("shard_owned", lease_id)
        return [OwnedShard(row["shard"], row["closing"]) for row in rows]

    async def owned_tenants(self, lease_id: UUID) -> list[OwnedTenant]:
        rows = await self._database.fetch("tenants_owned", lease_id)
        return [
            OwnedTenant(
                Tenant(
                    id=row["id"],
                    name=row["name"],
                    shard=row["shard"],
                    weight=row["weight"],
                    max_in_flight=row["max_in_flight"],
                    max_in_flight_per_endpoint=row["max_in_flight_per_endpoint"],
                    move_to=row["move_to"],
                ),
                shard=row["served_by"],
                lane_first=row["lane_first"],
                lane_last=row["lane_last"],
                parts=max(1, row["parts"]),
            )
            for row in rows
        ]

    async def move_tenants(self, tenant_ids: Sequence[UUID], lease_id: UUID | None) -> list[UUID]:
        rows = await self._database.fetch("tenant_move", list(tenant_ids), lease_id)
        return [row["id"] for row in rows]


def now_of(rows: Sequence[asyncpg.Record]) -> datetime:
    """The database's time as a statement read it."""
    now = rows[0]["now"]
    assert isinstance(now, datetime)
    return now
