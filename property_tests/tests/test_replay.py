"""A broken machine prints a program, and that program, played by itself, breaks the machine likewise."""

import subprocess
import sys
import textwrap
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis.vendor.pretty import pretty

from property_tests.machine import play
from property_tests.mutant import Mutant
from property_tests.registry import MACHINES, MUTANTS, NEEDS_POSTGRES
from property_tests.replay import machine_of, main, program_of, replay
from property_tests.world.backends import Server
from tocsin.common.models import Overlap, Priority

ONE_OF_EACH = {mutant.machine: mutant for mutant in MUTANTS if mutant.machine.__name__ not in NEEDS_POSTGRES}

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
ON_POSTGRES = BY_NAME["a giving back takes what lives"]
IN_EVERY_STORE = BY_NAME["the body is not compared"]
CREATES = """state = {machine}()
state.create(requests=[Request(tenant=0, key='a', body=1)], order=0, forget=False)
state.create(requests=[Request(tenant=0, key='a', body=2)], order=0, forget=False)
state.teardown()
"""
"""One after the other: of what meets, PostgreSQL or a socket says who comes first, and that is not to be replayed."""
CREATING = sorted(NEEDS_POSTGRES - {ON_POSTGRES.machine.__name__})
ROOT = Path(__file__).parents[2]
PROGRAM = "state = FairnessMachine()\nstate.wait(seconds=3.0)\nstate.count_a_step()\nstate.teardown()\n"


def broken_by(mutant: Mutant) -> tuple[str, str]:
    """What the machine says, and what is printed of it."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        with pytest.raises(AssertionError) as broken:
            play(mutant.machine, mutant.profile, mutant.seed, shrink=False)
    return str(broken.value), "".join(traceback.format_exception(broken.value))


def check_replay(mutant: Mutant) -> None:
    """A program that breaks a machine without its guard breaks it again, and not with the guard in its place.

    Raises:
        AssertionError: otherwise.
    """
    said, printed = broken_by(mutant)
    program = program_of(printed)
    assert machine_of(program) is mutant.machine
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        with pytest.raises(AssertionError) as again:
            replay(program)
    assert str(again.value) == said
    replay(program)


@pytest.mark.parametrize("mutant", ONE_OF_EACH.values(), ids=lambda mutant: mutant.machine.__name__)
def test_a_printed_program_breaks_its_machine_again(mutant: Mutant) -> None:
    check_replay(mutant)


@pytest.fixture(scope="module")
def server(open_tmp_path: Path) -> Iterator[Server]:
    with Server.running(open_tmp_path / "worlds of programs") as running:
        yield running


@pytest.mark.usefixtures("server")
def test_a_printed_program_breaks_its_machine_on_postgres_again() -> None:
    check_replay(ON_POSTGRES)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("machine", CREATING)
def test_a_program_of_creates_breaks_its_machine_on_postgres(machine: str) -> None:
    program = CREATES.format(machine=machine)
    with pytest.MonkeyPatch.context() as patch:
        IN_EVERY_STORE.apply(patch)
        with pytest.raises(AssertionError, match=r"promise 1: .* is answered with the task of another request"):
            replay(program)
    replay(program)


def test_every_machine_has_a_program_that_is_replayed() -> None:
    played = {mutant.machine.__name__ for mutant in (*ONE_OF_EACH.values(), ON_POSTGRES)}
    assert played | set(CREATING) == MACHINES.keys()


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


def test_the_command_starts_a_postgres_where_a_machine_needs_one() -> None:
    program = "state = PostgresLifecycleMachine()\nstate.count_a_step()\nstate.teardown()\n"
    done = subprocess.run(
        [sys.executable, "-m", "property_tests.replay", "-"],
        cwd=ROOT,
        input=program,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "PostgresLifecycleMachine held\n"), done.stderr[-2_000:]


def test_what_is_no_program_is_not_played() -> None:
    assert program_of(PROGRAM) == PROGRAM
    for text in ("", "state.wait(seconds=3.0)\n", PROGRAM.replace("state.teardown()\n", "")):
        with pytest.raises(ValueError, match="no lines from"):
            program_of(text)
    with pytest.raises(ValueError, match="no machine of"):
        replay(PROGRAM.replace("FairnessMachine", "StrangeMachine"))


def test_a_program_names_the_members_of_enumerations() -> None:
    assert pretty([Overlap.SKIP, Priority.LOW]) == "[Overlap.SKIP, Priority.LOW]"
