"""Whether a series of windows rises: the Mann-Kendall test, and the Theil-Sen slope.

Mann, "Nonparametric tests against trend" (1945); Sen, "Estimates of the regression coefficient based on Kendall's tau"
(1968). Neither asks how values are distributed, and one wild window moves neither much.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import combinations

CHANCE = 0.05
"""A rise that as many as so many of all chance orders show is no trend."""

LEAST_WINDOWS = 4
"""Three windows in rising order come by chance once in six times."""


def chance_of_rise(values: Sequence[float]) -> float:
    """The share (0 to 1) of all orders of these values that rise at least as much; exact. Equal values count half."""
    pairs = list(combinations(values, 2))
    falling = sum(1.0 if later < earlier else 0.5 for earlier, later in pairs if later <= earlier)
    return sum(_inversions(len(values))[: math.floor(falling) + 1])


def _inversions(length: int) -> list[float]:
    """For each number of pairs out of order, the share of all orders of `length` things that have it."""
    shares = [1.0]
    for count in range(2, length + 1):
        longer = [0.0] * (len(shares) + count - 1)
        window = 0.0
        for number in range(len(longer)):
            window += shares[number] if number < len(shares) else 0.0
            window -= shares[number - count] if 0 <= number - count < len(shares) else 0.0
            longer[number] = window / count
        shares = longer
    return shares


def slope(values: Sequence[float]) -> float:
    """The median rise from one value to the next, of all pairs of values; nan of fewer than two."""
    rises = [(values[j] - values[i]) / (j - i) for i, j in combinations(range(len(values)), 2)]
    return statistics.median(rises) if rises else math.nan


def rise_percent(values: Sequence[float]) -> float:
    """How much the series rises from its first to its last window, in percent of its median, where that is no chance; 0
    where it may be. nan where there are too few windows, or one of them has no value."""
    if len(values) < LEAST_WINDOWS or any(math.isnan(value) for value in values):
        return math.nan
    if chance_of_rise(values) > CHANCE:
        return 0.0
    middle = statistics.median(values)
    return 100 * slope(values) * (len(values) - 1) / middle if middle else math.inf
