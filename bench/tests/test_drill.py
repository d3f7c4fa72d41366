"""What the drill reads out of the endpoint's log."""

import math
from datetime import UTC, datetime
from uuid import UUID

import pytest

from bench.drill import Drilled, find
from bench.faults import FAULTS
from bench.ledger import Arrival, judge
from bench.load import Load, make_load
from tocsin.common.clock import ManualClock
from tocsin.common.ids import Ids

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
AT = FIRST.timestamp() + 5.0
CONCERNED, OTHER = UUID(int=1), UUID(int=2)


def the_load() -> Load:
    import random

    ids = Ids(ManualClock(FIRST), random.Random(1))
    return make_load("drill", ids, [CONCERNED, OTHER], 2, FIRST, 10, "http://127.0.0.1:1/")


def arrivals_of(load: Load, late: float = 0.0) -> list[Arrival]:
    """Every slot called once, `late` seconds late, by a run of its own."""
    return [
        Arrival(due + late, UUID(int=1000 + number), task, slot)
        for number, ((task, slot), due) in enumerate(sorted(load.expected().items(), key=lambda item: item[1]))
    ]


def drilled(load: Load, arrivals: list[Arrival]) -> Drilled:
    judgement = judge(load.expected(), arrivals, [])
    return find(FAULTS["kill-executor"], load, arrivals, judgement, AT, {CONCERNED})


def test_without_repeated_calls_nothing_was_called_again() -> None:
    load = the_load()
    found = drilled(load, arrivals_of(load))
    assert found.again == 0
    assert math.isnan(found.first_again)


def test_a_repeated_call_is_counted_and_timed_from_the_fault() -> None:
    load = the_load()
    arrivals = arrivals_of(load)
    before = max((a for a in arrivals if a.at <= AT), key=lambda a: a.at)
    again = Arrival(AT + 3.0, before.run_id, before.task_id, before.slot)
    found = drilled(load, [*arrivals, again])
    assert found.again == 1
    assert found.first_again == pytest.approx(3.0)


def test_calls_in_flight_at_the_fault_are_those_not_yet_answered_and_committed() -> None:
    load = the_load()
    arrivals = arrivals_of(load)
    expected = sum(1 for a in arrivals if AT - 1.1 < a.at <= AT)
    assert expected > 0
    assert drilled(load, arrivals).open_calls == expected


def test_where_calls_go_on_for_a_while_after_the_fault_those_in_flight_when_they_cease_count() -> None:
    load = the_load()
    kept = [a for a in arrivals_of(load) if a.at <= AT + 1.0 or a.at > AT + 4.0]
    last = max(a.at for a in kept if a.at <= AT + 1.0)
    assert drilled(load, kept).open_calls == sum(1 for a in kept if last - 1.1 < a.at <= last)


def test_the_delays_of_others_leave_out_the_tenant_concerned() -> None:
    load = the_load()
    tenant_of = dict(load.tasks)
    arrivals = [
        Arrival(a.at + (9.0 if tenant_of[a.task_id] == CONCERNED else 0.0), a.run_id, a.task_id, a.slot)
        for a in arrivals_of(load)
    ]
    assert max(drilled(load, arrivals).others) < 0.001


def test_the_short_form_plays_a_fault_that_kills() -> None:
    assert [fault.name for fault in FAULTS.values() if fault.short and fault.kills]
