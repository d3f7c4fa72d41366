"""Where a value lies on an axis, and what stands at its marks. Pure."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Mark = tuple[float, str]
"""A value and its label."""

_STEPS_OF_TIME = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 86_400)
_SHORT = 5.0
"""Seconds."""

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Units of durations, in seconds."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, both marked; `log` needs both above 0."""

    low: float
    high: float
    unit: str = ""
    log: bool = False

    def share(self, value: float) -> float:
        """How far along the axis, 0 to 1; what lies beyond an end is at that end."""
        value = min(self.high, max(self.low, value))
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def marks(self, most: int = 8) -> list[Mark]:
        """At most `most` marks, at round values; more only where a logarithmic axis has more than twice as many
        decades."""
        values = _log_marks(self.low, self.high, most) if self.log else _even_marks(self.low, self.high, most)
        return [(value, label(value, self.unit)) for value in values]


def axis_over(values: Iterable[float | None], unit: str = "", *, log: bool = False) -> Axis:
    """The axis on which all values lie, with round ends: from 0, or below it, where it is linear; around the values
    above 0 where it is logarithmic. Of no such values: 0 to 1, or a decade."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if log:
        known = [value for value in known if value > 0] or [0.1, 1.0]
        low, high = _round_below(min(known)), _round_above(max(known))
        return Axis(low, high if high > low else _round_above(high * 1.01), unit, log=True)
    low, high = min([0.0, *known]), max([0.0, *known])
    step = _even_step((high - low) or 1.0, 5)
    return Axis(math.floor(low / step) * step, math.ceil(high / step) * step or step, unit)


def time_axis(seconds: Sequence[float], unit: str = "s") -> Axis:
    """From the first to the last of rising instants."""
    if not seconds:
        return Axis(0.0, 1.0, unit)
    return Axis(seconds[0], seconds[-1] if seconds[-1] > seconds[0] else seconds[0] + 1.0, unit)


def time_marks(axis: Axis, most: int = 10) -> list[Mark]:
    """Marks of an axis in seconds: at whole minutes where it is long, at parts of a second where it is short."""
    length = axis.high - axis.low
    if length < _SHORT:
        return axis.marks(most)
    step = next((each for each in _STEPS_OF_TIME if length / each <= most), _STEPS_OF_TIME[-1])
    first = math.ceil(axis.low / step) * step
    return [(value, clock(value)) for value in _counted(first, step, axis.high)]


def clock(seconds: float) -> str:
    """`30 s`, `5 min`, `1:30 min`, `2 h`, `2:30 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    large, rest, unit = (*divmod(whole, 60), "min") if whole < 3600 else (*divmod(whole // 60, 60), "h")
    return f"{large}:{rest:02} {unit}" if rest else f"{large} {unit}"


def label(value: float, unit: str) -> str:
    """A short text for a value, durations in the unit that suits them: `0.02 s` is `20 ms`."""
    if unit in SECONDS:
        return duration(value * SECONDS[unit])
    return f"{short(value)} {unit}".rstrip()


def duration(seconds: float) -> str:
    """`250 us`, `1.5 ms`, `20 s`."""
    size = abs(seconds)
    if size == 0 or size >= 0.9995:
        return f"{seconds:.4g} s" if size < 1000 else f"{seconds:,.0f} s"
    return f"{seconds * 1e3:.3g} ms" if size >= 0.9995e-3 else f"{seconds * 1e6:.3g} us"


def short(value: float) -> str:
    """`12`, `1.5k`, `30M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _even_step(length: float, most: int) -> float:
    """The smallest of 1, 2, 5, 10, ... by powers of ten that divides `length` into at most `most` parts."""
    power = 10.0 ** math.floor(math.log10(length / most))
    return next(step * power for step in (1, 2, 5, 10, 20) if length / (step * power) <= most + 1e-9)


def _even_marks(low: float, high: float, most: int) -> list[float]:
    step = _even_step(high - low, most - 1)
    return [round(value, 12) for value in _counted(math.ceil(low / step - 1e-9) * step, step, high)]


def _counted(first: float, step: float, high: float) -> Iterable[float]:
    values = (first + step * number for number in itertools.count())
    return itertools.takewhile(lambda value: value <= high + step * 1e-6, values)


def _log_marks(low: float, high: float, most: int) -> list[float]:
    tight, decades = 1e-9, range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    shown: list[float] = []
    for parts in ((1, 2, 5), (1,)):
        values = [float(f"{part}e{power}") for power in decades for part in parts]
        shown = [value for value in values if low * (1 - tight) <= value <= high * (1 + tight)]
        if len(shown) <= most:
            return shown
    return shown[::2]


def _round_below(value: float) -> float:
    return max(v for v in _candidates(value) if v <= value * (1 + 1e-9))


def _round_above(value: float) -> float:
    return min(v for v in _candidates(value) if v >= value * (1 - 1e-9))


def _candidates(value: float) -> list[float]:
    power = math.floor(math.log10(value))
    return [float(f"{part}e{exponent}") for exponent in (power - 1, power, power + 1) for part in (1, 2, 5)]
