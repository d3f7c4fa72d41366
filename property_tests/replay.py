"""`python -m property_tests.replay FILE`: plays the program that a broken machine has printed.

FILE is whatever holds the program: a script that was copied, the deep run's output, or pytest's (`-`: standard input).
Of it the lines from `state = SomeMachine()` to `state.teardown()` are played, the first such program of several.
"""

import argparse
import datetime
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import property_tests
from property_tests import plan_drafts
from property_tests.machine import Machine
from property_tests.registry import MACHINES, servers_of
from tocsin.common import models

_FIRST = re.compile(r"state = (\w+)\(\)$")
_LAST = "state.teardown()"


def program_of(text: str) -> str:
    """The first program in a text, whatever stands before each of its lines.

    Raises:
        ValueError: there is none.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if (found := _FIRST.search(line)) is not None:
            rest = [each[found.start() :] for each in lines[number:]]
            if _LAST in rest:
                return "\n".join(rest[: rest.index(_LAST) + 1]) + "\n"
    raise ValueError(f"no lines from `state = ...()` to `{_LAST}`")


def machine_of(program: str) -> type[Machine]:
    """The machine that a program is of.

    Raises:
        ValueError: there is none of that name.
    """
    found = _FIRST.match(program.partition("\n")[0])
    if found is None or found[1] not in MACHINES:
        raise ValueError(f"no machine of {', '.join(MACHINES)} is made in the first line")
    return MACHINES[found[1]][0]


def names_of(machine: type[Machine]) -> dict[str, Any]:
    """What a program of this machine may name: what the modules know in which its rules stand."""
    names: dict[str, Any] = {**vars(models), **vars(plan_drafts)}
    for each in reversed(machine.__mro__):
        if each.__module__.startswith("property_tests."):
            names |= vars(sys.modules[each.__module__])
    return {**names, "datetime": datetime, "property_tests": property_tests}


def replay(program: str) -> None:
    """Plays a program to its end. One that needs PostgreSQL needs a running `Server`.

    Raises:
        AssertionError, or whatever the machine was broken by.
    """
    names = names_of(machine_of(program))
    body = program.removesuffix(f"{_LAST}\n")
    try:
        exec(compile(body, "<program>", "exec"), names)
    finally:
        if "state" in names:  # after a failure too: it holds loops, and the crash points' handler
            names["state"].teardown()


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, and 1 where the program breaks its machine."""
    parser = argparse.ArgumentParser(prog="property_tests.replay", description=__doc__)
    parser.add_argument("file")
    options = parser.parse_args(arguments)
    program = program_of(sys.stdin.read() if options.file == "-" else Path(options.file).read_text())
    machine = machine_of(program)
    with servers_of([machine.__name__]):
        try:
            replay(program)
        except Exception as error:
            print(f"{machine.__name__} is broken: {str(error) or type(error).__name__}")
            raise
    print(f"{machine.__name__} held")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
