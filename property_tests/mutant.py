"""A broken twin: one guard taken out of the product, and the machine that must notice."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from property_tests.machine import Machine, Profile, play


@dataclass(frozen=True, slots=True)
class Mutant:
    """`apply` takes one guard out by patching the product's own code; nothing in the product knows of it.

    `promise`: the number of the promise that must be seen broken. `profile`: in what the machine must find it.
    """

    name: str
    promise: int
    machine: type[Machine]
    apply: Callable[[pytest.MonkeyPatch], None]
    profile: Profile
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Caught:
    """`found` is the first line of what the machine said; `examples` how many programs it took."""

    found: str
    examples: int


def hunt(mutant: Mutant) -> Caught | None:
    """Runs the mutant's machine from its seed; None where it notices nothing.

    Only a failed assertion counts: a mutant that merely crashes proves nothing.
    """
    name = mutant.machine.__name__
    before = Machine.examples[name]
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        try:
            play(mutant.machine, mutant.profile, mutant.seed, shrink=False)
        except AssertionError as error:
            said = str(error).strip().splitlines()
            return Caught(said[0] if said else type(error).__name__, Machine.examples[name] - before)
    return None
