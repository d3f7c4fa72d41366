"""Broken twins of the reader: each believes what the hint index says, or needs it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from property_tests.hints import EarlyHintMachine, HintMachine
from property_tests.machine import Profile
from property_tests.mutant import Mutant
from tocsin.common.hints.null import NullHints
from tocsin.common.ids import LANES
from tocsin.common.store.rows import Pending
from tocsin.common.store.tenants import OwnedTenant
from tocsin.engine.read import Reader

AGES = 1e6
"""Seconds: whatever its due instant is."""


async def _named(reader: Reader, lead: float) -> list[Pending]:
    """What the index names and the store finds; nothing from an index that fails."""
    try:
        named = await reader._hints.due(reader._board.tenants.keys(), lead, reader._config.batch)
    except ConnectionError:
        return []
    return await reader._store.runs.hinted(named, lead)


def _is_asked(reader: Reader) -> bool:
    """Not in the world without an index, nor where it would be waited for without end."""
    return type(reader._hints).__name__ not in ("NullHints", "HangingHints")


def _a_named_run_counts_as_due(patch: pytest.MonkeyPatch) -> None:
    async def read_hints(self: Reader) -> int:
        rows = await _named(self, AGES) if _is_asked(self) else []
        owned = [row for row in rows if row.tenant_id in self._board.tenants]
        return await self._admit([replace(row, due_at=self._database_clock.now()) for row in owned])

    patch.setattr(Reader, "_read_hints", read_hints)


def _a_named_run_counts_as_owned(patch: pytest.MonkeyPatch) -> None:
    async def read_hints(self: Reader) -> int:
        rows = await _named(self, self._config.lead) if _is_asked(self) else []
        for tenant_id in sorted({row.tenant_id for row in rows} - self._board.tenants.keys()):
            tenant = await self._store.tenants.find(tenant_id=tenant_id)
            assert tenant is not None
            self._board.add_tenant([OwnedTenant(tenant, tenant.shard, 0, LANES, 1)])
        return await self._admit([row for row in rows if not self._board.knows(row)])

    patch.setattr(Reader, "_read_hints", read_hints)


def _only_what_is_hinted_is_read(patch: pytest.MonkeyPatch) -> None:
    real = Reader._read

    async def read(self: Reader, queues: Any, **how: Any) -> int:
        if type(self._hints) is NullHints:
            return await real(self, queues, **how)
        tenants = {row.tenant_id for row in await _named(self, self._config.lead)} if _is_asked(self) else set()
        return await real(self, [queue for queue in queues if queue[0] in tenants], **how)

    patch.setattr(Reader, "_read", read)


def _a_failing_index_fails_the_round(patch: pytest.MonkeyPatch) -> None:
    real = Reader._read_hints

    async def read_hints(self: Reader) -> int:
        if _is_asked(self):
            await self._hints.due(self._board.tenants.keys(), self._config.lead, self._config.batch)
        return await real(self)

    patch.setattr(Reader, "_read_hints", read_hints)
    # what is read whole where nothing was read for long would be found, ten seconds late
    patch.setattr(Reader, "_owe_what_was_passed", lambda *_: None)


_FEW, _SOME = Profile(40, 20), Profile(200, 20)

MUTANTS: Sequence[Mutant] = (
    Mutant("a named run counts as due", 11, HintMachine, _a_named_run_counts_as_due, _FEW, seed=2),
    Mutant("a named run counts as owned", 11, HintMachine, _a_named_run_counts_as_owned, _SOME),
    Mutant("only what is hinted is read", 11, HintMachine, _only_what_is_hinted_is_read, _FEW),
    Mutant("a failing index fails the round", 11, EarlyHintMachine, _a_failing_index_fails_the_round, _SOME),
)
