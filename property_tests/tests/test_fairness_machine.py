"""The fairness machine finds nothing, in seconds; the deep run is a command. And what it takes for fair is."""

import pytest

from property_tests.fairness import PROCESS_CAP, FairnessMachine, fair_shares
from property_tests.fairness_mirror import Limits
from property_tests.machine import Profile, play


def test_promises_9_and_10_hold_for_every_choice() -> None:
    play(FairnessMachine, Profile(30, 40), 9)


def test_fair_shares_are_by_weight_and_leave_no_slot_idle() -> None:
    free = [Limits(1.0, 99, None), Limits(2.0, 99, None), Limits(3.0, 99, None)]
    assert fair_shares(free) == pytest.approx([2.0, 4.0, 6.0])
    capped = [Limits(1.0, 99, None), Limits(2.0, 99, 1), Limits(3.0, 99, None)]
    assert fair_shares(capped) == pytest.approx([2.5, 2.0, 7.5])
    assert sum(fair_shares(free)) == sum(fair_shares(capped)) == PROCESS_CAP
    assert fair_shares([Limits(1.0, 2, None)]) == [2.0]
