"""A seed stands for the same programs in every process, whatever the order of its sets, and whatever else is loaded."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EACH = """
import sys
from hypothesis import Verbosity
from property_tests.machine import Profile, play
from property_tests.registry import MACHINES, NEEDS_POSTGRES
from tocsin.common.store.memory.database import MemoryDatabase

async def told(database, real=MemoryDatabase.round_trip):
    print("statement", sys._getframe(1).f_code.co_name)
    await real(database)

MemoryDatabase.round_trip = told
for name in sorted(MACHINES.keys() - NEEDS_POSTGRES):
    print("machine", name)
    play(MACHINES[name][0], Profile(6, 25), 1, verbosity=Verbosity.debug)
"""
"""Every machine in memory: each choice, rule and argument, and each statement that reaches a store."""

A_SET_DECIDES = """
from hypothesis import Verbosity, strategies as st
from hypothesis.stateful import rule
from property_tests.machine import Machine, Profile, play

class SetMachine(Machine):
    @rule(word=st.sampled_from(list({"one", "two", "three", "four", "five", "six"})))
    def say(self, word):
        pass

play(SetMachine, Profile(6, 25), 1, verbosity=Verbosity.debug)
"""

ONE = """
from hypothesis import Verbosity, strategies as st
from hypothesis.stateful import rule
from property_tests import machine

class SmallMachine(machine.Machine):
    @rule(word=st.sampled_from(["one", "two"]))
    def say(self, word):
        pass

machine.play(SmallMachine, machine.Profile(200, 2), 1, verbosity=Verbosity.debug)
"""

AS_HYPOTHESIS_DOES = """
from contextlib import nullcontext
from property_tests import machine

machine._numbers_of_the_source_left_out = nullcontext
"""

OTHERS = "import full_of_numbers\n"

_ADDRESSES = re.compile(r"0x[0-9a-f]+|_cached_hash=-?\d+")
"""Of functions, in what Hypothesis says of rules; nothing goes by them."""


def lines_of(code: str, hash_seed: int, folder: Path) -> list[str]:
    """What a process of its own prints."""
    path = os.pathsep.join([str(ROOT), str(folder)])
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return _ADDRESSES.sub("-", done.stdout).splitlines()


def difference(one: list[str], other: list[str]) -> str | None:
    """The first line in which they part."""
    for number, (mine, its) in enumerate(zip(one, other, strict=False)):
        if mine != its:
            machine = next((line for line in one[number::-1] if line.startswith("machine ")), "-")
            return f"{machine}, line {number}: {mine!r}, and {its!r}"
    return None if len(one) == len(other) else f"{len(one)} lines, and {len(other)}"


@pytest.mark.timeout(240)
def test_the_same_programs_whatever_the_order_of_sets(tmp_path: Path) -> None:
    first = lines_of(EACH, 1, tmp_path)
    assert sum(line.startswith("statement ") for line in first) > 1_000
    assert difference(first, lines_of(EACH, 2, tmp_path)) is None


def test_a_machine_whose_choices_a_set_orders_is_seen(tmp_path: Path) -> None:
    assert difference(lines_of(A_SET_DECIDES, 1, tmp_path), lines_of(A_SET_DECIDES, 2, tmp_path)) is not None


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A folder with a module that has nothing to do with the machine."""
    (tmp_path / "full_of_numbers.py").write_text(f"NUMBERS = {list(range(100, 255))}\n")
    return tmp_path


def test_the_same_programs_whatever_else_is_loaded(others: Path) -> None:
    assert difference(lines_of(ONE, 0, others), lines_of(OTHERS + ONE, 0, others)) is None


def test_programs_that_depend_on_what_is_loaded_are_seen(others: Path) -> None:
    alone = lines_of(AS_HYPOTHESIS_DOES + ONE, 0, others)
    assert difference(alone, lines_of(OTHERS + AS_HYPOTHESIS_DOES + ONE, 0, others)) is not None
