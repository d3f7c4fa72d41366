"""Retry delays: jitter over the whole range, and no argument that leaves it."""

import random
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.common.backoff import ceiling, delay

Ceiling = Callable[..., float]


def power_first(failures: int, *, base: float, factor: float, cap: float) -> float:
    """Broken: the power is computed before it is capped."""
    return min(cap, base * factor ** (failures - 1))


def holds(ceiling_of: Ceiling) -> bool:
    """Case B39: large attempts, a large factor."""
    if not 0.01 < ceiling_of(155, base=1.1e-308, factor=98.0, cap=2.0) < 0.1:  # the power alone is out of range
        return False
    for exponent in (46, 47, 1023, 1024, 100_000):
        for factor in (2.0, 1e9):
            value = ceiling_of(exponent + 1, base=1.0, factor=factor, cap=3600.0)
            if value != 3600.0 or timedelta(seconds=value) <= timedelta(0):
                return False
    return True


def test_b39_the_cap_whatever_the_attempt() -> None:
    assert holds(ceiling)
    with pytest.raises(OverflowError):
        holds(power_first)


@pytest.mark.parametrize(("exponent", "seconds"), [(0, 1), (1, 2), (11, 2048), (12, 3600), (13, 3600)])
def test_b39_the_cap_exactly_from_the_first_power_that_reaches_it(exponent: int, seconds: float) -> None:
    assert ceiling(exponent + 1, base=1.0, factor=2.0, cap=3600.0) == seconds


@pytest.mark.parametrize(("base", "cap"), [(0.0, 3600.0), (5.0, 0.0)])
def test_b39_a_base_of_nothing_waits_for_nothing(base: float, cap: float) -> None:
    assert ceiling(1024, base=base, factor=2.0, cap=cap) == 0.0


@given(
    failures=st.integers(0, 10**9),
    base=st.floats(0, 86_400),
    factor=st.floats(1, 100),
    cap=st.floats(0.001, 86_400),
    seed=st.integers(0, 1000),
)
def test_a_delay_lies_between_nothing_and_the_cap(
    failures: int, base: float, factor: float, cap: float, seed: int
) -> None:
    most = ceiling(failures, base=base, factor=factor, cap=cap)
    assert 0 <= most <= cap
    assert 0 <= delay(failures, random.Random(seed), base=base, factor=factor, cap=cap) <= most
    assert ceiling(failures + 1, base=base, factor=factor, cap=cap) >= most * (1 - 1e-9)


def test_the_jitter_is_full() -> None:
    rng = random.Random(1)
    delays = [delay(3, rng, base=1.0, factor=2.0, cap=60.0) for _ in range(2000)]
    assert min(delays) < 0.05
    assert max(delays) > 3.95
    assert sum(delays) / len(delays) == pytest.approx(2.0, rel=0.05)
