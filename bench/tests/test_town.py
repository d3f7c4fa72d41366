"""The town has the shares of the load model at every scale, and its crons meet when they should: counted by hand."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID, uuid4

import pytest

from bench.town import (
    PRIORITIES,
    RHYTHMS,
    Rhythm,
    Town,
    cron_texts,
    make_town,
    mix,
    next_meeting,
    shared_out,
)
from tocsin.common.models import AtSchedule, CronSchedule, Priority

MEETING = datetime(2026, 3, 1, 9, 13, tzinfo=UTC)
FIRST = MEETING - timedelta(seconds=60)
MINUTE = timedelta(minutes=1)


@pytest.fixture(scope="module")
def whole() -> Town:
    return make_town(1, 1.0, FIRST, MEETING, peak=True)


T = TypeVar("T")


def percents(counts: Counter[T]) -> dict[T, float]:
    return {thing: 100 * count / counts.total() for thing, count in counts.items()}


def test_the_whole_town_has_the_shares_of_the_model(whole: Town) -> None:
    assert (whole.tenants, len(whole.tasks)) == (1_000, 50_000)
    assert percents(Counter(task.rhythm for task in whole.tasks)) == RHYTHMS
    assert percents(Counter(task.manner for task in whole.tasks)) == mix(1.0)
    assert percents(Counter(task.plan.priority for task in whole.tasks)) == PRIORITIES
    of_tenants = Counter(task.tenant for task in whole.tasks)
    assert [count for _, count in of_tenants.most_common(11)] == [*[2_000] * 10, of_tenants[10]]
    assert {of_tenants[tenant] for tenant in range(10, 1_000)} == {30, 31}
    assert len({task.id for task in whole.tasks}) == 50_000


def test_who_has_what_is_mixed(whole: Town) -> None:
    """The parts are independent: critical tasks are in every rhythm, slow endpoints at every large tenant."""
    critical = Counter(task.rhythm for task in whole.tasks if task.plan.priority is Priority.CRITICAL)
    assert {rhythm: round(share) for rhythm, share in percents(critical).items()} == pytest.approx(RHYTHMS, abs=3)
    slow = Counter(task.tenant for task in whole.tasks if task.manner == "10000-31000ms")
    assert all(slow[tenant] == pytest.approx(100, abs=45) for tenant in range(10))


@pytest.mark.parametrize("scale", [0.002, 0.01, 0.1])
def test_shares_are_right_at_small_scales(scale: float) -> None:
    town = make_town(1, scale, FIRST, MEETING, peak=True)
    assert len(town.tasks) == round(50_000 * scale)
    assert percents(Counter(task.rhythm for task in town.tasks)) == pytest.approx(RHYTHMS, abs=1)
    largest = max(1, round(10 * scale))
    assert sum(task.tenant < largest for task in town.tasks) == 0.4 * len(town.tasks)
    assert {task.tenant for task in town.tasks} == set(range(town.tenants))


def due_at_once(town: Town, instant: datetime) -> int:
    """Counted without the product: by what a rhythm means, and by the instants of one-off tasks."""
    minutes = (instant - MEETING) // MINUTE
    if (instant - MEETING) % MINUTE:
        due = set()
    else:
        due = {
            rhythm
            for rhythm, period in (
                (Rhythm.MINUTE, 1),
                (Rhythm.FIVE_MINUTES, 5),
                (Rhythm.HOURLY, 60),
                (Rhythm.DAILY, 1440),
            )
            if minutes % period == 0
        }
    one_off = sum(
        isinstance(task.plan.schedule, AtSchedule) and task.plan.schedule.at == instant for task in town.tasks
    )
    return sum(task.rhythm in due for task in town.tasks) + one_off


def test_what_is_due_when(whole: Town) -> None:
    expected = whole.expected(FIRST, MEETING + 65 * MINUTE)
    due = Counter(slot for _, slot in expected)
    by_hand = {
        MEETING - MINUTE: 1_000,
        MEETING: 30_000,
        MEETING + 5 * MINUTE: 5_000,
        MEETING + 9 * MINUTE: 1_000,
        MEETING + 60 * MINUTE: 15_000,
        MEETING + timedelta(seconds=30): 0,
    }
    for instant, crons in by_hand.items():
        assert crons <= due[instant] <= crons + 25
        assert due[instant] == due_at_once(whole, instant)
    one_off = {task.id for task in whole.tasks if task.rhythm is Rhythm.ONE_OFF}
    assert sum(task_id in one_off for task_id, _ in expected) == 20_000
    assert all(due_at == slot.timestamp() for (_, slot), due_at in expected.items())


def test_on_an_ordinary_day_hourly_and_daily_tasks_keep_away() -> None:
    town = make_town(1, 0.1, FIRST, MEETING, peak=False)
    due = Counter(slot for _, slot in town.expected(FIRST, MEETING + 10 * MINUTE))
    assert 500 <= due[MEETING] <= 505
    assert max(due.values()) <= 505
    assert len(town.expected(MEETING, MEETING)) == due[MEETING]


def test_cron_texts_are_real_ones() -> None:
    assert cron_texts(MEETING, peak=True) == {
        Rhythm.MINUTE: "* * * * *",
        Rhythm.FIVE_MINUTES: "3-59/5 * * * *",
        Rhythm.HOURLY: "13 * * * *",
        Rhythm.DAILY: "13 9 * * *",
    }
    off_the_minute = MEETING.replace(hour=23, minute=59, second=41)
    assert cron_texts(off_the_minute, peak=True)[Rhythm.DAILY] == "41 59 23 * * *"
    assert cron_texts(off_the_minute, peak=False)[Rhythm.DAILY] == "41 29 12 * * *"


@pytest.mark.parametrize("meeting", [MEETING.replace(hour=23, minute=59), MEETING.replace(minute=0, second=7)])
def test_they_meet_wherever_the_meeting_is(meeting: datetime) -> None:
    town = make_town(1, 0.01, meeting - MINUTE, meeting, peak=True)
    assert 300 <= len(town.expected(meeting, meeting)) <= 302
    assert len(town.expected(meeting + timedelta(seconds=1), meeting + timedelta(seconds=59))) < 10


def test_a_seed_makes_the_same_town_again() -> None:
    town = make_town(1, 0.02, FIRST, MEETING, peak=True)
    assert make_town(1, 0.02, FIRST, MEETING, peak=True) == town
    assert make_town(2, 0.02, FIRST, MEETING, peak=True) != town


def test_the_meeting_is_the_next_full_minute_far_enough_ahead() -> None:
    ahead = timedelta(seconds=60)
    assert next_meeting(MEETING, ahead) == MEETING + MINUTE
    assert next_meeting(MEETING + timedelta(microseconds=1), ahead) == MEETING + 2 * MINUTE
    assert next_meeting(MEETING + timedelta(seconds=59), ahead) == MEETING + 2 * MINUTE


def test_rounding_loses_nothing() -> None:
    for count in range(200):
        assert len(shared_out(count, RHYTHMS)) == count
    assert shared_out(5, {"a": 50, "b": 50}).count("a") in (2, 3)


def test_calls_and_how_they_may_end() -> None:
    town = make_town(1, 0.02, FIRST, MEETING, peak=True, patience=0.2)
    task = next(task for task in town.tasks if task.manner == "reset")
    call = town.call(task, "http://t1.tenants.test:8000/")
    assert call.url == "http://t1.tenants.test:8000/reset/"
    assert (call.timeout_seconds, call.retry.base_seconds, call.retry.max_attempts) == (6.0, 1.0, 3)
    ends = town.right_ends()
    assert ends(task.id, uuid4()) == {"dead"}
    fast = next(task for task in town.tasks if task.manner == "tail")
    assert ends(fast.id, uuid4()) == {"succeeded"}
    flaky = next(task for task in town.tasks if task.manner == "flaky")
    rng = random.Random(1)
    runs = [ends(flaky.id, UUID(int=rng.getrandbits(128))) for _ in range(2_000)]
    assert runs.count(frozenset({"dead"})) / len(runs) == pytest.approx(0.3**3, abs=0.012)


def test_one_tenants_endpoints_may_be_made_to_hang() -> None:
    town = make_town(1, 0.02, FIRST, MEETING, peak=False).with_manner(0, "hang")
    assert {task.manner for task in town.tasks if task.tenant == 0} == {"hang"}
    assert "hang" not in {task.manner for task in town.tasks if task.tenant != 0}
    assert {type(task.plan.schedule) for task in town.tasks} == {AtSchedule, CronSchedule}
