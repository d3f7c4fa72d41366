"""Broken twins of the idempotent create."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from property_tests.idempotency import IdempotencyMachine
from property_tests.machine import Profile
from property_tests.mutant import Mutant
from tocsin.common import tasks
from tocsin.common.store.memory.database import IdempotencyKey
from tocsin.common.store.memory.tasks import MemoryTaskTransaction
from tocsin.common.store.ports import TaskTransaction
from tocsin.common.tasks import Idempotency

NOBODY = UUID(int=0)


def _claimed_without_the_tenant(patch: pytest.MonkeyPatch) -> None:
    real = tasks._replay

    async def replay(tx: TaskTransaction, _: UUID, idempotency: Idempotency, task_id: UUID) -> UUID | None:
        return await real(tx, NOBODY, idempotency, task_id)

    patch.setattr(tasks, "_replay", replay)


def _claimed_outside_the_write(patch: pytest.MonkeyPatch) -> None:
    """A claim is everybody's at once, and stays where its write is rolled back."""
    real = MemoryTaskTransaction.claim_key

    async def claim(self: MemoryTaskTransaction, tenant_id: UUID, key: str, request_hash: bytes, task_id: UUID) -> bool:
        claimed = await real(self, tenant_id, key, request_hash, task_id)
        if claimed:
            self._db.idempotency[tenant_id, key] = IdempotencyKey(request_hash, task_id, self._db.now())
        return claimed

    patch.setattr(MemoryTaskTransaction, "claim_key", claim)


def _claimed_beside_another(patch: pytest.MonkeyPatch) -> None:
    """Who claims a key does not wait for another write that has just claimed it."""

    async def claim(self: MemoryTaskTransaction, tenant_id: UUID, key: str, request_hash: bytes, task_id: UUID) -> bool:
        await self._db.round_trip()
        if (tenant_id, key) in self._db.idempotency:
            return False
        self._claimed[tenant_id, key] = IdempotencyKey(request_hash, task_id, self._db.now())
        return True

    patch.setattr(MemoryTaskTransaction, "claim_key", claim)


def _the_body_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    real = tasks._replay

    async def replay(tx: TaskTransaction, tenant_id: UUID, idempotency: Idempotency, task_id: UUID) -> UUID | None:
        held = await tx.key_holder(tenant_id, idempotency.key)
        return held[1] if held is not None else await real(tx, tenant_id, idempotency, task_id)

    patch.setattr(tasks, "_replay", replay)


_FEW = Profile(80, 10)

MUTANTS: Sequence[Mutant] = (
    Mutant("a key is claimed without its tenant", 12, IdempotencyMachine, _claimed_without_the_tenant, _FEW),
    Mutant("a key is claimed outside the write", 1, IdempotencyMachine, _claimed_outside_the_write, _FEW),
    Mutant("a claim does not wait for another", 1, IdempotencyMachine, _claimed_beside_another, _FEW),
    Mutant("the body is not compared", 1, IdempotencyMachine, _the_body_is_not_compared, _FEW),
)
