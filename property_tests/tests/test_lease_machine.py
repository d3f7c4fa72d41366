"""The lease machine finds nothing, in seconds; the deep run is a command."""

from property_tests.lease import LeaseMachine
from property_tests.machine import Profile, play


def test_promises_6_to_8_hold_under_every_clock_and_every_cut() -> None:
    play(LeaseMachine, Profile(30, 40), 6)
