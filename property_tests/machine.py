"""What all state machines here share: steps and examples are counted, they run from a seed, programs can be replayed.

A seed and a profile stand for the same programs in every process. Hypothesis alone does not see to that: it draws at
times a number that stands in the source of whatever module is loaded by then, so that a test run by itself, a test run
among others and the command would each play other programs, and so would each after any edit.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test
from hypothesis.vendor import pretty


class Machine(RuleBasedStateMachine):
    """`steps` and `examples` count what all machines of a class did, shrinking included."""

    steps: ClassVar[Counter[str]] = Counter()
    examples: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        Machine.examples[type(self).__name__] += 1

    @invariant()
    def count_a_step(self) -> None:
        Machine.steps[type(self).__name__] += 1


@dataclass(frozen=True, slots=True)
class Profile:
    """How long a machine is run: `examples` programs of at most `steps` rules each."""

    examples: int
    steps: int


def play(
    machine: type[Machine],
    profile: Profile,
    number: int,
    *,
    shrink: bool = True,
    verbosity: Verbosity = Verbosity.normal,
) -> None:
    """Runs a machine from the seed `number`: the same seed and profile, the same programs.

    Raises:
        AssertionError, or whatever a rule or an invariant raised: the smallest program found that breaks the machine
        is in its notes, as a script that `property_tests.replay` plays.
    """
    phases = [Phase.explicit, Phase.generate] + ([Phase.shrink] if shrink else [])
    wanted = settings(
        max_examples=profile.examples,
        stateful_step_count=profile.steps,
        phases=phases,
        database=None,
        deadline=None,
        print_blob=True,
        verbosity=verbosity,
        suppress_health_check=list(HealthCheck),
    )
    with _numbers_of_the_source_left_out():
        run_state_machine_as_test(seed(number)(type(machine.__name__, (machine,), {})), settings=wanted)


@contextmanager
def _numbers_of_the_source_left_out() -> Iterator[None]:
    providers.CONSTANTS_CACHE.cache.clear()
    try:
        with patch.object(providers, "_get_local_constants", Constants):
            yield
    finally:
        providers.CONSTANTS_CACHE.cache.clear()


def _as_in_source(value: Enum, printer: pretty.RepresentationPrinter, _cycle: bool) -> None:
    printer.text(f"{type(value).__name__}.{value.name}")


for kind in ("StrEnum", "IntEnum"):  # else printed as the texts and numbers that they are too, and not to be replayed
    pretty.for_type_by_name("enum", kind, _as_in_source)
