"""Measurements into Ray's own metrics, which its dashboard and Prometheus endpoint show.

A call into Ray costs 2 us here, and each observation of one of its histograms is recorded anew in its dashboard's
agent: at 4,500 runs a second that took an eighth of a core. So everything is summed up here and handed over once a
second, and a histogram as what Prometheus makes of it anyway: counters `<name>_bucket` with the label `le`,
`<name>_count` and `<name>_sum` (Ray appends `_total` to each). `histogram_quantile` takes them as they are.
"""

from bisect import bisect_left

from ray.util import metrics as ray_metrics

from tocsin.common.telemetry.metrics import METRICS, Metric, MetricKind

Key = tuple[str, ...]
"""A metric's name and its labels' values."""


class Buckets:
    """Observations since the last flush: how many fell into each bucket, the last being those above every bound."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.counts = [0] * (len(metric.buckets) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.metric.buckets, value)] += 1
        self.sum += value

    def cumulated(self) -> list[tuple[str, int]]:
        """(`le`, observations at or below it), as Prometheus counts them."""
        total, found = 0, []
        for bound, count in zip([*map(str, self.metric.buckets), "+Inf"], self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


class RayMeter:
    """A `Meter` over `ray.util.metrics`."""

    def __init__(self) -> None:
        self._counters: dict[str, ray_metrics.Counter] = {}
        self._gauges: dict[str, ray_metrics.Gauge] = {}
        self._sums: dict[Key, float] = {}
        self._levels: dict[Key, float] = {}
        self._buckets: dict[Key, Buckets] = {}
        for metric in METRICS:
            if metric.kind is MetricKind.COUNTER:
                self._make(metric.name, metric.description, metric.labels)
            elif metric.kind is MetricKind.GAUGE:
                self._gauges[metric.name] = ray_metrics.Gauge(metric.name, metric.description, metric.labels)
            else:
                self._make(f"{metric.name}_bucket", metric.description, (*metric.labels, "le"))
                self._make(f"{metric.name}_count", f"how many: {metric.description}", metric.labels)
                self._make(f"{metric.name}_sum", f"in all: {metric.description}", metric.labels)
        self._labels = {metric.name: metric.labels for metric in METRICS}

    def _make(self, name: str, description: str, labels: tuple[str, ...]) -> None:
        self._counters[name] = ray_metrics.Counter(name, description, labels)

    def add(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        key = (metric.name, *labels)
        self._sums[key] = self._sums.get(key, 0.0) + value

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        self._levels[metric.name, *labels] = value

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """What is below zero counts as zero: Ray's counters do not fall."""
        key = (metric.name, *labels)
        buckets = self._buckets.get(key)
        if buckets is None:
            buckets = self._buckets[key] = Buckets(metric)
        buckets.add(max(value, 0.0))

    def flush(self) -> None:
        """Hands everything since the last time to Ray; to be called about once a second."""
        sums, self._sums = self._sums, {}
        levels, self._levels = self._levels, {}
        observed, self._buckets = self._buckets, {}
        for (name, *labels), value in sums.items():
            self._inc(name, value, self._tags(name, labels))
        for (name, *labels), value in levels.items():
            self._gauges[name].set(value, self._tags(name, labels))
        for (name, *labels), buckets in observed.items():
            tags = self._tags(name, labels)
            for bound, count in buckets.cumulated():
                self._inc(f"{name}_bucket", count, {**tags, "le": bound})
            self._inc(f"{name}_count", sum(buckets.counts), tags)
            self._inc(f"{name}_sum", buckets.sum, tags)

    def _inc(self, name: str, value: float, tags: dict[str, str]) -> None:
        if value > 0:  # Ray refuses to raise a counter by nothing
            self._counters[name].inc(value, tags)

    def _tags(self, name: str, labels: list[str]) -> dict[str, str]:
        return dict(zip(self._labels[name], labels, strict=True))
