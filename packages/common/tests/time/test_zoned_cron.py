"""Cron in zones against a naive walk over UTC minutes, in every zone, and against cronsim.

Broken implementations must not pass the same check.
"""

import io
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import resources
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minute_walk import (
    ALL_MINUTES,
    DAY,
    DEFAULT,
    EVERY_DAY,
    FIVE_MINUTES,
    HALF_HOURS,
    HALF_PAST_TWO,
    HOUR,
    Next,
    Rules,
    Spec,
    assert_as_walked,
    assert_backward,
    assert_forward,
    changes,
    utc,
    walk,
    wall_at,
)
from tocsin.common.models import DstFold, DstGap
from tocsin.common.time import zones
from tocsin.common.time.cron import parse
from tocsin.common.time.zoned_cron import ZonedCron, zoned_cron
from tocsin.common.time.zones import zone, zone_names

SETTINGS = settings(max_examples=200, deadline=None, print_blob=True)


@st.composite
def values(draw: st.DrawFn, size: int) -> tuple[str, frozenset[int]]:
    """A field of minutes or hours: `*`, a step, a range, or a list."""
    form = draw(st.sampled_from("*/-,"))
    if form == "*":
        return "*", frozenset(range(size))
    if form == "/":
        step = draw(st.integers(1, size))
        return f"*/{step}", frozenset(range(0, size, step))
    if form == "-":
        low, high = sorted(draw(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))))
        return f"{low}-{high}", frozenset(range(low, high + 1))
    chosen = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4, unique=True))
    return ",".join(map(str, chosen)), frozenset(chosen)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    (minute, minutes), (hour, hours) = draw(values(60)), draw(values(24))
    weekdays = draw(st.just(EVERY_DAY) | st.frozensets(st.integers(0, 6), min_size=3))
    day = "*" if weekdays == EVERY_DAY else ",".join(map(str, sorted(weekdays)))
    fixed = minute[0] != "*" and hour[0] != "*"
    return Spec(f"{minute} {hour} * * {day}", minutes, hours, weekdays, fixed)


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, int]:
    """A zone and an instant of 1973 to 2150 in it: a change of its offset where its year has one."""
    name = draw(st.sampled_from(sorted(zone_names())))
    year = draw(st.integers(1973, 2150))
    found = list(changes(zone(name), utc(year, 1, 1), utc(year + 1, 1, 1)))
    if found:
        return name, draw(st.sampled_from(found))
    return name, utc(year, 1, 1) + 60 * draw(st.integers(0, 525_600))


ALL_RULES = st.tuples(st.sampled_from(DstGap), st.sampled_from(DstFold))


@SETTINGS
@given(specs(), moments(), ALL_RULES, st.integers(1, 30), st.integers(1, 30))
@example(ALL_MINUTES, ("Pacific/Apia", utc(2011, 12, 30, 10)), DEFAULT, 30, 30)
@example(ALL_MINUTES, ("Pacific/Kiritimati", utc(1994, 12, 31, 10)), (DstGap.SHIFT, DstFold.LAST), 20, 20)
@example(ALL_MINUTES, ("Antarctica/Vostok", utc(1994, 1, 31, 17)), (DstGap.SKIP, DstFold.LAST), 12, 12)
@example(ALL_MINUTES, ("Antarctica/Casey", utc(2018, 3, 10, 17)), DEFAULT, 9, 9)
@example(HALF_HOURS, ("Australia/Lord_Howe", utc(2026, 4, 4, 15)), DEFAULT, 9, 9)
@example(HALF_HOURS, ("Antarctica/Troll", utc(2026, 10, 25, 1)), (DstGap.SHIFT, DstFold.BOTH), 9, 9)
@example(FIVE_MINUTES, ("Europe/Dublin", utc(2026, 10, 25, 1)), DEFAULT, 9, 9)
@example(ALL_MINUTES, ("Africa/Casablanca", utc(2027, 2, 7, 2)), (DstGap.SHIFT, DstFold.LAST), 9, 9)
def test_agrees_with_the_walk(
    spec: Spec, moment: tuple[str, int], rules: Rules, hours_before: int, hours_after: int
) -> None:
    name, at = moment
    assert_as_walked(spec, name, at - hours_before * HOUR, at + hours_after * HOUR, rules)


def distinct_zones() -> list[str]:
    root = resources.files("tzdata") / "zoneinfo"
    return list({root.joinpath(*name.split("/")).read_bytes(): name for name in sorted(zone_names())}.values())


def test_every_change_of_2026_in_every_zone_agrees_with_the_walk() -> None:
    seen = 0
    for name in distinct_zones():
        for at in changes(zone(name), utc(2026, 1, 1), utc(2027, 1, 1)):
            seen += 1
            for rules in (DEFAULT, (DstGap.SHIFT, DstFold.LAST), (DstGap.SKIP, DstFold.BOTH)):
                assert_as_walked(HALF_HOURS, name, at - 3 * HOUR, at + 4 * HOUR, rules)
                assert_as_walked(once_a_day(zone(name), at), name, at - 3 * HOUR, at + 4 * HOUR, rules)
            assert_as_walked(FIVE_MINUTES, name, at - 3 * HOUR, at + 4 * HOUR, DEFAULT)
    assert seen > 100


def once_a_day(tz: ZoneInfo, change: int) -> Spec:
    """One wall time, shown ten minutes before the change; where it makes a fold, shown again after."""
    wall = wall_at(tz, change - 10 * 60)
    return Spec(
        f"{wall.minute} {wall.hour} * * *",
        frozenset({wall.minute}),
        frozenset({wall.hour}),
        EVERY_DAY,
        fixed=True,
    )


def zone_with_a_fold(at: int) -> ZoneInfo:
    """A TZif file (RFC 9636) with one summer time, an hour ahead of UTC, from April 2030 until `at`."""
    header = b"TZif2" + bytes(15)
    empty = header + struct.pack(">6L", 0, 0, 0, 0, 1, 4) + struct.pack(">lBB", 0, 0, 0) + b"AAA\0"
    transitions = struct.pack(">2q2B", utc(2030, 4, 1), at, 1, 0)
    types = struct.pack(">lBBlBB", 0, 0, 0, HOUR, 1, 4) + b"AAA\0BBB\0"
    full = header + struct.pack(">6L", 0, 0, 0, 2, 2, 8) + transitions + types
    return ZoneInfo.from_file(io.BytesIO(empty + full + b"\nAAA0\n"), key="UTC")


@pytest.mark.parametrize("at", [utc(2030, 12, 31, 23, 30), utc(2031, 1, 1, 0, 30)], ids=["after", "before"])
@pytest.mark.parametrize("fold", DstFold)
@pytest.mark.parametrize("minute_of_day", [0, 15, 29, 30, 31, 45, 75, 90, 1411, 1425])
def test_a_fold_with_a_pass_that_reaches_over_a_new_year(
    at: int, fold: DstFold, minute_of_day: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tz, rules = zone_with_a_fold(at), (DstGap.SHIFT, fold)
    monkeypatch.setattr(zones, "zone", lambda name: tz)
    monkeypatch.setattr(zones, "_segments_of_year", zones._segments_of_year.__wrapped__)
    hour, minute = divmod(minute_of_day, 60)
    text = f"{minute} {hour} * * *"
    spec = Spec(text, frozenset({minute}), frozenset({hour}), EVERY_DAY, fixed=True)
    assert list(changes(tz, at - DAY, at + DAY)) == [at]
    first, last = at - 30 * HOUR, at + 30 * HOUR
    expected = walk(spec, tz, first, last, rules)
    cron = ZonedCron(parse(text), "UTC", *rules)
    assert_forward(expected, first, last, cron.walk_on)
    assert_backward(expected, first, last, cron)
    assert cron.count(first, last) == len(expected)


def test_offsets_that_are_no_whole_minutes() -> None:
    """Monrovia kept -00:44:30 until 1972."""
    cron = zoned_cron("0 9 * * *", "Africa/Monrovia", *DEFAULT)
    assert cron.walk_on(utc(1971, 6, 1)) == utc(1971, 6, 1, 9, 44, 30)
    assert cron.walk_back(utc(1971, 6, 1, 9, 44, 29)) == utc(1971, 5, 31, 9, 44, 30)


@SETTINGS
@given(
    st.sampled_from(["30 2 29 2 *", "0 9 L * *", "30 2 * 3 0#2", "15 1 1-7 11 *", "*/20 1 * 11 0#1"]),
    st.sampled_from(["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "UTC", "Africa/Casablanca"]),
    ALL_RULES,
    st.integers(utc(1971, 1, 1), utc(2180, 1, 1)),
)
def test_far_jumps_lose_nothing(text: str, name: str, rules: Rules, at: int) -> None:
    """What lies between two slots is empty, judged by the count, which walks every segment."""
    cron = zoned_cron(text, name, *rules)
    for _ in range(3):
        found = cron.walk_on(at + 1)
        if found is None:
            break
        assert found > at
        assert cron.count(at + 1, found) == 1
        assert cron.walk_back(found) == found
        assert cron.count(found - 1, found) == 1
        previous = cron.walk_back(found - 1)
        assert previous is None or (previous < found and cron.count(previous, found) == 2)
        at = found


# Implementations with one fault each: the same check must refuse every one of them.


def fires_twice(spec: Spec, name: str) -> Next:
    return zoned_cron(spec.text, name, DstGap.SHIFT, DstFold.BOTH).walk_on


def drops_gaps(spec: Spec, name: str) -> Next:
    return zoned_cron(spec.text, name, DstGap.SKIP, DstFold.FIRST).walk_on


def naive_timedelta(spec: Spec, name: str) -> Next:
    """Wall-clock arithmetic, and PEP 495's default for what the wall clock lacks: 02:30 becomes 03:30."""
    expression, tz = parse(spec.text), zone(name)

    def next_from(instant: int) -> int | None:
        wall = wall_at(tz, instant).replace(tzinfo=UTC)
        local = expression.at_or_after(int(wall.timestamp()))
        assert local is not None
        return int(wall_at(ZoneInfo("UTC"), local).replace(tzinfo=tz).timestamp())

    return next_from


def stale_offset(spec: Spec, name: str) -> Next:
    """The offset of the instant asked, applied to the answer."""
    expression, tz = parse(spec.text), zone(name)

    def next_from(instant: int) -> int | None:
        offset = wall_at(tz, instant).utcoffset()
        assert offset is not None
        shift = offset // timedelta(seconds=1)
        local = expression.at_or_after(instant + shift)
        assert local is not None
        return local - shift

    return next_from


def all_as_fixed(spec: Spec, name: str) -> Next:
    """Treats a cadence as fixed times, so that it pauses for an hour."""
    text = spec.text.replace("*/5 * *", f"{','.join(map(str, range(0, 60, 5)))} 0-23 *")
    return zoned_cron(text, name, *DEFAULT).walk_on


def all_as_cadence(spec: Spec, name: str) -> Next:
    return zoned_cron(spec.text.replace("0,30 0-23", "*/30 *"), name, *DEFAULT).walk_on


def croniter_itself(spec: Spec, name: str) -> Next:
    def next_from(instant: int) -> int | None:
        found = croniter(spec.text, wall_at(zone(name), instant - 1)).get_next(datetime)
        return int(found.timestamp())

    return next_from


NEW_YORK_2025 = {"spring": utc(2025, 3, 9, 7), "autumn": utc(2025, 11, 2, 6)}


def check_twin(twin: Callable[[Spec, str], Next], spec: Spec, season: str) -> None:
    name, at = "America/New_York", NEW_YORK_2025[season]
    first, last = at - 4 * HOUR, at + 4 * HOUR
    expected = walk(spec, zone(name), first, last, DEFAULT)
    assert_forward(expected, first, last, twin(spec, name))


@pytest.mark.parametrize("season", NEW_YORK_2025)
@pytest.mark.parametrize("spec", [HALF_PAST_TWO, HALF_HOURS, FIVE_MINUTES], ids=lambda spec: spec.text)
def test_the_twin_check_passes_what_is_right(spec: Spec, season: str) -> None:
    check_twin(lambda spec, name: zoned_cron(spec.text, name, *DEFAULT).walk_on, spec, season)


@pytest.mark.parametrize(
    ("twin", "spec", "season"),
    [
        (fires_twice, HALF_HOURS, "autumn"),
        (drops_gaps, HALF_PAST_TWO, "spring"),
        (naive_timedelta, HALF_PAST_TWO, "spring"),
        (naive_timedelta, FIVE_MINUTES, "autumn"),
        (stale_offset, HALF_PAST_TWO, "spring"),
        (stale_offset, HALF_HOURS, "autumn"),
        (all_as_fixed, FIVE_MINUTES, "autumn"),
        (all_as_cadence, HALF_HOURS, "autumn"),
        (croniter_itself, HALF_HOURS, "autumn"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_broken_twins_are_caught(twin: Callable[[Spec, str], Next], spec: Spec, season: str) -> None:
    with pytest.raises(AssertionError):
        check_twin(twin, spec, season)


@SETTINGS
@given(
    st.sampled_from(["30 2 * * *", "30 1 * * *", "0 0 * * *", "30 1-3 * * *", "0,30 1,2 * * 0", "5 3 * * *"]),
    st.sampled_from(
        [
            "America/New_York",
            "Europe/Berlin",
            "Africa/Cairo",
            "Asia/Beirut",
            "America/Havana",
            "America/Santiago",
        ]
    ),
    st.integers(2024, 2050),
    st.data(),
)
def test_cronsim_agrees_on_fixed_times(text: str, name: str, year: int, data: st.DataObject) -> None:
    at = data.draw(st.sampled_from([*changes(zone(name), utc(year, 1, 1), utc(year + 1, 1, 1))] or [utc(year, 6, 1)]))
    after = at - 30 * HOUR
    cronsim = CronSim(text, wall_at(zone(name), after))
    cron = zoned_cron(text, name, *DEFAULT)
    for _ in range(8):
        found = cron.walk_on(after + 1)
        assert found is not None
        assert found == int(next(cronsim).timestamp())
        after = found


@SETTINGS
@given(
    st.sampled_from(["*/15 * * * *", "0 * * * *", "30 */1 * * *", "*/20 1-3 * * *", "10 */2 * * *"]),
    st.sampled_from(["America/New_York", "Europe/Berlin", "Europe/Zurich", "America/Los_Angeles"]),
    st.integers(2024, 2050),
    st.booleans(),
)
def test_cronsim_agrees_on_cadences(text: str, name: str, year: int, spring: bool) -> None:
    found = list(changes(zone(name), utc(year, 1, 1), utc(year + 1, 1, 1)))
    after = found[0 if spring else 1] - 6 * HOUR
    cronsim = CronSim(text, wall_at(zone(name), after))
    next_from = partial(zoned_cron(text, name, *DEFAULT).at_or_after, last=2**40)
    for _ in range(40):
        slot = next_from(after + 1)
        assert slot == int(next(cronsim).timestamp())
        after = slot
