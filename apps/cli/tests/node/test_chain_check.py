"""The check that all tests here rest on finds what it is there to find."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from chain_check import TaskRows, call_faults, chain_faults

NOON = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def a_row(number: int, slot: int, last: int | None, **values: Any) -> dict[str, Any]:
    return {
        "run_id": UUID(int=number),
        "slot": at(slot),
        "last_slot": None if last is None else at(last),
        "kind": "slot",
        "state": "succeeded",
        "sent": True,
        "stale": False,
        **values,
    }


WHOLE = TaskRows(
    pending=[a_row(9, 9, 8, kind="next", state=None)],
    running=[a_row(8, 8, 7)],
    history=[
        a_row(1, 1, None),
        a_row(2, 2, 1, state=None),
        a_row(2, 2, 1),
        a_row(3, 3, 2, until_slot=at(6), state="skipped", sent=False),
        a_row(7, 7, 6),
        a_row(7, 7, 6, state=None, stale=True),
    ],
)
CALLS = Counter({UUID(int=1): 1, UUID(int=2): 2, UUID(int=7): 1})


def test_a_whole_chain_has_no_fault() -> None:
    assert chain_faults(WHOLE) == []
    assert call_faults(WHOLE, CALLS) == []


def test_a_missing_slot_is_a_gap() -> None:
    assert chain_faults(replace(WHOLE, history=[*WHOLE.history[:3], *WHOLE.history[4:]]))[0].startswith("gap")
    assert chain_faults(replace(WHOLE, running=[]))[0].startswith("gap")


def test_a_slot_twice_is_a_repeat() -> None:
    again = replace(WHOLE, history=[*WHOLE.history, a_row(20, 7, 6)])
    assert any(fault.startswith("repeat") for fault in chain_faults(again))
    within = replace(WHOLE, history=[*WHOLE.history, a_row(20, 5, 4)])
    assert any(fault.startswith("repeat") for fault in chain_faults(within))


def test_next_rows_are_counted() -> None:
    assert chain_faults(replace(WHOLE, pending=[])) == ["0 next rows instead of 1"]
    assert chain_faults(replace(WHOLE, pending=[]), next_rows=0) == []
    two = [*WHOLE.pending, a_row(10, 10, 9, kind="next")]
    assert chain_faults(replace(WHOLE, pending=two)) == ["2 next rows instead of 1"]


def test_a_run_ends_once_and_then_stays_ended() -> None:
    twice = replace(WHOLE, history=[*WHOLE.history, a_row(7, 7, 6, state="dead")])
    assert any("ended 2 times" in fault for fault in chain_faults(twice))
    alive = replace(WHOLE, running=[*WHOLE.running, a_row(7, 7, 6)])
    assert any("goes on" in fault for fault in chain_faults(alive))


def test_calls_are_the_attempts_that_were_sent() -> None:
    assert call_faults(WHOLE, CALLS + Counter({UUID(int=7): 1}))
    assert call_faults(WHOLE, CALLS + Counter({UUID(int=7): 1}), after_failure=True)
    assert call_faults(WHOLE, CALLS - Counter({UUID(int=2): 1}))
    assert call_faults(WHOLE, CALLS - Counter({UUID(int=2): 1}), after_failure=True) == []
    assert call_faults(WHOLE, CALLS + Counter({UUID(int=3): 1}))
