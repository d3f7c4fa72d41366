"""Public bug reports about time zones, replayed: each with its instants and the right answer."""

from datetime import UTC, datetime, timedelta

import pytest

from tocsin.common.models import CronSchedule, DstFold, DstGap, EverySchedule, PlanSpec
from tocsin.common.time.schedule import latest_slot, next_slot
from tocsin.common.time.zones import zone as load_zone
from tocsin.common.time.zones import zone_data_version

ONCE = (DstGap.SHIFT, DstFold.FIRST)
LITERAL = (DstGap.SKIP, DstFold.BOTH)
LAST = (DstGap.SHIFT, DstFold.LAST)


def slots(plan: PlanSpec, after: str, count: int) -> list[str]:
    at, found = datetime.fromisoformat(after), []
    for _ in range(count):
        slot = next_slot(plan, at)
        assert slot is not None
        assert slot > at
        assert latest_slot(plan, slot) == slot
        assert slot.tzinfo is UTC
        at = slot
        found.append(slot.strftime("%Y-%m-%dT%H:%MZ"))
    return found


CRON_CASES = [
    (
        "b13",
        "America/New_York",
        "30 2 * * *",
        ONCE,
        "2025-03-08T12:00-05:00",
        ["2025-03-09T07:00Z", "2025-03-10T06:30Z"],
    ),
    ("b13", "America/New_York", "30 2 * * *", LITERAL, "2025-03-08T12:00-05:00", ["2025-03-10T06:30Z"]),
    (
        "b14",
        "Europe/Berlin",
        "0 2 * * 0",
        ONCE,
        "2024-10-26T12:00+02:00",
        ["2024-10-27T00:00Z", "2024-11-03T01:00Z"],
    ),
    ("b14", "Europe/Berlin", "0 2 * * 0", ONCE, "2024-10-27T00:30+00:00", ["2024-11-03T01:00Z"]),
    (
        "b14",
        "Europe/Berlin",
        "0 2 * * 0",
        LITERAL,
        "2024-10-26T12:00+02:00",
        ["2024-10-27T00:00Z", "2024-10-27T01:00Z"],
    ),
    (
        "b14",
        "Europe/Berlin",
        "0 2 * * 0",
        LAST,
        "2024-10-27T00:30+00:00",
        ["2024-10-27T01:00Z", "2024-11-03T01:00Z"],
    ),
    (
        "b14",
        "America/New_York",
        "30 1 * * *",
        ONCE,
        "2025-11-01T12:00-04:00",
        ["2025-11-02T05:30Z", "2025-11-03T06:30Z"],
    ),
    (
        "b14",
        "America/New_York",
        "30 1 * * *",
        LITERAL,
        "2025-11-01T12:00-04:00",
        ["2025-11-02T05:30Z", "2025-11-02T06:30Z", "2025-11-03T06:30Z"],
    ),
    (
        "b15",
        "Europe/Zurich",
        "*/5 * * * *",
        ONCE,
        "2023-10-29T02:55+02:00",
        ["2023-10-29T01:00Z", "2023-10-29T01:05Z"],
    ),
    (
        "b15",
        "America/Los_Angeles",
        "0 * * * *",
        ONCE,
        "2026-11-01T01:00-07:00",
        ["2026-11-01T09:00Z", "2026-11-01T10:00Z"],
    ),
    ("b18", "America/Santiago", "0 6 * * *", ONCE, "2018-08-12T01:59-03:00", ["2018-08-12T09:00Z"]),
    ("b18", "America/Sao_Paulo", "0 1 4 11 *", ONCE, "2018-11-03T23:00-03:00", ["2018-11-04T03:00Z"]),
    (
        "b18",
        "Asia/Beirut",
        "0 0 * * *",
        ONCE,
        "2026-03-28T12:00+02:00",
        ["2026-03-28T22:00Z", "2026-03-29T21:00Z"],
    ),
    ("b18", "Asia/Beirut", "0 0 * * *", LITERAL, "2026-03-28T12:00+02:00", ["2026-03-29T21:00Z"]),
    (
        "b18",
        "Africa/Cairo",
        "0 0 * * *",
        ONCE,
        "2026-04-23T12:00+02:00",
        ["2026-04-23T22:00Z", "2026-04-24T21:00Z"],
    ),
    ("b18", "Africa/Cairo", "0 0 * * *", LITERAL, "2026-04-23T12:00+02:00", ["2026-04-24T21:00Z"]),
    (
        "b18",
        "America/Havana",
        "0 0 * * *",
        ONCE,
        "2026-03-07T12:00-05:00",
        ["2026-03-08T05:00Z", "2026-03-09T04:00Z"],
    ),
    ("b18", "America/Havana", "0 0 * * *", LITERAL, "2026-03-07T12:00-05:00", ["2026-03-09T04:00Z"]),
    (
        "b19",
        "America/New_York",
        "0 6 * * *",
        ONCE,
        "2024-03-09T06:00-05:00",
        ["2024-03-10T10:00Z", "2024-03-11T10:00Z"],
    ),
    (
        "b19",
        "Europe/Amsterdam",
        "0 8 * * 1",
        ONCE,
        "2017-10-23T08:00+02:00",
        ["2017-10-30T07:00Z", "2017-11-06T07:00Z"],
    ),
    ("b19", "Europe/Berlin", "0 12 * * 0", ONCE, "2022-03-24T12:00+01:00", ["2022-03-27T10:00Z"]),
    ("b19", "Europe/Belgrade", "55 * * * *", ONCE, "2026-03-29T23:55+02:00", ["2026-03-29T22:55Z"]),
    ("b19", "Europe/Belgrade", "55 * * * *", ONCE, "2026-03-31T23:55+02:00", ["2026-03-31T22:55Z"]),
    ("b21", "America/Mexico_City", "0 9 * * *", ONCE, "2023-06-01T00:00+00:00", ["2023-06-01T15:00Z"]),
    (
        "samoa",
        "Pacific/Apia",
        "0 9 * * *",
        ONCE,
        "2011-12-29T12:00-10:00",
        ["2011-12-30T10:00Z", "2011-12-30T19:00Z"],
    ),
    ("samoa", "Pacific/Apia", "0 9 * * *", LITERAL, "2011-12-29T12:00-10:00", ["2011-12-30T19:00Z"]),
]


@pytest.mark.parametrize(
    ("zone", "text", "rules", "after", "expected"),
    [case[1:] for case in CRON_CASES],
    ids=[f"{case} {zone} {text} {rules[0]}-{rules[1]}" for case, zone, text, rules, *_ in CRON_CASES],
)
def test_b13_to_b21(zone: str, text: str, rules: tuple[DstGap, DstFold], after: str, expected: list[str]) -> None:
    plan = PlanSpec(schedule=CronSchedule(cron=text, zone=zone), dst_gap=rules[0], dst_fold=rules[1])
    assert slots(plan, after, len(expected)) == expected


def test_b14_a_restart_inside_the_fold_changes_nothing() -> None:
    """From whatever instant of the night it is asked anew, the slot comes once."""
    plan = PlanSpec(schedule=CronSchedule(cron="30 1 * * *", zone="America/New_York"))
    evening = datetime(2025, 11, 1, 20, tzinfo=UTC)
    fired: set[datetime] = set()
    for minute in range(24 * 60):
        slot = next_slot(plan, evening + timedelta(minutes=minute))
        assert slot is not None
        fired.add(slot)
    assert sorted(fired) == [
        datetime(2025, 11, 2, 5, 30, tzinfo=UTC),
        datetime(2025, 11, 3, 6, 30, tzinfo=UTC),
    ]


@pytest.mark.parametrize("rules", [ONCE, LITERAL, LAST])
@pytest.mark.parametrize(("zone", "date"), [("Europe/Zurich", (2023, 10, 28)), ("Europe/Zurich", (2023, 3, 25))])
def test_b15_a_cadence_is_constant_through_the_whole_night(
    zone: str, date: tuple[int, int, int], rules: tuple[DstGap, DstFold]
) -> None:
    plan = PlanSpec(schedule=CronSchedule(cron="*/5 * * * *", zone=zone), dst_gap=rules[0], dst_fold=rules[1])
    at = datetime(*date, 18, tzinfo=UTC)
    for _ in range(200):
        slot = next_slot(plan, at)
        assert slot == at + timedelta(minutes=5)
        at = slot


def test_b15_an_instant_given_on_the_second_pass_is_taken_as_that() -> None:
    plan = PlanSpec(schedule=CronSchedule(cron="*/5 * * * *", zone="Europe/Zurich"))
    wall = datetime(2023, 10, 29, 2, 57, tzinfo=load_zone("Europe/Zurich"))
    assert next_slot(plan, wall) == datetime(2023, 10, 29, 1, 0, tzinfo=UTC)
    assert next_slot(plan, wall.replace(fold=1)) == datetime(2023, 10, 29, 2, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "day", "hour"),
    [
        ("America/Vancouver", (2026, 12, 1), 16),
        ("America/Edmonton", (2026, 12, 1), 15),
        ("America/Winnipeg", (2026, 12, 1), 14),
    ],
)
def test_b21_the_laws_of_the_installed_release_hold(zone: str, day: tuple[int, int, int], hour: int) -> None:
    """Laws of 2026 that older releases do not know: the system's data must not show through."""
    assert zone_data_version() >= "2026f"
    plan = PlanSpec(schedule=CronSchedule(cron="0 9 * * *", zone=zone))
    assert next_slot(plan, datetime(*day, tzinfo=UTC)) == datetime(*day, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "anchor", "expected"),
    [
        (2, "2026-03-08T01:30-05:00", ["2026-03-08T08:30Z", "2026-03-08T10:30Z"]),
        (24, "2026-10-31T12:00-04:00", ["2026-11-01T16:00Z", "2026-11-02T16:00Z"]),
    ],
)
def test_b23_an_interval_is_elapsed_time(hours: int, anchor: str, expected: list[str]) -> None:
    plan = PlanSpec(schedule=EverySchedule(every_seconds=hours * 3600, anchor=datetime.fromisoformat(anchor)))
    assert slots(plan, anchor, 2) == expected


def test_b23_an_anchor_in_a_zone_keeps_elapsed_time() -> None:
    anchor = datetime(2026, 3, 8, 1, 30, tzinfo=load_zone("America/New_York"))
    plan = PlanSpec(schedule=EverySchedule(every_seconds=7200, anchor=anchor))
    assert next_slot(plan, anchor) == datetime(2026, 3, 8, 8, 30, tzinfo=UTC)
