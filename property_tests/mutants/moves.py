"""Broken twins of ownership: each takes one guard out, and the move machine must notice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from property_tests.machine import Profile
from property_tests.moves import MoveMachine
from property_tests.mutant import Mutant
from tocsin.common.store.memory.leases import MemoryLeases
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.engine.ownership import Ownership
from tocsin.engine.tenant import TenantScheduler


def gives_in_the_middle_of_a_begin(patch: pytest.MonkeyPatch) -> None:
    """With one of unknown outcome, that is: it takes effect once somebody else has the shard."""

    async def give(self: Ownership, shards: Sequence[int]) -> list[int]:
        if not shards:
            return []
        self._drop(t.tenant_id for t in list(self._board.tenants.values()) if t.shards & set(shards))
        given = await self._store.leases.give_shards(self._lease.id, shards)
        self.shards -= set(shards)
        return given

    patch.setattr(Ownership, "_give", give)


def forgets_what_others_hold(patch: pytest.MonkeyPatch) -> None:
    def room(self: TenantScheduler) -> int:
        return self.cap - self.in_flight

    patch.setattr(TenantScheduler, "room", property(room))


def parts_hide_what_is_held_beyond_them(patch: pytest.MonkeyPatch) -> None:
    """What others hold is taken to lie within their parts, whoever of them holds it: only what is more than all of
    these parts together is counted against one's own."""

    async def count_held(self: MemoryRuns, tenant_ids: Sequence[UUID], lease_id: UUID) -> dict[UUID, int]:
        await self._db.round_trip()
        others = (row for row in self._db.running.values() if row.lease_id != lease_id)
        live = (row.run.tenant_id for row in others if self._db.live(row.lease_id) is not None)
        return dict(Counter(tenant_id for tenant_id in live if tenant_id in tenant_ids))

    def room(self: TenantScheduler) -> int:
        too_many = self.held_elsewhere - (self.tenant.max_in_flight - self.cap)
        return self.cap - self.in_flight - max(0, too_many)

    patch.setattr(MemoryRuns, "count_held", count_held)
    patch.setattr(TenantScheduler, "room", property(room))


def k_changes_under_owners(patch: pytest.MonkeyPatch) -> None:
    """A move is carried out whoever owns the tenant's shards by now."""

    async def move_tenants(self: MemoryLeases, tenant_ids: Sequence[UUID], _lease_id: UUID | None) -> list[UUID]:
        await self._db.round_trip()
        moved = [tenant_id for tenant_id in tenant_ids if tenant_id in self._db.moves]
        for tenant_id in moved:
            shard = self._db.moves.pop(tenant_id)
            self._db.tenants[tenant_id] = replace(self._db.tenants[tenant_id], shard=shard)
        return moved

    patch.setattr(MemoryLeases, "move_tenants", move_tenants)


def every_shard_has_the_whole_cap(patch: pytest.MonkeyPatch) -> None:
    def cap(self: TenantScheduler) -> int:
        return self.tenant.max_in_flight

    patch.setattr(TenantScheduler, "cap", property(cap))


def keeps_the_shards_of_a_closing_cell(patch: pytest.MonkeyPatch) -> None:
    """Where several executors own a cell, nobody lets go, and so its tenant is never moved away."""
    give = Ownership._give

    async def keep(self: Ownership, shards: Sequence[int]) -> list[int]:
        owned = await self._store.leases.owned_shards(self._lease.id)
        closing = {shard.shard for shard in owned if shard.closing}
        return await give(self, [shard for shard in shards if shard not in closing or self._lease.draining])

    patch.setattr(Ownership, "_give", keep)


def gives_back_what_lives(patch: pytest.MonkeyPatch) -> None:
    """A new owner takes back all that runs of its tenants, and not only what no live lease holds."""
    give_back = MemoryRuns.give_back

    async def everything(self: MemoryRuns, tenant_ids: Sequence[UUID], limit: int = 1000) -> list[object]:
        live, self._db.live = self._db.live, lambda _lease_id: None  # type: ignore[method-assign,assignment]
        try:
            return list(await give_back(self, tenant_ids, limit))
        finally:
            self._db.live = live  # type: ignore[method-assign]

    patch.setattr(MemoryRuns, "give_back", everything)


USUAL = Profile(100, 30)

MUTANTS: Sequence[Mutant] = (
    Mutant("an owner gives with a begin under way", 10, MoveMachine, gives_in_the_middle_of_a_begin, USUAL, seed=3),
    Mutant("a new owner forgets what others hold", 10, MoveMachine, forgets_what_others_hold, USUAL),
    Mutant("a part hides what is held beyond it", 10, MoveMachine, parts_hide_what_is_held_beyond_them, USUAL, seed=3),
    Mutant("k changes under owners", 10, MoveMachine, k_changes_under_owners, USUAL),
    Mutant("every shard has the whole cap", 10, MoveMachine, every_shard_has_the_whole_cap, USUAL),
    Mutant("a closing cell is not let go", 1, MoveMachine, keeps_the_shards_of_a_closing_cell, USUAL, seed=3),
    Mutant("a new owner gives back what lives", 3, MoveMachine, gives_back_what_lives, USUAL),
)
