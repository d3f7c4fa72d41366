"""The pure plan: what becomes of a due row, and what is planted for it. Its work is bounded whatever the row's age."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

from tocsin.common.clock import PARKED
from tocsin.common.models import Kind, Misfire, Overlap, PlanSpec
from tocsin.common.store.rows import BeginItem, Pending, Plant, Skip, SkipReason, Task
from tocsin.common.time.schedule import count_slots, due_at, last_slots, latest_slot, next_slot

CATCHUP_PACE = timedelta(milliseconds=200)
"""Catch-up runs of one task start this far apart, at the lowest priority: they yield to live ones."""

_SECOND = timedelta(seconds=1)

NewId = Callable[[], UUID]


def plan_run(row: Pending, task: Task, now: datetime, new_id: NewId, *, held: bool = False) -> BeginItem:
    """The begin of a row, with its verdict and what it plants.

    `held`: overlap `buffer_one` has held the row; its grace did not run meanwhile, and the slots that
    passed are one skip. `now` is the database's. How late a slot is counts from its own due instant: the
    row's is later where it was planted late, and lateness would add up unseen.
    """
    exclusive = is_exclusive(row, task.plan)
    if row.kind is not Kind.NEXT or row.slot is None:
        return BeginItem(row, exclusive)
    spec = task.plan
    reached = now - (due_at(spec, task.id, row.slot) - row.slot)
    if held:
        return _after_holding(row, task, row.slot, reached, new_id)
    if reached - row.slot <= timedelta(seconds=spec.grace_seconds):
        return BeginItem(row, exclusive, plants=_successor(task, row.slot, row.slot, new_id))
    return _misfired(row, task, row.slot, now, reached, new_id, exclusive)


def plan_overlap_skip(row: Pending, task: Task, new_id: NewId) -> BeginItem:
    """The begin that skips a row because an earlier run of its task has not ended."""
    skip = Skip(row.run_id, row.slot, row.slot, row.last_slot, 1, True, SkipReason.OVERLAP)
    if row.kind is not Kind.NEXT or row.slot is None:
        return BeginItem(row, skip=skip)
    return BeginItem(row, skip=skip, plants=_successor(task, row.slot, row.slot, new_id))


def plan_faulty(row: Pending, new_id: NewId) -> BeginItem:
    """The begin where planning raised: the due slot runs all the same, and the successor is parked."""
    return BeginItem(row, plants=parked_successor(row, new_id))


def parked_successor(row: Pending, new_id: NewId) -> tuple[Plant, ...]:
    """What follows a next row whose task cannot be planned."""
    if row.kind is not Kind.NEXT or row.slot is None:
        return ()
    return (Plant(new_id(), Kind.NEXT, PARKED, None, row.slot),)


def is_exclusive(row: Pending, spec: PlanSpec) -> bool:
    """Whether the row may begin only while nothing else of its task runs. What was begun is never judged again."""
    return (
        spec.overlap is not Overlap.ALLOW
        and row.fence == 0
        and row.kind in (Kind.NEXT, Kind.SLOT, Kind.NOW, Kind.CATCHUP)
    )


def _successor(task: Task, after: datetime, last: datetime, new_id: NewId) -> tuple[Plant, ...]:
    slot = next_slot(task.plan, after)
    if slot is None:
        return ()
    return (Plant(new_id(), Kind.NEXT, due_at(task.plan, task.id, slot), slot, last),)


def _after_holding(row: Pending, task: Task, slot: datetime, reached: datetime, new_id: NewId) -> BeginItem:
    until = latest_slot(task.plan, reached)
    if until is None or until <= slot:
        return BeginItem(row, exclusive=True, plants=_successor(task, slot, slot, new_id))
    first = next_slot(task.plan, slot) or until
    count = count_slots(task.plan, first - _SECOND, until)
    passed = Skip(new_id(), first, until, slot, count.count, count.exact, SkipReason.OVERLAP)
    return BeginItem(row, exclusive=True, plants=_successor(task, until, until, new_id), skips=(passed,))


def _misfired(
    row: Pending, task: Task, slot: datetime, now: datetime, reached: datetime, new_id: NewId, exclusive: bool
) -> BeginItem:
    """`reached`: slots up to it are due by now; it is `now` less the task's share of its spread."""
    spec = task.plan
    if spec.misfire is Misfire.SKIP:
        # Slots still within their grace are not late: the next row takes them up.
        late = latest_slot(spec, reached - timedelta(seconds=spec.grace_seconds) - timedelta.resolution)
        until = max(late or slot, slot)
        skip = _skip(row, spec, slot, until)
        return BeginItem(row, skip=skip, plants=_successor(task, until, until, new_id))
    wanted = 1 if spec.misfire is Misfire.FIRE_ONCE else spec.max_catchup
    until = max(latest_slot(spec, reached) or slot, slot)
    fired = last_slots(spec, slot - _SECOND, until, wanted) or [slot]
    after = _successor(task, until, until, new_id)
    if fired[0] == slot:
        return BeginItem(row, exclusive, plants=(*_catchups(fired, now, new_id), *after))
    before = latest_slot(spec, fired[0] - _SECOND)
    skip = _skip(row, spec, slot, max(before or slot, slot))
    catchups = _catchups([skip.until_slot or slot, *fired], now, new_id)
    return BeginItem(row, skip=skip, plants=(*catchups, *after))


def _skip(row: Pending, spec: PlanSpec, first: datetime, until: datetime) -> Skip:
    count = count_slots(spec, first - _SECOND, until)
    return Skip(row.run_id, first, until, row.last_slot, max(1, count.count), count.exact, SkipReason.MISFIRE)


def _catchups(slots: list[datetime], now: datetime, new_id: NewId) -> list[Plant]:
    """Catch-up runs for all but the first of `slots`, each naming the one before it."""
    return [
        Plant(new_id(), Kind.CATCHUP, now + CATCHUP_PACE * index, slot, last)
        for index, (last, slot) in enumerate(pairwise(slots))
    ]
