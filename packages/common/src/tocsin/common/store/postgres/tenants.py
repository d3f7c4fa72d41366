"""Tenants, their keys and secrets, and the cells that serve them.

What an operator changes is recorded in `audit`, in the same transaction; never a key or a secret.
"""

import json
from collections.abc import Callable, Sequence
from uuid import UUID

import asyncpg

from tocsin.common.errors import ConflictError, NotFoundError
from tocsin.common.ids import shard_of
from tocsin.common.store.postgres.database import Database, Transaction
from tocsin.common.store.tenants import (
    ApiKey,
    Placement,
    Tenant,
    changed_limits,
    limits_of,
    require_room_for_shards,
    second_cell,
)


class PostgresTenants:
    """`actor` stands in the audit for who changes something."""

    def __init__(self, database: Database, actor: str) -> None:
        self._database = database
        self._actor = actor

    async def insert(self, tenant: Tenant, signing_secrets: Sequence[str]) -> None:
        """Adds a tenant.

        Raises:
            ConflictError: the name is taken.
        """
        async with self._database.transaction() as tx:
            try:
                await tx.fetch(
                    "tenant_insert",
                    tenant.id,
                    tenant.name,
                    shard_of(tenant.id),
                    tenant.weight,
                    tenant.max_in_flight,
                    tenant.max_in_flight_per_endpoint,
                    list(signing_secrets),
                )
            except asyncpg.UniqueViolationError as error:
                raise ConflictError(f"a tenant named {tenant.name!r} exists") from error
            await self._audit(tx, tenant.id, "tenant.create", tenant.id, name=tenant.name, **limits_of(tenant))

    async def set_limits(self, tenant_id: UUID, change: Callable[[Tenant], Tenant]) -> Tenant:
        """Applies `change` to the weight and the caps of the locked tenant; returns it. Owners read them within
        seconds, or at once when `tenants` is notified.

        Raises:
            NotFoundError; ConflictError: fewer calls in flight than it has shards of its own (rule 1).
        """
        async with self._database.transaction() as tx:
            old = await self._lock(tx, tenant_id)
            new = change(old)
            if not changed_limits(old, new):
                return old
            require_room_for_shards(new, (await tx.fetch("tenant_shards", tenant_id))[0]["shards"])
            rows = await tx.fetch(
                "tenant_limits", tenant_id, new.weight, new.max_in_flight, new.max_in_flight_per_endpoint
            )
            await self._audit(tx, tenant_id, "tenant.set", tenant_id, **changed_limits(old, new))
            return Tenant(**rows[0])

    async def find(self, *, name: str | None = None, tenant_id: UUID | None = None) -> Tenant | None:
        rows = await self._database.fetch("tenant_find", name, tenant_id)
        if not rows:
            return None
        row = rows[0]
        return Tenant(
            id=row["id"],
            name=row["name"],
            shard=row["shard"],
            weight=row["weight"],
            max_in_flight=row["max_in_flight"],
            max_in_flight_per_endpoint=row["max_in_flight_per_endpoint"],
            move_to=row["move_to"],
        )

    async def listing(self, after: UUID | None, limit: int) -> list[Tenant]:
        """A page of all tenants, oldest first, after the one with this id. For operators."""
        return [Tenant(**row) for row in await self._database.fetch("tenant_list", after or UUID(int=0), limit)]

    async def secrets(self, tenant_ids: Sequence[UUID]) -> dict[UUID, tuple[str, ...]]:
        """Signing secrets, the one in use first."""
        rows = await self._database.fetch("tenant_secrets", list(tenant_ids))
        return {row["id"]: tuple(row["signing_secrets"]) for row in rows}

    async def insert_key(self, key_id: UUID, tenant_id: UUID, name: str, key_hash: bytes) -> None:
        async with self._database.transaction() as tx:
            await tx.fetch("key_insert", key_id, tenant_id, name, key_hash)
            await self._audit(tx, tenant_id, "key.create", key_id, name=name)

    async def find_key(self, key_hash: bytes) -> tuple[UUID, UUID] | None:
        """The key's id and its tenant's, while it is not revoked."""
        rows = await self._database.fetch("key_find", key_hash)
        return (rows[0]["id"], rows[0]["tenant_id"]) if rows else None

    async def revoke_key(self, key_id: UUID) -> bool:
        async with self._database.transaction() as tx:
            rows = await tx.fetch("key_revoke", key_id)
            if rows:
                await self._audit(tx, rows[0]["tenant_id"], "key.revoke", key_id)
        return bool(rows)

    async def keys(self, tenant_id: UUID) -> list[ApiKey]:
        rows = await self._database.fetch("key_list", tenant_id)
        return [ApiKey(row["id"], row["name"], row["created_at"], row["revoked_at"]) for row in rows]

    async def placements(self) -> list[Placement]:
        return [Placement(**row) for row in await self._database.fetch("placement_list")]

    async def next_generation(self) -> int:
        """Raises the generation of every placement, and says it: what older ones started will drain (rule 12)."""
        async with self._database.transaction() as tx:
            await tx.fetch("cells_lock")
            rows = await tx.fetch("placement_generation")
        return int(rows[0]["generation"])

    async def generation(self) -> int:
        return max((placement.generation for placement in await self.placements()), default=0)

    async def open_cell(self, tenant_id: UUID, executors: int) -> str:
        """A cell of a tenant's own: its placement, with `executors` shards over equal ranges of lanes.

        Raises:
            NotFoundError; ConflictError: it has one, or may have fewer calls in flight than that (rule 1).
        """
        async with self._database.transaction() as tx:
            await tx.fetch("cells_lock")
            tenant = await self._lock(tx, tenant_id)
            require_room_for_shards(tenant, executors)
            rows = await tx.fetch("cell_open", tenant_id, executors)
            if not rows:
                raise second_cell(tenant)
            cell = str(rows[0]["cell"])
            await self._audit(tx, tenant_id, "tenant.promote", tenant_id, cell=cell, executors=executors)
        return cell

    async def close_cell(self, cell: str, tenant_id: UUID) -> bool:
        """Closes a tenant's own cell: the tenant goes back to its shared shard, and owners let go."""
        async with self._database.transaction() as tx:
            rows = await tx.fetch("cell_close", cell, shard_of(tenant_id))
            if rows and not rows[0]["again"]:
                await self._audit(tx, rows[0]["id"], "tenant.demote", rows[0]["id"], cell=cell)
        return bool(rows)

    async def remove_cell(self, cell: str) -> bool:
        """Forgets a closing cell once no executor of it lives and no tenant names its shards."""
        return bool(await self._database.fetch("cell_remove", cell))

    async def ask_move(self, tenant_id: UUID, shard: int) -> None:
        """Asks for a move, which the shard's owner carries out; not into a cell that closes or is gone."""
        await self._database.fetch("tenant_ask_move", tenant_id, shard)

    async def moving(self) -> list[UUID]:
        """Tenants whose move was asked for and not yet carried out."""
        return [row["id"] for row in await self._database.fetch("tenants_moving")]

    async def cell_shards(self, cell: str) -> list[tuple[int, UUID | None]]:
        """A cell's shards, each with the live lease that owns it."""
        rows = await self._database.fetch("cell_shards", cell)
        return [(row["shard"], row["owner"]) for row in rows]

    async def set_executors(self, cell: str, executors: int) -> None:
        await self._database.fetch("placement_size", cell, executors)

    async def _lock(self, tx: Transaction, tenant_id: UUID) -> Tenant:
        rows = await tx.fetch("tenant_lock", tenant_id)
        if not rows:
            raise NotFoundError("no such tenant")
        return Tenant(**rows[0])

    async def _audit(self, tx: Transaction, tenant_id: UUID, action: str, target: UUID, **detail: object) -> None:
        await tx.fetch("audit_insert", tenant_id, self._actor, action, target, json.dumps(detail))
