"""The move machine finds nothing, in seconds; the deep run is a command."""

from property_tests.machine import Profile, play
from property_tests.moves import MoveMachine


def test_promises_1_2_and_10_hold_while_tenants_and_shards_move() -> None:
    play(MoveMachine, Profile(30, 40), 10)
