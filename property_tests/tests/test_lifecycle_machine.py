"""The lifecycle machine for a minute; `python -m property_tests.deep` runs it for as long as you like."""

from pathlib import Path

from property_tests.lifecycle import LifecycleMachine, PostgresLifecycleMachine
from property_tests.machine import Machine, Profile, play
from property_tests.world.backends import Server
from property_tests.world.struck import STRUCK


def test_the_promises_hold_in_memory() -> None:
    before, struck = Machine.steps["LifecycleMachine"], STRUCK.copy()
    play(LifecycleMachine, Profile(25, 50), 1)
    assert Machine.steps["LifecycleMachine"] - before > 500
    assert len(STRUCK - struck) > 40  # of some 140 blows; that each can strike is for test_lifecycle_points.py


def test_the_promises_hold_on_postgres(open_tmp_path: Path) -> None:
    with Server.running(open_tmp_path / "worlds"):
        play(PostgresLifecycleMachine, Profile(5, 40), 1)
