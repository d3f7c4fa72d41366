"""Broken twins of the reader: each believes what the hint index says, or needs it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from redis.exceptions import RedisError

from property_tests.hint_worlds import HangingHints
from property_tests.hints import EarlyHintMachine, HintMachine
from property_tests.machine import Profile
from property_tests.mutant import Mutant
from property_tests.redis_hints import RedisHintMachine
from tocsin.common.hints.null import NullHints
from tocsin.common.ids import LANES
from tocsin.common.store.rows import Pending
from tocsin.common.store.tenants import OwnedTenant
from tocsin.engine.read import Reader

AGES = 1e6
"""Seconds: whatever its due instant is."""


async def _named(reader: Reader, lead: float) -> list[Pending]:
    """What the index names and the store finds; nothing from an index that fails."""
    assert reader._hints is not None
    try:
        named = await reader._hints._index.due(reader._board.tenants.keys(), lead, reader._config.batch)
    except (ConnectionError, RedisError, ValueError):
        return []
    return await reader._store.runs.hinted(named, lead)


def _has_index(reader: Reader) -> bool:
    return reader._hints is not None and type(reader._hints._index) is not NullHints


def _is_asked(reader: Reader) -> bool:
    """Not in the world without an index, nor where it would be waited for without end."""
    return reader._hints is not None and _has_index(reader) and type(reader._hints._index) is not HangingHints


def _instead_of_hints(patch: pytest.MonkeyPatch, does: Callable[[Reader], Awaitable[object]]) -> None:
    """Before each look ahead, where there is an index to be asked."""
    real = Reader._look_ahead

    async def look_ahead(self: Reader, *where: Any) -> int:
        if _is_asked(self):
            await does(self)
        return await real(self, *where)

    patch.setattr(Reader, "_look_ahead", look_ahead)


def _a_named_run_counts_as_due(patch: pytest.MonkeyPatch) -> None:
    async def take(reader: Reader) -> None:
        owned = [row for row in await _named(reader, AGES) if row.tenant_id in reader._board.tenants]
        await reader._admit([replace(row, due_at=reader._database_clock.now()) for row in owned])

    _instead_of_hints(patch, take)


def _a_named_run_counts_as_owned(patch: pytest.MonkeyPatch) -> None:
    async def take(reader: Reader) -> None:
        rows = await _named(reader, reader._config.lead)
        for tenant_id in sorted({row.tenant_id for row in rows} - reader._board.tenants.keys()):
            tenant = await reader._store.tenants.find(tenant_id=tenant_id)
            assert tenant is not None
            reader._board.add_tenant([OwnedTenant(tenant, tenant.shard, 0, LANES, 1)])
        await reader._admit([row for row in rows if not reader._board.knows(row)])

    _instead_of_hints(patch, take)


def _only_what_is_hinted_is_read(patch: pytest.MonkeyPatch) -> None:
    real = Reader._read

    async def read(self: Reader, queues: Any, **how: Any) -> int:
        if not _has_index(self):
            return await real(self, queues, **how)
        tenants = {row.tenant_id for row in await _named(self, self._config.lead)} if _is_asked(self) else set()
        return await real(self, [queue for queue in queues if queue[0] in tenants], **how)

    patch.setattr(Reader, "_read", read)


def _a_failing_index_fails_the_round(patch: pytest.MonkeyPatch) -> None:
    async def ask(reader: Reader) -> None:
        assert reader._hints is not None
        await reader._hints._index.due(reader._board.tenants.keys(), reader._config.lead, reader._config.batch)

    _instead_of_hints(patch, ask)
    # what is read whole where nothing was read for long would be found, ten seconds late
    patch.setattr(Reader, "_owe_what_was_passed", lambda *_: None)


_FEW, _SOME = Profile(40, 20), Profile(200, 20)

MUTANTS: Sequence[Mutant] = (
    Mutant("a named run counts as due", 11, HintMachine, _a_named_run_counts_as_due, _FEW, seed=2),
    Mutant("a named run counts as owned", 11, HintMachine, _a_named_run_counts_as_owned, _SOME),
    Mutant("only what is hinted is read", 11, HintMachine, _only_what_is_hinted_is_read, _FEW),
    Mutant("Redis is believed in the place of the database", 11, RedisHintMachine, _only_what_is_hinted_is_read, _FEW),
    Mutant("a failing index fails the round", 11, EarlyHintMachine, _a_failing_index_fails_the_round, _SOME),
)
