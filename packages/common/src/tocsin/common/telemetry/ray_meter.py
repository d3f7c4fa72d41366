"""Measurements into Ray's own metrics, which its dashboard and Prometheus endpoint show."""

from ray.util import metrics as ray_metrics

from tocsin.common.telemetry.metrics import METRICS, Metric, MetricKind

_FLUSH_EVERY = 64


class RayMeter:
    """A `Meter` over `ray.util.metrics`: a call there costs 2 us, so counters are summed up a little first."""

    def __init__(self) -> None:
        self._counters: dict[str, ray_metrics.Counter] = {}
        self._gauges: dict[str, ray_metrics.Gauge] = {}
        self._histograms: dict[str, ray_metrics.Histogram] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        self._pending = 0
        for metric in METRICS:
            if metric.kind is MetricKind.COUNTER:
                self._counters[metric.name] = ray_metrics.Counter(metric.name, metric.description, metric.labels)
            elif metric.kind is MetricKind.GAUGE:
                self._gauges[metric.name] = ray_metrics.Gauge(metric.name, metric.description, metric.labels)
            else:
                self._histograms[metric.name] = ray_metrics.Histogram(
                    metric.name, metric.description, list(metric.buckets), metric.labels
                )
        self._labels = {metric.name: metric.labels for metric in METRICS}

    def add(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        key = (metric.name, *labels)
        self._sums[key] = self._sums.get(key, 0.0) + value
        self._pending += 1
        if self._pending >= _FLUSH_EVERY:
            self.flush()

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        self._gauges[metric.name].set(value, self._tags(metric.name, labels))

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        # Ray refuses a value of zero or less in its histograms' sums only by warning; a delay is never below zero.
        self._histograms[metric.name].observe(max(value, 0.0), self._tags(metric.name, labels))

    def flush(self) -> None:
        """Hands summed counters to Ray; called by a service once a second, too."""
        sums, self._sums, self._pending = self._sums, {}, 0
        for (name, *labels), value in sums.items():
            if value > 0:
                self._counters[name].inc(value, self._tags(name, tuple(labels)))

    def _tags(self, name: str, labels: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self._labels[name], labels, strict=True))
