"""Ownership: takes and gives shards, follows the tenants they bring, and carries out moves (rule 1).

A shard is given, and a tenant moved, only between two begins and with none of unknown outcome; before
that, memory drops all it knows of those tenants. A shard is taken with, first of all, a giving back of
what dead leases hold of its tenants, and a count of what live ones hold beyond their parts of the caps.
"""

import logging
from collections.abc import Iterable, Sequence
from uuid import UUID

from tocsin.common.crashpoints import reach
from tocsin.common.store.ports import Store
from tocsin.common.store.tenants import OwnedTenant
from tocsin.common.telemetry.meter import Meter
from tocsin.engine.begin import Beginner
from tocsin.engine.board import Board
from tocsin.engine.give_back import give_back
from tocsin.engine.lease import Lease
from tocsin.engine.read import Reader

log = logging.getLogger("tocsin.engine.ownership")


class Ownership:
    def __init__(
        self, store: Store, lease: Lease, cell: str, board: Board, beginner: Beginner, reader: Reader, meter: Meter
    ) -> None:
        self._store = store
        self._lease = lease
        self._cell = cell
        self._board = board
        self._beginner = beginner
        self._reader = reader
        self._meter = meter
        self.shards: set[int] = set()

    async def run_once(self) -> dict[str, int]:
        owned = await self._store.leases.owned_shards(self._lease.id)
        self.shards = {shard.shard for shard in owned}
        tenants = await self._store.leases.owned_tenants(self._lease.id)
        moved = await self._move([t for t in tenants if t.tenant.move_to is not None])
        closing = [shard.shard for shard in owned if shard.closing]
        # while it drains, nothing is kept: a take may have been under way when everything was given
        given = await self._give(sorted(self.shards) if self._lease.draining else closing)
        taken = 0
        if not self._lease.draining:
            part = await self._store.leases.fair_part(self._lease.id, self._cell)
            if part.mine > part.fair:
                given += await self._give(sorted(self.shards)[part.fair :])
            elif part.mine < part.fair:
                taken = await self._take(part.fair - part.mine)
        if moved or given or taken or not tenants:
            tenants = await self._store.leases.owned_tenants(self._lease.id)
        await self._follow(tenants)
        return {"shards": len(self.shards), "tenants": len(self._board.tenants), "given": len(given)}

    async def give_all(self) -> None:
        """Lets go of every shard: this process begins nothing more."""
        await self._give(sorted(self.shards))

    async def _take(self, wanted: int) -> int:
        reach("take_shards.before")
        taken = await self._store.leases.take_shards(self._lease.id, self._cell, wanted)
        reach("take_shards.after")
        if taken:
            self.shards |= {shard.shard for shard in taken}
            log.info("took %d shards of cell %s", len(taken), self._cell)
        return len(taken)

    async def _give(self, shards: Sequence[int]) -> list[int]:
        if not shards:
            return []
        async with self._beginner.between_begins:
            self._drop(t.tenant_id for t in list(self._board.tenants.values()) if t.shards & set(shards))
            reach("give_shards.before")
            given = await self._store.leases.give_shards(self._lease.id, shards)
            reach("give_shards.after")
        self.shards -= set(shards)
        log.info("gave %d shards of cell %s", len(given), self._cell)
        await self._store.tasks.notify("tenants")
        return given

    async def _move(self, asked: Sequence[OwnedTenant]) -> list[UUID]:
        """Moves the tenants that this process alone serves; whoever owns the new shard is woken."""
        ids = sorted({owned.tenant.id for owned in asked})
        if not ids:
            return []
        async with self._beginner.between_begins:
            self._drop(ids)
            reach("move_tenant.before")
            moved = await self._store.leases.move_tenants(ids, self._lease.id)
            reach("move_tenant.after")
        if moved:
            log.info("moved tenants %s to their new shards", ", ".join(map(str, moved)))
            await self._store.tasks.notify("tenants")
        return moved

    def _drop(self, tenant_ids: Iterable[UUID]) -> None:
        for tenant_id in tenant_ids:
            self._board.drop_tenant(tenant_id)

    async def _follow(self, tenants: Sequence[OwnedTenant]) -> None:
        """Brings the board to the tenants that the database says are served here."""
        served: dict[UUID, list[OwnedTenant]] = {}
        for owned in tenants:
            served.setdefault(owned.tenant.id, []).append(owned)
        here = self._board.tenants
        fresh = [t for t, parts in served.items() if t not in here or here[t].shards != {p.shard for p in parts}]
        held: dict[UUID, int] = {}
        if fresh:
            # before anything of them is begun: what dead leases hold comes back, what live ones hold is counted
            while await give_back(self._store, fresh, self._meter):
                pass
            held = await self._store.runs.count_held(fresh, self._lease.id)
        async with self._beginner.between_begins:
            self._drop([tenant_id for tenant_id in here if tenant_id not in served])
            for tenant_id, parts in served.items():
                if self._board.add_tenant(parts):
                    here[tenant_id].held_elsewhere = held.get(tenant_id, 0)
        self._reader.want_everything(fresh)
        await self._count_elsewhere([t for t in here if here[t].held_elsewhere and t not in held])

    async def _count_elsewhere(self, tenant_ids: Sequence[UUID]) -> None:
        if not tenant_ids:
            return
        counts = await self._store.runs.count_held(tenant_ids, self._lease.id)
        for tenant_id in tenant_ids:
            if (scheduler := self._board.tenants.get(tenant_id)) is not None:
                scheduler.held_elsewhere = counts.get(tenant_id, 0)
