"""What every hint index keeps, whatever it is made of; and what one must do to be of use.

The Reader bears an index that breaks any of this (promise 11). An index that keeps it wastes no look-ups.
"""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tocsin.common.clock import PARKED, ManualClock
from tocsin.common.hints.port import HintIndex
from tocsin.common.models import Kind, Priority
from tocsin.common.store.rows import Pending

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
MINE, OTHER = UUID(int=1), UUID(int=2)

Check = Callable[[HintIndex, ManualClock], Awaitable[None]]

_numbers = itertools.count(1)


def a_row(seconds: float = 0.0, tenant: UUID = MINE, due_at: datetime | None = None) -> Pending:
    """A waiting run that is due `seconds` from NOW."""
    return Pending(
        run_id=UUID(int=next(_numbers) << 64),
        fence=0,
        tenant_id=tenant,
        task_id=UUID(int=3),
        priority=Priority.NORMAL,
        due_at=due_at or NOW + timedelta(seconds=seconds),
        slot=None,
        last_slot=None,
        lane=0,
        kind=Kind.NOW,
        plan_version=1,
    )


async def named(index: HintIndex, *tenants: UUID, lead: float = 5.0, limit: int = 100) -> list[UUID]:
    return await index.due(tenants, lead, limit)


async def an_empty_index_names_nothing(index: HintIndex, _clock: ManualClock) -> None:
    assert await named(index, MINE) == []
    await index.add([])
    await index.remove([])
    assert await named(index, MINE) == []


async def only_what_was_added_is_named(index: HintIndex, _clock: ManualClock) -> None:
    rows = [a_row(n) for n in range(4)]
    await index.add(rows)
    assert set(await named(index, MINE)) <= {row.run_id for row in rows}


async def only_asked_tenants_are_named(index: HintIndex, _clock: ManualClock) -> None:
    other = a_row(tenant=OTHER)
    await index.add([a_row(), other])
    assert other.run_id not in await named(index, MINE)
    assert await named(index) == []


async def at_most_the_limit_is_named(index: HintIndex, _clock: ManualClock) -> None:
    await index.add([a_row(n / 10) for n in range(20)])
    for limit in (0, 1, 7):
        assert len(await named(index, MINE, limit=limit)) <= limit


async def a_run_is_named_once(index: HintIndex, _clock: ManualClock) -> None:
    row = a_row()
    await index.add([row, row])
    await index.add([row])
    assert len(await named(index, MINE, MINE)) <= 1


async def what_is_due_later_is_not_named(index: HintIndex, clock: ManualClock) -> None:
    later, parked = a_row(60), a_row(due_at=PARKED)
    await index.add([later, parked])
    assert await named(index, MINE) == []
    clock.advance(56)
    assert set(await named(index, MINE)) <= {later.run_id}


async def a_removed_run_is_not_named(index: HintIndex, _clock: ManualClock) -> None:
    gone, stays = a_row(), a_row(1)
    await index.add([gone, stays])
    await index.remove([(MINE, gone.run_id), (MINE, UUID(int=99))])
    assert set(await named(index, MINE)) <= {stays.run_id}


async def removing_twice_or_the_unknown_is_nothing(index: HintIndex, _clock: ManualClock) -> None:
    row = a_row()
    await index.remove([(MINE, row.run_id)])
    await index.add([row])
    await index.remove([(MINE, row.run_id), (MINE, row.run_id)])
    assert await named(index, MINE) == []


async def asking_takes_nothing_away(index: HintIndex, _clock: ManualClock) -> None:
    """Who asked may die before he begins anything: the next one must hear the same."""
    await index.add([a_row(n / 10) for n in range(5)])
    assert set(await named(index, MINE)) == set(await named(index, MINE))


KEPT: tuple[Check, ...] = (
    an_empty_index_names_nothing,
    only_what_was_added_is_named,
    only_asked_tenants_are_named,
    at_most_the_limit_is_named,
    a_run_is_named_once,
    what_is_due_later_is_not_named,
    a_removed_run_is_not_named,
    removing_twice_or_the_unknown_is_nothing,
    asking_takes_nothing_away,
)


async def what_is_due_within_the_lead_is_named(index: HintIndex, clock: ManualClock) -> None:
    now, soon, later = a_row(-3), a_row(4), a_row(8)
    other = a_row(tenant=OTHER)
    await index.add([now, later, soon, other])
    assert set(await named(index, MINE)) == {now.run_id, soon.run_id}
    assert set(await named(index, MINE, OTHER)) == {now.run_id, soon.run_id, other.run_id}
    clock.advance(4)
    assert later.run_id in await named(index, MINE)


async def a_row_added_again_counts_as_it_is_now(index: HintIndex, _clock: ManualClock) -> None:
    """A run that comes back after its back-off keeps its id."""
    row = a_row()
    await index.add([row])
    await index.add([replace(row, due_at=NOW + timedelta(seconds=60))])
    assert await named(index, MINE) == []
    await index.remove([(MINE, row.run_id)])
    await index.add([row])
    assert await named(index, MINE) == [row.run_id]


OF_USE: tuple[Check, ...] = (what_is_due_within_the_lead_is_named, a_row_added_again_counts_as_it_is_now)
