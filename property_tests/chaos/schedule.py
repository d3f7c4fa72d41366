"""The schedule of faults: a pure function of a seed, the time there is, and the faults to choose from."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

CALM_SECONDS = 10.0
"""Before the first fault, so that there is a measure of what is usual."""

QUIET_SECONDS = 10.0
"""After the last one has had its time to recover."""

BETWEEN_SECONDS = (5.0, 9.0)
"""From the time that a fault is given to recover to the next one: then nothing may be late, nor passed over."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A kind of fault: how many seconds it lasts, between which it is drawn, and how many to recover are given."""

    name: str
    shortest: float
    longest: float
    recover: float


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault to come: `at` seconds after the load's first slot, for `seconds`. `number` seeds what else it draws."""

    name: str
    at: float
    seconds: float
    recover: float
    number: int


def schedule(seed: int, seconds: float, plans: Sequence[Plan]) -> list[Planned]:
    """Faults one after another, each kind once before any comes again; as many as fit.

    One that no longer fits is passed over for a shorter one.
    """
    rng = random.Random(seed)
    end = seconds - QUIET_SECONDS
    at = CALM_SECONDS
    found: list[Planned] = []
    deck: list[Plan] = []
    while True:
        if not deck:
            deck = sorted(plans, key=lambda plan: plan.name)
            rng.shuffle(deck)
        fitting = next((n for n, plan in enumerate(deck) if at + plan.longest + plan.recover <= end), None)
        if fitting is None:
            return found
        plan = deck.pop(fitting)
        lasts = round(rng.uniform(plan.shortest, plan.longest), 1)
        found.append(Planned(plan.name, round(at, 1), lasts, plan.recover, rng.getrandbits(32)))
        at += lasts + plan.recover + rng.uniform(*BETWEEN_SECONDS)
