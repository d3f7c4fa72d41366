"""Retry delays: exponential with full jitter and a cap (AWS Architecture Blog, "Exponential Backoff And Jitter")."""

import math
import random

_LARGEST_POWER = 700.0
"""Of e, that a float holds."""


def ceiling(failures: int, *, base: float, factor: float, cap: float) -> float:
    """The longest delay, in seconds, after so many failures (1 or more): `min(cap, base * factor ** (failures - 1))`.

    Never raises and never leaves [0, cap], however large its arguments: the power is compared in
    logarithms before it is computed.
    """
    if base <= 0 or cap <= 0:
        return 0.0
    exponent = max(0, failures - 1)
    if base >= cap:
        return cap
    if factor <= 1 or exponent == 0:
        return base
    growth = exponent * math.log(factor)
    if growth >= math.log(cap) - math.log(base):
        return cap
    if growth > _LARGEST_POWER:  # of a base so small that the product is not
        return min(cap, math.exp(math.log(base) + growth))
    return min(cap, base * factor**exponent)


def delay(failures: int, rng: random.Random, *, base: float, factor: float, cap: float) -> float:
    """A delay in seconds, uniform over [0, ceiling]."""
    return rng.uniform(0.0, ceiling(failures, base=base, factor=factor, cap=cap))
