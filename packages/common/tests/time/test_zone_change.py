"""The next slot under new zone rules: laws known in time, and laws that the data learnt of too late (case B21).

The rules in use are those of the installed release; what an older one said is given as instants.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tocsin.common.models import CronSchedule, PlanSpec
from tocsin.common.time import zone_change
from tocsin.common.time.schedule import next_slot
from tocsin.common.time.zone_change import slot_by_new_rules

LONG_AGO = "2026-01-01T00:00Z"
Answer = Callable[[PlanSpec, datetime | None, datetime | None, datetime, datetime], datetime | None]


def at(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def plan(cron: str = "0 9 * * *", zone: str = "America/Vancouver", **changes: Any) -> PlanSpec:
    return PlanSpec(schedule=CronSchedule(cron=cron, zone=zone), **changes)


# Vancouver's 09:00 is 16:00Z on these days; the older release said 17:00Z. Kolkata's is 03:30Z in every release.
CASES: dict[str, tuple[PlanSpec, str | None, str | None, str, str, str | None]] = {
    # plan, slot, last_slot, since, now, expected
    "a law known in time": (
        plan(),
        "2026-12-01T17:00Z",
        "2026-11-30T16:00Z",
        LONG_AGO,
        "2026-11-30T18:00Z",
        "2026-12-01T16:00Z",
    ),
    "nothing has changed": (
        plan(),
        "2026-12-01T16:00Z",
        "2026-11-30T16:00Z",
        LONG_AGO,
        "2026-11-30T18:00Z",
        "2026-12-01T16:00Z",
    ),
    "the first slot of a task": (
        plan(),
        "2026-12-01T17:00Z",
        None,
        "2026-11-30T17:30Z",
        "2026-11-30T18:00Z",
        "2026-12-01T16:00Z",
    ),
    "today's has passed by the new rules, and not by the old": (
        plan(),
        "2026-12-01T17:00Z",
        "2026-11-30T17:00Z",
        LONG_AGO,
        "2026-12-01T16:30Z",
        "2026-12-01T16:00Z",
    ),
    "a task's first has passed by the new rules": (
        plan(),
        "2026-12-01T17:00Z",
        None,
        "2026-12-01T08:00Z",
        "2026-12-01T16:30Z",
        "2026-12-01T16:00Z",
    ),
    "it had passed when the task was made": (
        plan(),
        "2026-12-01T17:00Z",
        None,
        "2026-12-01T16:10Z",
        "2026-12-01T16:30Z",
        "2026-12-02T16:00Z",
    ),
    "today's has fired too early, and is not fired again": (
        plan(zone="Asia/Kolkata"),
        "2026-12-02T02:30Z",
        "2026-12-01T02:30Z",
        LONG_AGO,
        "2026-12-01T03:00Z",
        "2026-12-02T03:30Z",
    ),
    "a slot that was skipped ahead of time is not planned again": (
        plan(zone="Asia/Kolkata"),
        "2026-12-03T02:30Z",
        "2026-12-02T02:30Z",
        LONG_AGO,
        "2026-12-01T12:00Z",
        "2026-12-03T03:30Z",
    ),
    "the other slots of the day stay": (
        plan("0 9,21 * * *", "Asia/Kolkata"),
        "2026-12-01T14:30Z",
        "2026-12-01T02:30Z",
        LONG_AGO,
        "2026-12-01T03:00Z",
        "2026-12-01T15:30Z",
    ),
    "an edit's new schedule has no slot before the edit": (
        plan("0 11,13 * * *", "Asia/Kolkata"),
        "2026-12-01T07:30Z",
        "2026-12-01T03:30Z",
        "2026-12-01T06:30Z",
        "2026-12-01T07:00Z",
        "2026-12-01T07:30Z",
    ),
    "the old rules left no slot before the end": (
        plan(end=datetime(2026, 12, 1, 16, 30, tzinfo=UTC)),
        None,
        "2026-11-30T17:00Z",
        LONG_AGO,
        "2026-11-30T18:00Z",
        "2026-12-01T16:00Z",
    ),
    "the last slot before the end has fired too early": (
        plan(zone="Asia/Kolkata", end=datetime(2026, 12, 1, 4, tzinfo=UTC)),
        None,
        "2026-12-01T02:30Z",
        LONG_AGO,
        "2026-12-01T03:00Z",
        None,
    ),
    "the new rules leave none before the end": (
        plan(zone="Asia/Kolkata", end=datetime(2026, 12, 1, 3, tzinfo=UTC)),
        "2026-12-01T02:30Z",
        "2026-11-30T02:30Z",
        LONG_AGO,
        "2026-12-01T01:00Z",
        None,
    ),
    "every half hour follows elapsed time": (
        plan("*/30 * * * *", "Asia/Kolkata"),
        "2026-12-01T03:15Z",
        "2026-12-01T02:45Z",
        LONG_AGO,
        "2026-12-01T02:50Z",
        "2026-12-01T03:00Z",
    ),
}


def faults(answer: Answer) -> list[str]:
    """The cases that an answer gets wrong."""
    wrong = []
    for name, (spec, slot, last_slot, since, now, expected) in CASES.items():
        since_at, now_at = at(since), at(now)
        assert since_at is not None
        assert now_at is not None
        if answer(spec, at(slot), at(last_slot), since_at, now_at) != at(expected):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("name", CASES)
def test_the_slot_by_new_rules(name: str) -> None:
    assert name not in faults(slot_by_new_rules)


def plain_rule(
    spec: PlanSpec, _slot: datetime | None, last_slot: datetime | None, _since: datetime, now: datetime
) -> datetime | None:
    return next_slot(spec, now if last_slot is None else max(now, last_slot))


def blind_to_edits(
    spec: PlanSpec, slot: datetime | None, last_slot: datetime | None, _since: datetime, now: datetime
) -> datetime | None:
    first = at("1970-01-02T00:00Z")
    assert first is not None
    return slot_by_new_rules(spec, slot, last_slot, first, now)


def test_broken_rules_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(plain_rule) == [
        "today's has passed by the new rules, and not by the old",
        "a task's first has passed by the new rules",
        "today's has fired too early, and is not fired again",
        "a slot that was skipped ahead of time is not planned again",
        "the other slots of the day stay",
        "the last slot before the end has fired too early",
    ]
    assert "an edit's new schedule has no slot before the edit" in faults(blind_to_edits)
    monkeypatch.setattr(zone_change, "latest_slot", lambda _plan, until: until)
    assert "today's has fired too early, and is not fired again" in faults(slot_by_new_rules)
