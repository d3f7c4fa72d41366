"""A deep run says what it has played, whenever it ends; and what broke a machine, so that it can be played again."""

import json
from pathlib import Path
from typing import Any

import pytest

from property_tests import deep
from property_tests.deep import main, play_deep, printed_program
from property_tests.fairness import FairnessMachine
from property_tests.machine import Machine, Profile
from property_tests.machine import play as real_play
from property_tests.mutants.fairness import weights_are_ignored
from property_tests.registry import MACHINES
from property_tests.replay import replay

FEW = Profile(5, 10)


def report_in(folder: Path) -> Any:
    return json.loads((folder / "deep.json").read_text())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines in portions of a second at most."""
    for name in ("FairnessMachine", "LeaseMachine"):
        monkeypatch.setitem(MACHINES, name, (MACHINES[name][0], FEW, 1))


def test_a_machine_is_played_in_portions_until_it_has_made_its_steps() -> None:
    played = list(play_deep("FairnessMachine", FairnessMachine, FEW, 60, 7))
    assert [one.seed for one in played] == [7 + number for number in range(len(played))]
    assert [one.portions for one in played] == [1 + number for number in range(len(played))]
    assert played[-1].steps >= 60 > played[-2].steps
    assert played[-1].examples > played[0].examples > 0
    assert played[-1].broken is played[-1].program is None


def test_the_report_holds_the_program_and_the_seed_that_broke_a_machine(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        weights_are_ignored(patch)
        asked = ["--steps", "200", "--seed", "1", "--machine", "FairnessMachine", "--machine", "LeaseMachine"]
        assert main([*asked, "--report", str(tmp_path)]) == 1
        report = report_in(tmp_path)
        broken, held = report["machines"]
        assert broken["broken"].startswith("promise 10")
        with pytest.raises(AssertionError, match="promise 10"):
            replay(broken["program"])
        with pytest.raises(AssertionError, match="promise 10"):
            real_play(FairnessMachine, FEW, broken["seed"])
    replay(broken["program"])  # with the guard in its place it holds
    assert (held["machine"], held["broken"], held["program"]) == ("LeaseMachine", None, None)
    assert (report["finished"], report["steps"], report["seed"]) == (True, 200, 1)


def test_a_run_that_is_ended_early_says_what_was_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [1, 1, 1]

    def interrupted(machine: type[Machine], profile: Profile, number: int) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        real_play(machine, profile, number)

    monkeypatch.setattr(deep, "play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(["--steps", "4000", "--machine", "FairnessMachine", "--report", str(tmp_path)])
    report = report_in(tmp_path)
    assert report["finished"] is False
    (one,) = report["machines"]
    assert one["portions"] == one["seed"] == 3
    assert 0 < one["steps"] < 4000
    assert [each.name for each in tmp_path.iterdir()] == ["deep.json"]


def test_an_error_without_a_program_has_none() -> None:
    assert printed_program(AssertionError("promise 1")) is None
