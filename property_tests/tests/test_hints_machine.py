"""The hint machine in short."""

from property_tests.hints import EarlyHintMachine, HintMachine
from property_tests.machine import Profile, play

SEED = 20_260_312


def test_promise_11_no_index_makes_a_difference() -> None:
    play(HintMachine, Profile(examples=40, steps=20), SEED)


def test_promise_11_an_index_makes_runs_earlier_at_most() -> None:
    play(EarlyHintMachine, Profile(examples=25, steps=12), SEED)
