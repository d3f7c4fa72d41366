"""The plan: what becomes of a due row. A model applies each plan as the begin would, and accounts for every slot."""

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plan_model import MINUTE, NOW, SECOND, Model, Planning, a_row, a_task, drive, ids, kinds
from tocsin.common.clock import PARKED
from tocsin.common.models import (
    AtSchedule,
    CronSchedule,
    EverySchedule,
    Kind,
    Misfire,
    Overlap,
)
from tocsin.common.store.rows import BeginItem, Pending, Plant, SkipReason, Task
from tocsin.common.time.schedule import due_at, next_slot
from tocsin.engine.plan import CATCHUP_PACE, is_exclusive, plan_faulty, plan_overlap_skip, plan_run

MINUTELY = CronSchedule(cron="* * * * *")


SCHEDULES = st.one_of(
    st.builds(EverySchedule, every_seconds=st.integers(1, 7200), anchor=st.just(NOW)),
    st.builds(
        CronSchedule,
        cron=st.sampled_from(["* * * * *", "*/7 9-17 * * *", "30 2 * * *", "0 0 L * *", "*/15 * * * * *"]),
        zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    ),
    st.just(AtSchedule(at=NOW + 7 * SECOND)),
)
GAPS = st.lists(
    st.tuples(st.floats(0, 9000, allow_nan=False), st.integers(1, 4), st.booleans()), min_size=1, max_size=8
)


@settings(max_examples=200)
@given(
    schedule=SCHEDULES,
    misfire=st.sampled_from(Misfire),
    grace=st.integers(1, 600),
    catchup=st.integers(1, 20),
    spread=st.sampled_from([0, 1, 30, 3600]),
    lasting=st.none() | st.integers(1, 20_000),
    overlap=st.sampled_from(Overlap),
    gaps=GAPS,
)
def test_every_slot_is_accounted_for_exactly_once(
    schedule: Any,
    misfire: Misfire,
    grace: int,
    catchup: int,
    spread: int,
    lasting: int | None,
    overlap: Overlap,
    gaps: list[tuple[float, int, bool]],
) -> None:
    end = None if lasting is None else NOW + timedelta(seconds=lasting)
    task = a_task(
        schedule=schedule,
        misfire=misfire,
        grace_seconds=grace,
        max_catchup=catchup,
        spread_seconds=spread,
        end=end,
        overlap=overlap,
    )
    slot = next_slot(task.plan, NOW - SECOND)
    if slot is not None:
        drive(task, slot, gaps)


# --- broken twins of the plan ---------------------------------------------------------------------------------------

LATE_MINUTELY = [(0.0, 1, False), (400.0, 3, False), (90.0, 2, False)]


def successor_from_now(row: Pending, task: Task, now: datetime, new_id: Callable[[], UUID], **how: Any) -> BeginItem:
    """Broken: the next slot is computed from the present instead of from the slot."""
    item = plan_run(row, task, now, new_id, **how)
    slot = next_slot(task.plan, now)
    return replace(item, plants=tuple(replace(p, slot=slot) if p.kind is Kind.NEXT else p for p in item.plants))


def unbounded_catch_up(row: Pending, task: Task, now: datetime, new_id: Callable[[], UUID], **how: Any) -> BeginItem:
    """Broken: every missed slot gets a run."""
    plan = task.plan.model_copy(update={"max_catchup": 10**6})
    return plan_run(row, replace(task, plan=plan), now, new_id, **how)


def chain_to_the_row(row: Pending, task: Task, now: datetime, new_id: Callable[[], UUID], **how: Any) -> BeginItem:
    """Broken: what is planted names the begun row's slot, whatever was skipped or caught up in between."""
    item = plan_run(row, task, now, new_id, **how)
    assert row.slot is not None
    return replace(item, plants=tuple(replace(plant, last_slot=row.slot) for plant in item.plants))


def spread_forgotten(row: Pending, task: Task, now: datetime, new_id: Callable[[], UUID], **how: Any) -> BeginItem:
    """Broken: slots that have passed, but are not due before their spread, are caught up."""
    plan = task.plan.model_copy(update={"spread_seconds": 0})
    return plan_run(row, replace(task, plan=plan), now, new_id, **how)


@pytest.mark.parametrize(
    ("twin", "plan"),
    [
        (successor_from_now, {"grace_seconds": 600}),
        (unbounded_catch_up, {"misfire": Misfire.FIRE_ALL, "max_catchup": 2, "grace_seconds": 10}),
        (chain_to_the_row, {"misfire": Misfire.FIRE_ALL, "grace_seconds": 10}),
        (spread_forgotten, {"misfire": Misfire.FIRE_ALL, "grace_seconds": 10, "spread_seconds": 3600}),
        (spread_forgotten, {"misfire": Misfire.SKIP, "grace_seconds": 10, "spread_seconds": 3600}),
    ],
)
def test_the_model_catches_a_broken_plan(twin: Planning, plan: dict[str, Any]) -> None:
    task = a_task(**plan)
    assert task.plan.spread_seconds == 0 or due_at(task.plan, task.id, NOW) - NOW > 2 * MINUTE
    rounds = [(float(task.plan.spread_seconds), 1, False), *LATE_MINUTELY]
    drive(task, NOW, rounds)
    with pytest.raises(AssertionError):
        drive(task, NOW, rounds, twin)


def greatest_lateness(planning: Planning) -> timedelta:
    """A task due every second whose every begin waits five seconds for room."""
    task = a_task(schedule=EverySchedule(every_seconds=1, anchor=NOW))
    model = Model(task, a_row(task, NOW), planning)
    now = NOW
    for _ in range(200):
        now += 5 * SECOND
        assert model.begin(now)
    model.check()
    return max(begun - slot for slot, begun in model.begun)


def lateness_from_the_row(row: Pending, task: Task, now: datetime, new_id: Callable[[], UUID], **how: Any) -> BeginItem:
    """Broken: lateness counts from the row's due instant, which is the planting's where that was late."""
    if now - row.due_at <= timedelta(seconds=task.plan.grace_seconds):
        assert row.slot is not None
        slot = next_slot(task.plan, row.slot)
        assert slot is not None
        return BeginItem(row, plants=(Plant(new_id(), Kind.NEXT, slot, slot, row.slot),))
    return plan_run(row, task, now, new_id, **how)


def test_a_task_that_cannot_keep_up_falls_behind_by_its_grace_and_no_more() -> None:
    assert greatest_lateness(plan_run) <= 66 * SECOND
    assert greatest_lateness(lateness_from_the_row) > 600 * SECOND


# --- single cases ---------------------------------------------------------------------------------------------------


def test_a_row_on_time_runs_and_plants_the_slot_after_it() -> None:
    task = a_task(spread_seconds=100)
    row = a_row(task, NOW)
    item = plan_run(row, task, row.due_at + SECOND, ids())
    assert item.skip is None
    assert not item.exclusive
    (plant,) = item.plants
    assert plant.kind is Kind.NEXT
    assert (plant.slot, plant.last_slot) == (NOW + MINUTE, NOW)
    assert plant.due_at - NOW - MINUTE == row.due_at - NOW > timedelta(0)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.NEXT])
def test_waiting_runs_plant_nothing_however_late(kind: Kind) -> None:
    task = a_task(misfire=Misfire.SKIP)
    row = a_row(task, NOW, kind=kind)
    item = plan_run(row, task, NOW + timedelta(days=3), ids())
    assert item == BeginItem(row)


def test_the_last_slot_of_a_schedule_plants_nothing() -> None:
    once = a_task(schedule=AtSchedule(at=NOW))
    assert plan_run(a_row(once, NOW), once, NOW, ids()).plants == ()
    ending = a_task(end=NOW + 3 * MINUTE)
    assert plan_run(a_row(ending, NOW + 2 * MINUTE), ending, NOW + 2 * MINUTE, ids()).plants == ()
    late = plan_run(a_row(ending, NOW), ending, NOW + timedelta(days=9), ids())
    assert kinds(late) == [Kind.CATCHUP]
    assert late.plants[0].slot == NOW + 2 * MINUTE


@pytest.mark.parametrize("misfire", Misfire)
def test_grace_is_the_lateness_that_does_not_count(misfire: Misfire) -> None:
    task = a_task(misfire=misfire, grace_seconds=30)
    row = a_row(task, NOW)
    assert plan_run(row, task, NOW + 30 * SECOND, ids()).skip is None
    late = plan_run(row, task, NOW + 31 * SECOND, ids())
    assert (late.skip is not None) == (misfire is Misfire.SKIP)


def test_misfire_skip_leaves_what_is_within_its_grace_to_run() -> None:
    task = a_task(misfire=Misfire.SKIP, grace_seconds=90)
    item = plan_run(a_row(task, NOW), task, NOW + 4 * MINUTE + 30 * SECOND, ids())
    assert item.skip is not None
    assert (item.skip.first_slot, item.skip.until_slot, item.skip.count) == (NOW, NOW + 2 * MINUTE, 3)
    assert item.skip.reason is SkipReason.MISFIRE
    (plant,) = item.plants
    assert plant.slot == NOW + 3 * MINUTE  # exactly its grace late


def test_fire_once_runs_the_only_missed_slot_itself() -> None:
    task = a_task(schedule=EverySchedule(every_seconds=3600, anchor=NOW), overlap=Overlap.SKIP)
    item = plan_run(a_row(task, NOW), task, NOW + 30 * MINUTE, ids())
    assert item.skip is None
    assert item.exclusive
    assert kinds(item) == [Kind.NEXT]


def test_fire_once_runs_the_last_of_many_and_skips_the_others_together() -> None:
    task = a_task()
    item = plan_run(a_row(task, NOW), task, NOW + 10 * MINUTE, ids())
    assert item.skip is not None
    assert (item.skip.first_slot, item.skip.until_slot, item.skip.count) == (NOW, NOW + 9 * MINUTE, 10)
    assert item.skip.previous_slot == NOW - MINUTE
    assert not item.exclusive  # a skip waits for nobody
    catchup, following = item.plants
    assert (catchup.kind, catchup.slot, catchup.last_slot) == (Kind.CATCHUP, NOW + 10 * MINUTE, NOW + 9 * MINUTE)
    assert (following.slot, following.last_slot) == (NOW + 11 * MINUTE, NOW + 10 * MINUTE)


def test_fire_all_catches_up_in_order_and_paced() -> None:
    task = a_task(misfire=Misfire.FIRE_ALL, max_catchup=5)
    now = NOW + 3 * MINUTE
    item = plan_run(a_row(task, NOW), task, now, ids())
    assert item.skip is None
    assert [plant.slot for plant in item.plants] == [NOW + n * MINUTE for n in (1, 2, 3, 4)]
    assert [plant.last_slot for plant in item.plants] == [NOW + n * MINUTE for n in (0, 1, 2, 3)]
    assert [plant.due_at for plant in item.plants[:3]] == [now + CATCHUP_PACE * n for n in range(3)]


@pytest.mark.parametrize(("misfire", "runs"), [(Misfire.SKIP, 0), (Misfire.FIRE_ONCE, 1), (Misfire.FIRE_ALL, 100)])
@pytest.mark.parametrize("missed", [timedelta(minutes=101), timedelta(days=3)])
def test_b25_many_missed_starts(misfire: Misfire, runs: int, missed: timedelta) -> None:
    """The number of catch-up runs is the policy's, and the task goes on by itself."""
    task = a_task(misfire=misfire, schedule=MINUTELY)
    now = NOW + missed + SECOND
    model = Model(task, a_row(task, NOW), plan_run)
    assert model.begin(now)
    assert sum(link.run for link in model.links) == runs
    assert model.next is not None
    while model.next.due_at <= now:
        model.begin(now)
    model.check()
    assert model.next.slot == NOW + missed + MINUTE


def work(action: Callable[[], object]) -> int:
    """How many Python functions it calls."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("misfire", Misfire)
@pytest.mark.parametrize("schedule", [EverySchedule(every_seconds=1, anchor=NOW), MINUTELY])
@pytest.mark.parametrize("held", [False, True])
def test_b26_ten_years_cost_no_more_than_a_few_days_do(misfire: Misfire, schedule: Any, held: bool) -> None:
    """The work is counted in calls of Python functions; a walk over the slots would be millions."""
    task = a_task(schedule=schedule, misfire=misfire, overlap=Overlap.BUFFER_ONE)
    row = a_row(task, NOW)
    day, decade, century = (NOW + timedelta(days=days) for days in (1, 3653, 36_525))
    plan_run(row, task, day, ids())  # compiles the expression
    in_a_decade = work(lambda: plan_run(row, task, decade, ids(), held=held))
    in_a_century = work(lambda: plan_run(row, task, century, ids(), held=held))
    assert in_a_decade < 5_000
    assert in_a_century < 5_000
    item = plan_run(row, task, decade, ids(), held=held)
    skips = [skip for skip in (item.skip, *item.skips) if skip is not None]
    assert len(skips) == 1
    assert len(item.plants) <= 101


def test_b28_a_new_task_owes_nothing_to_the_past() -> None:
    """A task made now, on a schedule as old as the hills, first runs at its first slot after now."""
    task = a_task(schedule=EverySchedule(every_seconds=60, anchor=NOW - timedelta(days=4000)))
    now = NOW + 20 * SECOND
    first = next_slot(task.plan, now)
    assert first == NOW + MINUTE
    item = plan_run(a_row(task, first, last_slot=None), task, first, ids())
    assert item.skip is None
    assert kinds(item) == [Kind.NEXT]


def test_what_is_judged_for_overlap() -> None:
    """Policy other than allow, and never begun before: rule 5 of the data, "a retry is never judged again"."""
    spec = a_task(overlap=Overlap.SKIP).plan
    judged = {kind for kind in Kind if is_exclusive(a_row(a_task(), NOW, kind=kind), spec)}
    assert judged == {Kind.NEXT, Kind.SLOT, Kind.NOW, Kind.CATCHUP}
    assert not any(is_exclusive(a_row(a_task(), NOW, kind=kind, fence=1), spec) for kind in Kind)
    assert not any(is_exclusive(a_row(a_task(), NOW, kind=kind), a_task().plan) for kind in Kind)


def test_an_overlapped_slot_is_one_skip_and_its_successor_follows() -> None:
    task = a_task(overlap=Overlap.SKIP)
    item = plan_overlap_skip(a_row(task, NOW), task, ids())
    assert item.skip is not None
    assert (item.skip.first_slot, item.skip.until_slot, item.skip.previous_slot) == (NOW, NOW, NOW - MINUTE)
    assert (item.skip.reason, item.skip.count) == (SkipReason.OVERLAP, 1)
    assert [plant.slot for plant in item.plants] == [NOW + MINUTE]
    now_run = plan_overlap_skip(a_row(task, None, kind=Kind.NOW, due_at=NOW), task, ids())
    assert now_run.skip is not None
    assert now_run.plants == ()


def test_a_held_row_runs_whatever_its_age_and_the_slots_that_passed_are_one_skip() -> None:
    task = a_task(overlap=Overlap.BUFFER_ONE, misfire=Misfire.SKIP, grace_seconds=1)
    item = plan_run(a_row(task, NOW), task, NOW + 3 * MINUTE + SECOND, ids(), held=True)
    assert item.skip is None
    assert item.exclusive
    (passed,) = item.skips
    assert (passed.first_slot, passed.until_slot, passed.count) == (NOW + MINUTE, NOW + 3 * MINUTE, 3)
    assert passed.previous_slot == NOW
    assert passed.reason is SkipReason.OVERLAP
    (plant,) = item.plants
    assert (plant.slot, plant.last_slot) == (NOW + 4 * MINUTE, NOW + 3 * MINUTE)
    early = plan_run(a_row(task, NOW), task, NOW + SECOND, ids(), held=True)
    assert early.skips == ()


def test_skipped_leap_days_are_counted_over_ten_years_from_the_first_of_them() -> None:
    """And not from the slot before it, eight years away where a century has no leap day."""
    task = a_task(schedule=CronSchedule(cron="0 12 29 2 *"), overlap=Overlap.BUFFER_ONE)
    held, *passed = (datetime(year, 2, 29, 12, tzinfo=UTC) for year in (2096, 2104, 2108, 2112))
    (skip,) = plan_run(a_row(task, held), task, passed[-1] + SECOND, ids(), held=True).skips
    assert (skip.first_slot, skip.until_slot, skip.count, skip.exact) == (passed[0], passed[-1], 3, True)


def test_where_planning_raised_the_slot_runs_and_the_successor_is_parked() -> None:
    task = a_task()
    (plant,) = plan_faulty(a_row(task, NOW), ids()).plants
    assert plant == Plant(plant.run_id, Kind.NEXT, PARKED, None, NOW)
    assert plan_faulty(a_row(task, NOW, kind=Kind.NOW), ids()).plants == ()


def test_ids_of_what_is_planted_are_all_different() -> None:
    rng = random.Random(3)
    task = a_task(misfire=Misfire.FIRE_ALL, max_catchup=1000)
    item = plan_run(a_row(task, NOW), task, NOW + timedelta(days=2), lambda: UUID(int=rng.getrandbits(128)))
    assert len({plant.run_id for plant in item.plants}) == len(item.plants) == 1001
