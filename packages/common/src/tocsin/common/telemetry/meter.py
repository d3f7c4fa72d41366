"""Where measurements go: an interface, and one that keeps them in memory."""

from collections import defaultdict
from typing import Protocol

from tocsin.common.telemetry.metrics import Metric


class Meter(Protocol):
    """Takes measurements; never raises, never waits."""

    def add(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        """Raises a counter."""
        ...

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Sets a gauge."""
        ...

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Adds to a histogram."""
        ...


class MemoryMeter:
    """Keeps counts, last values and sums; what `up` and tests read."""

    def __init__(self) -> None:
        self.counters: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self.gauges: dict[tuple[str, ...], float] = {}
        self.sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self.observations: defaultdict[tuple[str, ...], int] = defaultdict(int)

    def add(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        self.counters[metric.name, *labels] += value

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        self.gauges[metric.name, *labels] = value

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        self.sums[metric.name, *labels] += value
        self.observations[metric.name, *labels] += 1
