"""What every state machine here shares: its steps and examples are counted, and it runs from a seed."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test


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


def play(machine: type[Machine], profile: Profile, number: int, *, shrink: bool = True) -> None:
    """Runs a machine from the seed `number`: the same seed and profile, the same programs.

    Raises:
        AssertionError, or whatever a rule or an invariant raised: the smallest program found that breaks the machine
        is printed, as a script that replays it.
    """
    phases = [Phase.explicit, Phase.generate] + ([Phase.shrink] if shrink else [])
    wanted = settings(
        max_examples=profile.examples,
        stateful_step_count=profile.steps,
        phases=phases,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(type(machine.__name__, (machine,), {})), settings=wanted)
