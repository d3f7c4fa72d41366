"""The timing machine in short, and its oracle against what is known of single nights."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from property_tests.machine import Profile, play
from property_tests.plan_drafts import NIGHTS, Draft
from property_tests.timing import Subject, TimingMachine
from property_tests.wall_clock import CRONS, Slots, Timeline, slots_of_day
from tocsin.common.models import CronSchedule, DstFold, DstGap, EverySchedule, PlanSpec
from tocsin.common.store.rows import BeginItem, Pending, Task
from tocsin.engine import planner
from tocsin.engine.plan import NewId, plan_run

SEED = 20_260_310


def test_promises_1_2_and_8_hold_over_schedules() -> None:
    play(TimingMachine, Profile(examples=60, steps=30), SEED)


@pytest.fixture
def machine() -> Iterator[TimingMachine]:
    made = TimingMachine()
    made.wake(NIGHTS[1], 0)
    yield made
    made.teardown()


def test_an_edit_records_no_slot_from_before_its_plan(machine: TimingMachine) -> None:
    """Two edits with no slot between them: the first plan's slots begin with the first edit."""
    subject = machine.create(Draft(86_400, offset=60))
    assert isinstance(subject, Subject)
    machine.serve_its_next_slots(subject, 0.0, False, 1)
    machine.time_goes_by(6 * 3_600)
    machine.edit(subject, Draft(60), False)
    machine.time_goes_by(10)
    machine.edit(subject, Draft(3_600, offset=5), False)
    machine.promise_1_every_slot_is_in_one_place()


def test_a_slot_planted_late_is_judged_by_its_own_instant(
    machine: TimingMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else lateness adds up unseen. The broken twin counts it from the row's due instant, and is caught."""
    subject = machine.create(Draft(20))
    assert isinstance(subject, Subject)
    machine.serve_its_next_slots(subject, 50.0, True, 4)
    monkeypatch.setattr(planner, "plan_run", planned_by_the_row)
    with pytest.raises(AssertionError, match="promise 8, misfire"):
        machine.serve_its_next_slots(subject, 50.0, True, 4)


def planned_by_the_row(row: Pending, task: Task, now: datetime, new_id: NewId, *, held: bool = False) -> BeginItem:
    assert row.slot is not None
    return plan_run(row, task, row.slot + (now - row.due_at), new_id, held=held)


def at(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp())  # type: ignore[misc, arg-type]


def in_day(text: str, zone: str, day: tuple[int, int, int], gap: DstGap, fold: DstFold) -> list[str]:
    """The slots of one UTC day, as hours and minutes."""
    found = slots_of_day(CRONS[text], zone, gap, fold, at(*day) // 86_400)
    return [f"{datetime.fromtimestamp(slot, UTC):%H:%M:%S}" for slot in found]


@pytest.mark.parametrize(
    ("text", "zone", "day", "gap", "fold", "slots"),
    [
        ("30 2 * * *", "Europe/Berlin", (2026, 3, 29), DstGap.SHIFT, DstFold.FIRST, ["01:00:00"]),
        ("30 2 * * *", "Europe/Berlin", (2026, 3, 29), DstGap.SKIP, DstFold.FIRST, []),
        ("30 2 * * *", "Europe/Berlin", (2026, 10, 25), DstGap.SHIFT, DstFold.FIRST, ["00:30:00"]),
        ("30 2 * * *", "Europe/Berlin", (2026, 10, 25), DstGap.SHIFT, DstFold.LAST, ["01:30:00"]),
        ("30 2 * * *", "Europe/Berlin", (2026, 10, 25), DstGap.SHIFT, DstFold.BOTH, ["00:30:00", "01:30:00"]),
        ("10,50 15 2 * * 0", "Europe/Berlin", (2026, 3, 29), DstGap.SHIFT, DstFold.FIRST, ["01:00:00"]),
        ("0 0 * * *", "America/Santiago", (2026, 9, 6), DstGap.SHIFT, DstFold.FIRST, ["04:00:00"]),
        ("30 2 * * *", "UTC", (2026, 3, 29), DstGap.SHIFT, DstFold.FIRST, ["02:30:00"]),
        (
            "15,45 0-3 * * *",
            "Australia/Lord_Howe",
            (2026, 4, 4),
            DstGap.SHIFT,
            DstFold.BOTH,
            [
                "13:15:00",
                "13:45:00",
                "14:15:00",
                "14:45:00",
                "15:15:00",
                "15:45:00",
                "16:15:00",
                "16:45:00",
                "17:15:00",
            ],
        ),
    ],
)
def test_the_walk_over_a_night(
    text: str, zone: str, day: tuple[int, int, int], gap: DstGap, fold: DstFold, slots: list[str]
) -> None:
    assert in_day(text, zone, day, gap, fold) == slots


def test_a_quiet_day_is_as_walked() -> None:
    """Days that are expanded at once have the slots that the walk finds: a leap day, and a day before a change."""
    plan = PlanSpec(schedule=CronSchedule(cron="0 12 29 2 *", zone="Europe/Berlin"))
    assert Slots(plan).first_after(at(2026, 1, 1)) == at(2028, 2, 29, 11)
    assert Slots(plan).count(at(2026, 1, 1), at(2040, 1, 1)) == 3
    half_hours = PlanSpec(schedule=CronSchedule(cron="*/30 * * * *", zone="Europe/Berlin"))
    assert Slots(half_hours).count(at(2026, 1, 1) - 1, at(2027, 1, 1) - 1) == 365 * 48


def test_a_timeline_changes_its_plan() -> None:
    minutes = PlanSpec(schedule=EverySchedule(every_seconds=60, anchor=datetime(2026, 1, 1, tzinfo=UTC)))
    hours = minutes.model_copy(
        update={"schedule": EverySchedule(every_seconds=3_600, anchor=datetime(2026, 1, 1, tzinfo=UTC))}
    )
    timeline = Timeline(minutes, at(2026, 1, 1))
    timeline.change(hours, at(2026, 1, 1, 0, 2, 30))
    assert timeline.first_after(at(2026, 1, 1, 0, 1)) == at(2026, 1, 1, 0, 2)
    assert timeline.first_after(at(2026, 1, 1, 0, 2)) == at(2026, 1, 1, 1, 0)
    assert timeline.count(at(2026, 1, 1), at(2026, 1, 1, 2)) == 4
