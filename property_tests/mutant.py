"""A broken twin: one guard taken out of the product, and the machine that must notice."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from property_tests.machine import Machine, Profile, play

_PROMISES = re.compile(r"promises? (\d+(?:(?:, | and )\d+)*)\b")


@dataclass(frozen=True, slots=True)
class Instead:
    """Another promise that a machine may see broken before a twin's own; `reason`: why it does."""

    promise: int
    reason: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`apply` takes one guard out by patching the product's own code; nothing in the product knows of it.

    `promise`: the number of the promise that must be seen broken; or that of `instead`. `profile`: in what the machine
    must find it.
    """

    name: str
    promise: int
    machine: type[Machine]
    apply: Callable[[pytest.MonkeyPatch], None]
    profile: Profile
    seed: int = 1
    instead: Instead | None = None

    @property
    def accepted(self) -> frozenset[int]:
        """The promises of which one must be seen broken."""
        return frozenset({self.promise} if self.instead is None else {self.promise, self.instead.promise})


@dataclass(frozen=True, slots=True)
class Caught:
    """`found` is the first line of what the machine said; `examples` how many programs it took."""

    found: str
    examples: int

    @property
    def seen(self) -> frozenset[int]:
        """The promises that were seen broken; none where the machine named none, or failed over something else."""
        return promises_in(self.found)


def promises_in(said: str) -> frozenset[int]:
    """The numbers with which what a machine says begins: `promise 1: ...`, `promises 2 and 8: ...`."""
    named = _PROMISES.match(said)
    return frozenset(int(number) for number in re.findall(r"\d+", named[1])) if named is not None else frozenset()


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


def why_missed(mutant: Mutant, caught: Caught | None) -> str | None:
    """What is wrong with a hunt: it found nothing, or another promise broken than it must; None: it is caught."""
    machine = mutant.machine.__name__
    if caught is None:
        return f"{machine} does not notice that {mutant.name}"
    if not caught.seen & mutant.accepted:
        wanted = " or ".join(map(str, sorted(mutant.accepted)))
        return f"{machine} sees that {mutant.name}, but not as promise {wanted}: {caught.found}"
    return None
