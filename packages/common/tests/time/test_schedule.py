"""The slots of plans: bounds, catch-up over long outages, counts, spread, preview, refusals."""

import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.common.clock import PARKED
from tocsin.common.errors import FieldError
from tocsin.common.models import AtSchedule, CronSchedule, DstFold, DstGap, EverySchedule, PlanSpec
from tocsin.common.time.schedule import (
    PreviewSlot,
    SlotCount,
    check_plan,
    count_slots,
    due_at,
    last_slots,
    latest_slot,
    next_slot,
    preview,
)
from tocsin.common.time.zoned_cron import Effect

SETTINGS = settings(max_examples=200, deadline=None, print_blob=True)
TASK = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DECADE = timedelta(days=3653)


def cron(text: str, zone: str = "UTC", **fields: Any) -> PlanSpec:
    return PlanSpec(schedule=CronSchedule(cron=text, zone=zone), **fields)


def every(seconds: int, anchor: datetime = NOON, **fields: Any) -> PlanSpec:
    return PlanSpec(schedule=EverySchedule(every_seconds=seconds, anchor=anchor), **fields)


def at(instant: datetime, **fields: Any) -> PlanSpec:
    return PlanSpec(schedule=AtSchedule(at=instant), **fields)


def thread_seconds(began: float) -> float:
    return time.thread_time() - began


# One slot after the other, and the bounds of the plan.


def test_a_slot_is_strictly_later_than_the_instant_asked() -> None:
    for plan in (cron("0 12 * * *"), every(86_400), at(NOON)):
        assert next_slot(plan, NOON - SECOND) == NOON
        assert next_slot(plan, NOON - timedelta(microseconds=1)) == NOON
        assert next_slot(plan, NOON) != NOON
        assert next_slot(plan, NOON + timedelta(microseconds=1)) != NOON
        assert latest_slot(plan, NOON) == NOON
        assert latest_slot(plan, NOON + timedelta(milliseconds=999)) == NOON
        assert latest_slot(plan, NOON - timedelta(microseconds=1)) != NOON


def test_start_is_included_and_end_is_not() -> None:
    day = timedelta(days=1)
    for plan in (
        cron("0 12 * * *", start=NOON, end=NOON + 2 * day),
        every(86_400, start=NOON, end=NOON + 2 * day),
    ):
        assert next_slot(plan, NOON - 9 * day) == NOON
        assert next_slot(plan, NOON) == NOON + day
        assert next_slot(plan, NOON + day) is None
        assert latest_slot(plan, PARKED) == NOON + day
        assert latest_slot(plan, NOON - SECOND) is None
        assert last_slots(plan, NOON - 9 * day, PARKED, 9) == [NOON, NOON + day]
        assert count_slots(plan, NOON - 9 * day, PARKED) == SlotCount(2, exact=True)


def test_bounds_within_a_second() -> None:
    half = timedelta(milliseconds=500)
    assert next_slot(every(1, start=NOON + half), NOON - SECOND) == NOON + SECOND
    assert latest_slot(every(1, start=NOON + half), NOON + half) is None
    assert latest_slot(every(1, end=NOON + half), PARKED) == NOON
    assert latest_slot(every(1, end=NOON), PARKED) == NOON - SECOND


def test_no_slot_lies_outside_the_years_1970_to_2199() -> None:
    for plan in (cron("0 0 1 1 *"), every(86_400)):
        assert next_slot(plan, datetime(2199, 12, 31, 12, tzinfo=UTC)) is None
        assert next_slot(plan, PARKED) is None
        assert latest_slot(plan, PARKED) is not None
        assert latest_slot(plan, datetime(1969, 12, 31, tzinfo=UTC)) is None
        first = next_slot(plan, datetime.min.replace(tzinfo=UTC))
        assert first is not None
        assert first.year == 1970


def test_an_instant_without_an_offset_is_refused() -> None:
    naive = NOON.replace(tzinfo=None)
    for plan in (cron("0 12 * * *"), every(60), at(NOON)):
        for ask in (next_slot, latest_slot):
            with pytest.raises(ValueError, match="an instant needs an offset"):
                ask(plan, naive)


def test_one_instant() -> None:
    plan = at(NOON)
    assert next_slot(plan, NOON - DECADE) == NOON
    assert next_slot(plan, NOON) is None
    assert latest_slot(plan, NOON - SECOND) is None
    assert count_slots(plan, NOON - DECADE, NOON) == SlotCount(1, exact=True)
    assert count_slots(plan, NOON, PARKED) == SlotCount(0, exact=True)
    assert last_slots(plan, NOON - SECOND, NOON, 5) == [NOON]
    assert last_slots(plan, NOON - SECOND, NOON, 0) == []


def test_the_anchor_gives_the_phase_and_no_beginning() -> None:
    plan = every(3600, anchor=NOON + timedelta(days=400, minutes=20))
    assert next_slot(plan, NOON) == NOON + timedelta(minutes=20)
    assert latest_slot(plan, NOON) == NOON - timedelta(minutes=40)


@SETTINGS
@given(
    st.integers(1, 10 * 366 * 86_400),
    st.integers(-(10**9), 10**9),
    st.integers(-(10**9), 10**9),
    st.integers(0, 10**6),
)
def test_intervals_are_anchor_plus_whole_periods(period: int, anchor: int, asked: int, span: int) -> None:
    base = datetime(2080, 1, 1, tzinfo=UTC)
    plan = every(period, anchor=base + anchor * SECOND)
    after = base + asked * SECOND
    slot, before = next_slot(plan, after), latest_slot(plan, after)
    assert before is not None
    assert before <= after
    assert after - before < period * SECOND
    assert slot is None or slot - before == period * SECOND
    assert (before - base - anchor * SECOND) % (period * SECOND) == timedelta()
    until = after + span * SECOND
    counted = count_slots(plan, after, until)
    assert counted.exact
    assert counted.count in (span // period, span // period + 1)
    assert len(last_slots(plan, after, until, 5)) == min(5, counted.count)


# Catch-up and clocks far ahead.


@pytest.mark.parametrize("outage", [timedelta(minutes=101), timedelta(days=3), DECADE])
@pytest.mark.parametrize("plan", [cron("* * * * *", "America/New_York"), every(60)], ids=["cron", "every"])
def test_b25_after_an_outage_the_last_slots_are_known_and_later_ones_come(plan: PlanSpec, outage: timedelta) -> None:
    missed = outage // timedelta(minutes=1)
    last = latest_slot(plan, NOON)
    assert last == NOON
    expected = [NOON - n * timedelta(minutes=1) for n in range(min(missed, 100))][::-1]
    assert last_slots(plan, NOON - outage, NOON, 100) == expected
    assert count_slots(plan, NOON - outage, NOON) == SlotCount(missed, exact=True)
    assert next_slot(plan, NOON) == NOON + timedelta(minutes=1)


TEN_YEARS_OLD = [every(1), cron("* * * * *", "Europe/Berlin"), cron("* * * * * *", "Europe/Berlin")]


@pytest.mark.parametrize("plan", TEN_YEARS_OLD, ids=["every", "cron", "cron with seconds"])
def test_b26_a_state_ten_years_old_costs_little_time_and_memory(plan: PlanSpec) -> None:
    old = NOON - DECADE
    next_slot(plan, old)
    count_slots(plan, old, NOON)
    tracemalloc.start()
    began = time.thread_time()
    try:
        assert next_slot(plan, old) is not None
        assert latest_slot(plan, NOON) == NOON
        assert len(last_slots(plan, old, NOON, 100)) == 100
        assert count_slots(plan, old, NOON).count > 5_000_000
        assert thread_seconds(began) < 0.5
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_b26_a_count_over_more_than_ten_years_is_a_lower_bound() -> None:
    plan = cron("0 0 1 1 *")
    assert count_slots(plan, NOON - DECADE, NOON) == SlotCount(10, exact=True)
    long = count_slots(plan, NOON - 5 * DECADE, NOON)
    assert not long.exact
    assert 10 <= long.count < 50
    assert count_slots(every(1), NOON - 5 * DECADE, NOON) == SlotCount(5 * 3653 * 86_400, exact=True)


def test_b26_a_clock_set_back_gives_no_slots_and_no_error() -> None:
    for plan in (cron("* * * * *"), every(1), at(NOON)):
        assert last_slots(plan, NOON, NOON - DECADE, 100) == []
        assert count_slots(plan, NOON, NOON - DECADE) == SlotCount(0, exact=True)


def test_b28_a_change_of_the_schedule_has_no_past() -> None:
    """Slots are a function of the plan and the instant asked: no earlier plan's slot shows through."""
    daily, minutely = cron("0 0 * * *"), cron("* * * * *")
    assert next_slot(daily, NOON) == datetime(2026, 6, 2, tzinfo=UTC)
    assert next_slot(minutely, NOON + timedelta(minutes=10, seconds=1)) == NOON + timedelta(minutes=11)
    assert next_slot(daily, NOON) == datetime(2026, 6, 2, tzinfo=UTC)


@SETTINGS
@given(
    st.sampled_from(["*/7 * * * *", "0,30 0-3 * * *", "30 2 * * 0", "0 0 L * *", "15 1 1-7 * 5"]),
    st.sampled_from(["America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]),
    st.sampled_from(DstGap),
    st.sampled_from(DstFold),
    st.tuples(st.integers(0, 3 * 366 * 24 * 60), st.integers(0, 20 * 24 * 60)),
)
def test_counts_and_last_slots_agree_with_one_slot_after_the_other(
    text: str, zone: str, gap: DstGap, fold: DstFold, minutes: tuple[int, int]
) -> None:
    plan = cron(text, zone, dst_gap=gap, dst_fold=fold)
    after = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes[0])
    until = after + timedelta(minutes=minutes[1])
    slots, slot = [], next_slot(plan, after)
    while slot is not None and slot <= until:
        slots.append(slot)
        slot = next_slot(plan, slot)
    assert slots == sorted(set(slots))
    assert count_slots(plan, after, until) == SlotCount(len(slots), exact=True)
    assert last_slots(plan, after, until, 10) == slots[-10:]
    assert latest_slot(plan, until) == (slots[-1] if slots else latest_slot(plan, after))


# The peak.


def test_thirty_thousand_tasks_at_nine_cost_little() -> None:
    zones = ["Europe/Berlin", "America/New_York", "Asia/Kolkata"]
    plans = [cron(f"{minute} 9 * * *", zone) for minute in range(60) for zone in zones]
    for plan in plans:
        next_slot(plan, NOON)
    began = time.thread_time()
    for _ in range(30_000 // len(plans)):
        for plan in plans:
            next_slot(plan, NOON)
    assert thread_seconds(began) < 1.5


# Spread.


def test_spread_is_stable_bounded_in_milliseconds_and_even() -> None:
    plan = cron("0 9 * * *", spread_seconds=600)
    offsets = [due_at(plan, UUID(int=n), NOON) - NOON for n in range(2_000)]
    assert offsets == [due_at(plan, UUID(int=n), NOON) - NOON for n in range(2_000)]
    assert all(timedelta() <= offset < timedelta(seconds=600) for offset in offsets)
    assert all(offset % timedelta(milliseconds=1) == timedelta() for offset in offsets)
    tenths = [sum(offset // timedelta(seconds=60) == tenth for offset in offsets) for tenth in range(10)]
    assert all(130 < count < 270 for count in tenths)


def test_spread_does_not_depend_on_the_slot_nor_on_the_process() -> None:
    plan = cron("0 9 * * *", spread_seconds=3600)
    offset = due_at(plan, TASK, NOON) - NOON
    assert due_at(plan, TASK, NOON + DECADE) - NOON - DECADE == offset
    assert offset == timedelta(seconds=40, milliseconds=45)


def test_without_spread_a_task_is_due_at_its_slot() -> None:
    assert due_at(cron("0 9 * * *"), TASK, NOON) == NOON


# Preview.


def shown(entries: list[PreviewSlot]) -> list[tuple[str, Effect | None]]:
    return [(entry.local, entry.effect) for entry in entries]


SPRING, AUTUMN = datetime(2025, 3, 8, 17, tzinfo=UTC), datetime(2025, 11, 1, 17, tzinfo=UTC)


def test_b13_preview_shows_a_time_moved_by_a_gap() -> None:
    plan = cron("30 2 * * *", "America/New_York", spread_seconds=60)
    entries = preview(plan, TASK, SPRING, 2)
    assert shown(entries) == [
        ("2025-03-09T03:00:00-04:00", Effect.GAP_SHIFTED),
        ("2025-03-10T02:30:00-04:00", None),
    ]
    for entry in entries:
        assert entry.slot is not None
        assert entry.due_at == due_at(plan, TASK, entry.slot)


def test_b13_preview_shows_a_time_lost_to_a_gap() -> None:
    plan = cron("15,30 2 * * *", "America/New_York", dst_gap=DstGap.SKIP)
    lost, first, second = preview(plan, TASK, SPRING, 3)
    assert lost == PreviewSlot(None, None, "2025-03-09T02:15:00", Effect.GAP_SKIPPED)
    assert shown([first, second]) == [
        ("2025-03-10T02:15:00-04:00", None),
        ("2025-03-10T02:30:00-04:00", None),
    ]
    assert first.slot == next_slot(plan, SPRING)


def test_b13_a_lost_time_and_a_slot_at_the_end_of_its_gap_are_both_shown() -> None:
    plan = cron("0,30 2,3 * * *", "America/New_York", dst_gap=DstGap.SKIP)
    assert shown(preview(plan, TASK, SPRING, 3)) == [
        ("2025-03-09T02:00:00", Effect.GAP_SKIPPED),
        ("2025-03-09T03:00:00-04:00", None),
        ("2025-03-09T03:30:00-04:00", None),
    ]
    assert shown(preview(plan, TASK, SPRING, 1)) == [("2025-03-09T02:00:00", Effect.GAP_SKIPPED)]


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        (DstFold.FIRST, [("01:30:00-04:00", Effect.FOLD_FIRST)]),
        (DstFold.LAST, [("01:30:00-05:00", Effect.FOLD_LAST)]),
        (DstFold.BOTH, [("01:30:00-04:00", Effect.FOLD_FIRST), ("01:30:00-05:00", Effect.FOLD_LAST)]),
    ],
)
def test_b14_preview_shows_the_pass_of_a_fold(fold: DstFold, expected: list[tuple[str, Effect]]) -> None:
    plan = cron("30 1 * * *", "America/New_York", dst_fold=fold)
    entries = shown(preview(plan, TASK, AUTUMN, len(expected) + 1))
    assert entries[:-1] == [(f"2025-11-02T{wall}", effect) for wall, effect in expected]
    assert entries[-1] == ("2025-11-03T01:30:00-05:00", None)


def test_preview_of_intervals_and_instants_is_in_utc_and_ends_with_the_plan() -> None:
    assert shown(preview(every(3600), TASK, NOON, 1)) == [("2026-06-01T13:00:00+00:00", None)]
    assert shown(preview(at(NOON), TASK, NOON - DECADE, 5)) == [("2026-06-01T12:00:00+00:00", None)]
    assert len(preview(every(3600, end=NOON + timedelta(hours=3)), TASK, NOON, 50)) == 2
    assert preview(every(3600), TASK, NOON, 0) == []


@SETTINGS
@given(
    st.sampled_from(["30 2 * * *", "0,30 0-3 * * 0", "*/20 * * * *"]),
    st.sampled_from(["America/New_York", "Europe/Berlin", "Africa/Cairo"]),
    st.sampled_from(DstGap),
    st.sampled_from(DstFold),
    st.integers(0, 366 * 24),
)
def test_preview_shows_exactly_the_slots(text: str, zone: str, gap: DstGap, fold: DstFold, hour: int) -> None:
    plan = cron(text, zone, dst_gap=gap, dst_fold=fold)
    after = datetime(2026, 1, 1, tzinfo=UTC) + hour * timedelta(hours=1)
    at_instant = after
    for entry in preview(plan, TASK, after, 30):
        assert (entry.slot is None) == (entry.effect is Effect.GAP_SKIPPED)
        if entry.slot is not None:
            assert next_slot(plan, at_instant) == entry.slot
            assert datetime.fromisoformat(entry.local) == entry.slot
            at_instant = entry.slot


# Plans without slots.


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        (
            cron("0 0 29 2 *", start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2028, 1, 1, tzinfo=UTC)),
            "end",
        ),
        (every(86_400, start=NOON + SECOND, end=NOON + 2 * SECOND), "end"),
        (at(NOON, start=NOON + SECOND), "schedule"),
        (at(NOON, end=NOON), "end"),
        (cron("0 0 29 2 *", start=datetime(2199, 1, 1, tzinfo=UTC)), "schedule"),
    ],
)
def test_a_plan_without_any_slot_is_refused(plan: PlanSpec, field: str) -> None:
    with pytest.raises(FieldError) as caught:
        check_plan(plan)
    assert caught.value.field == field


def test_b1_b13_plans_with_a_slot_are_accepted_at_any_season() -> None:
    check_plan(cron("48 14 31 jun sun"))
    check_plan(cron("0 0 31 2 1"))
    check_plan(cron("30 2 * * *", "America/New_York"))
    check_plan(cron("30 2 9 3 *", "America/New_York", dst_gap=DstGap.SKIP))
    check_plan(at(NOON, start=NOON, end=NOON + SECOND))
    check_plan(every(1, start=NOON, end=NOON + SECOND))
