"""A broken machine prints a program, and that program, played by itself, breaks the machine likewise."""

import textwrap
import traceback
from pathlib import Path

import pytest
from hypothesis.vendor.pretty import pretty

from property_tests.machine import play
from property_tests.mutant import Mutant
from property_tests.registry import MUTANTS, NEEDS_POSTGRES
from property_tests.replay import machine_of, main, program_of, replay
from tocsin.common.models import Overlap, Priority

ONE_OF_EACH = {mutant.machine: mutant for mutant in MUTANTS if mutant.machine.__name__ not in NEEDS_POSTGRES}
PROGRAM = "state = FairnessMachine()\nstate.wait(seconds=3.0)\nstate.count_a_step()\nstate.teardown()\n"


def broken_by(mutant: Mutant) -> tuple[str, str]:
    """What the machine says, and what is printed of it."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        with pytest.raises(AssertionError) as broken:
            play(mutant.machine, mutant.profile, mutant.seed, shrink=False)
    return str(broken.value), "".join(traceback.format_exception(broken.value))


@pytest.mark.parametrize("mutant", ONE_OF_EACH.values(), ids=lambda mutant: mutant.machine.__name__)
def test_a_printed_program_breaks_its_machine_again_and_no_other(mutant: Mutant) -> None:
    said, printed = broken_by(mutant)
    program = program_of(printed)
    assert machine_of(program) is mutant.machine
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        with pytest.raises(AssertionError) as again:
            replay(program)
    assert str(again.value) == said
    replay(program)  # with the guard in its place it holds


def test_the_command_plays_what_was_copied_with_all_that_stands_around_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "failure.txt"
    file.write_text(
        "E   AssertionError: promise 9\n" + textwrap.indent(PROGRAM, "E       ") + "E   You can reproduce\n"
    )
    assert main([str(file)]) == 0
    assert capsys.readouterr().out == "FairnessMachine held\n"
    file.write_text(file.read_text().replace("seconds=3.0", "seconds=None"))
    with pytest.raises(TypeError):
        main([str(file)])
    assert capsys.readouterr().out.startswith("FairnessMachine is broken: ")


def test_what_is_no_program_is_not_played() -> None:
    assert program_of(PROGRAM) == PROGRAM
    for text in ("", "state.wait(seconds=3.0)\n", PROGRAM.replace("state.teardown()\n", "")):
        with pytest.raises(ValueError, match="no lines from"):
            program_of(text)
    with pytest.raises(ValueError, match="no machine of"):
        replay(PROGRAM.replace("FairnessMachine", "StrangeMachine"))


def test_a_program_names_the_members_of_enumerations() -> None:
    assert pretty([Overlap.SKIP, Priority.LOW]) == "[Overlap.SKIP, Priority.LOW]"
