"""A rise is told from chance, and no more is made of it than there is."""

import math
import random
from itertools import combinations, permutations

import pytest

from bench.trend import chance_of_rise, rise_percent, slope


def score(values: tuple[float, ...]) -> int:
    return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))


@pytest.mark.parametrize("values", [(1, 2, 3, 4), (4, 3, 2, 1), (2, 1, 4, 3, 5), (3, 1, 2, 6, 4, 5)])
def test_the_chance_is_the_share_of_all_orders_that_rise_as_much(values: tuple[float, ...]) -> None:
    orders = list(permutations(values))
    expected = sum(score(order) >= score(values) for order in orders) / len(orders)
    assert chance_of_rise(values) == pytest.approx(expected)


def test_long_series_have_a_chance_too() -> None:
    rng = random.Random(1)
    noise = [rng.gauss(10, 1) for _ in range(120)]
    assert chance_of_rise(noise) > 0.05
    assert chance_of_rise([value + n / 20 for n, value in enumerate(noise)]) < 1e-6


def test_equal_values_are_no_rise() -> None:
    assert chance_of_rise([5.0] * 6) > 0.4
    assert rise_percent([5.0] * 6) == 0.0


def test_one_wild_window_moves_the_slope_little() -> None:
    assert slope([10, 11, 12, 13, 14]) == 1
    assert slope([10, 11, 900, 13, 14]) == pytest.approx(1, abs=0.1)
    assert math.isnan(slope([1]))


def test_a_series_that_doubles_is_found_and_noise_is_not() -> None:
    assert rise_percent([10, 12, 14, 16, 18, 20]) == pytest.approx(100 * 10 / 15)
    assert rise_percent([10, 13, 9, 12, 10, 11]) == 0.0
    assert rise_percent([20, 18, 16, 14, 12, 10]) == 0.0
    assert rise_percent([10, 10.1, 10.2, 10.3, 10.4, 10.5]) < 10  # sure, and small


def test_where_nothing_can_be_told_nothing_is() -> None:
    assert math.isnan(rise_percent([1, 2, 3]))
    assert math.isnan(rise_percent([1, 2, math.nan, 4, 5]))
    assert rise_percent([0, 0, 0, 0, 1, 2]) in (0.0, math.inf)
