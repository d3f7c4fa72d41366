"""The one table of metrics. Ray shows each with the prefix `ray_`."""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: MetricKind
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_DELAY = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0)
_STATEMENT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

START_DELAY = Metric(
    "tocsin_start_delay_seconds",
    MetricKind.HISTOGRAM,
    "first byte of the call minus due_at",
    ("priority",),
    _DELAY,
)
DUE_LAG = Metric(
    "tocsin_due_lag_seconds", MetricKind.HISTOGRAM, "begin minus due_at, where late", ("priority",), _DELAY
)
DUE_OLDEST_AGE = Metric("tocsin_due_oldest_age_seconds", MetricKind.GAUGE, "age of the oldest due run in memory")
RUNS = Metric("tocsin_runs_total", MetricKind.COUNTER, "ended attempts and skips, as owners record them", ("outcome",))
CALLS_IN_FLIGHT = Metric("tocsin_calls_in_flight", MetricKind.GAUGE, "begun runs whose result is not committed")
READ_SECONDS = Metric("tocsin_read_seconds", MetricKind.HISTOGRAM, "one read of heads", ("path",), _STATEMENT)
BEGIN_SECONDS = Metric("tocsin_begin_seconds", MetricKind.HISTOGRAM, "one begin", (), _STATEMENT)
FLUSH_SECONDS = Metric("tocsin_flush_seconds", MetricKind.HISTOGRAM, "one batch of completions", (), _STATEMENT)
STALE_WRITES = Metric("tocsin_stale_writes_total", MetricKind.COUNTER, "results whose fence no longer held")
LEASES_LOST = Metric("tocsin_leases_lost_total", MetricKind.COUNTER, "leases judged expired, or proven dead")
SKIPS = Metric("tocsin_skips_total", MetricKind.COUNTER, "slots that got no run, as owners record them", ("reason",))
TENANTS_DEDICATED = Metric("tocsin_tenants_dedicated", MetricKind.GAUGE, "tenants with a cell of their own")
HINT_VERDICT = Metric(
    "tocsin_hint_verdict", MetricKind.GAUGE, "what finds due runs faster here: 0 the scan, 1 the hint index"
)
NEXT_ROW_FAULTS = Metric(
    "tocsin_next_row_faults", MetricKind.GAUGE, "tasks without a next row, or with several, at the last audit"
)

METRICS: tuple[Metric, ...] = (
    START_DELAY,
    DUE_LAG,
    DUE_OLDEST_AGE,
    RUNS,
    CALLS_IN_FLIGHT,
    READ_SECONDS,
    BEGIN_SECONDS,
    FLUSH_SECONDS,
    STALE_WRITES,
    LEASES_LOST,
    SKIPS,
    TENANTS_DEDICATED,
    HINT_VERDICT,
    NEXT_ROW_FAULTS,
)
