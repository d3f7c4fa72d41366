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


PORTIONS = 12


def hunt(mutant: Mutant) -> Caught | None:
    """Runs the mutant's machine from its seed, and from the next ones, a portion each; None where none noticed it.

    Only a failed assertion counts: a mutant that merely crashes proves nothing. The order of sets of texts changes from
    process to process, and with it what a seed comes to; hence the further portions.
    """
    name = mutant.machine.__name__
    before = Machine.examples[name]
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        for number in range(mutant.seed, mutant.seed + PORTIONS):
            try:
                play(mutant.machine, mutant.profile, number, shrink=False)
            except AssertionError as error:
                said = str(error).strip().splitlines()
                return Caught(said[0] if said else type(error).__name__, Machine.examples[name] - before)
    return None
