"""What `RayMeter` hands to Ray: sums since the last flush, and histograms as Prometheus counts them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.util import metrics as ray_metrics

from tocsin.common.telemetry.metrics import CALLS_IN_FLIGHT, FLUSH_SECONDS, READ_SECONDS, RUNS
from tocsin.common.telemetry.ray_meter import Buckets, RayMeter

Handed = dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]


class Recorder:
    """In place of Ray's counters and gauges: keeps what it is given, and refuses what they refuse."""

    handed: Handed = {}  # noqa: RUF012  # set anew by each test

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description
        self._name = name
        self._tag_keys = set(tag_keys)

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        assert value > 0, "Ray raises here"
        self.set(value, tags)

    def set(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        assert set(tags or {}) == self._tag_keys
        self.handed.setdefault((self._name, tuple(sorted((tags or {}).items()))), []).append(value)


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> Handed:
    seen: Handed = {}
    monkeypatch.setattr(Recorder, "handed", seen)
    monkeypatch.setattr(ray_metrics, "Counter", Recorder)
    monkeypatch.setattr(ray_metrics, "Gauge", Recorder)
    return seen


def test_counters_and_gauges_reach_ray_once_a_flush(handed: Handed) -> None:
    meter = RayMeter()
    for _ in range(3):
        meter.add(RUNS, 2, "succeeded")
    meter.add(RUNS, 0, "timeout")
    meter.set(CALLS_IN_FLIGHT, 7)
    meter.set(CALLS_IN_FLIGHT, 5)
    assert handed == {}
    meter.flush()
    assert handed == {
        ("tocsin_runs_total", (("outcome", "succeeded"),)): [6],
        ("tocsin_calls_in_flight", ()): [5],
    }
    meter.flush()
    assert handed["tocsin_calls_in_flight", ()] == [5], "nothing new, nothing handed over"
    meter.add(RUNS, 1, "succeeded")
    meter.flush()
    assert handed["tocsin_runs_total", (("outcome", "succeeded"),)] == [6, 1]


def test_a_histogram_becomes_the_counters_of_prometheus(handed: Handed) -> None:
    meter = RayMeter()
    for seconds in (0.0005, 0.001, 0.3, 99.0, -0.1):
        meter.observe(READ_SECONDS, seconds, "sweep")
    meter.observe(FLUSH_SECONDS, 0.004)
    meter.flush()

    def bucket(bound: str) -> list[float]:
        return handed["tocsin_read_seconds_bucket", (("le", bound), ("path", "sweep"))]

    assert bucket("0.001") == [3], "a bound holds what is equal to it, and a clock's step back"
    assert bucket("0.25") == [3]
    assert bucket("0.5") == [4]
    assert bucket("5.0") == [4]
    assert bucket("+Inf") == [5]
    assert handed["tocsin_read_seconds_count", (("path", "sweep"),)] == [5]
    assert handed["tocsin_read_seconds_sum", (("path", "sweep"),)] == [pytest.approx(99.3015)]
    assert handed["tocsin_flush_seconds_count", ()] == [1]
    assert ("tocsin_flush_seconds_bucket", (("le", "0.002"),)) not in handed, "Ray refuses nothing at all"


@given(st.lists(st.floats(0, 100)))
def test_buckets_never_fall_and_end_with_all(values: list[float]) -> None:
    buckets = Buckets(READ_SECONDS)
    for value in values:
        buckets.add(value)
    found = buckets.cumulated()
    assert [bound for bound, _ in found] == [*map(str, READ_SECONDS.buckets), "+Inf"]
    for bound, count in found[:-1]:
        assert count == sum(1 for value in values if value <= float(bound))
    assert found[-1][1] == len(values)
