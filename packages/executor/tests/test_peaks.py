"""Peaks: which connections a crowded second needs, told once each and as it grows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pool_bench import START, PoolBench
from tocsin.common.target import Target, parse_target
from tocsin.executor import peaks as module
from tocsin.executor.peaks import PEAK, PER_ENDPOINT, Peaks, wanted_of
from tocsin.executor.pool import CallPool
from tocsin.executor.transport.connecting import OPENED_AHEAD_SECONDS

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def target(number: int, path: str = "/") -> Target:
    return parse_target(f"https://host-{number}.example{path}")


def noted(*counts: int) -> Peaks:
    """So many runs of each endpoint, due within a second."""
    peaks = Peaks()
    for number, count in enumerate(counts):
        for run in range(count):
            peaks.note(NOW + timedelta(seconds=3 + run / 1_000), target(number, f"/{run}"))
    return peaks


def taken(peaks: Peaks, now: datetime = NOW) -> dict[str, int]:
    return {target.host: count for target, count in peaks.take(now)}


def test_a_peak_tells_of_each_endpoint_what_it_needs_up_to_a_bound() -> None:
    peaks = noted(PEAK, 1, 3)
    assert taken(peaks) == {"host-0.example": PER_ENDPOINT, "host-1.example": 1, "host-2.example": 3}
    assert taken(peaks) == {}


def test_an_endpoint_of_many_runs_is_opened_more_up_to_a_bound_of_its_own() -> None:
    assert [wanted_of(runs) for runs in (1, 8, 128, 160, 1_000, 1_024, 100_000)] == [1, 8, 8, 10, 62, 64, 64]
    assert taken(noted(1_000)) == {"host-0.example": 62}


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_peak_is_told_of_no_sooner_than_its_scheme_needs(scheme: str) -> None:
    peaks = Peaks()
    due = NOW + timedelta(seconds=15)
    for _ in range(PEAK):
        peaks.note(due, parse_target(f"{scheme}://host.example/"))
    ahead = timedelta(seconds=OPENED_AHEAD_SECONDS[scheme])
    assert taken(peaks, due - ahead - timedelta(seconds=0.1)) == {}
    assert taken(peaks, due - ahead) == {"host.example": PER_ENDPOINT}


def test_what_is_past_is_forgotten_though_there_is_always_more_to_come() -> None:
    peaks = Peaks()
    for second in range(100):
        now = NOW + timedelta(seconds=second)
        peaks.note(now + timedelta(seconds=3), target(second))
        assert taken(peaks, now) == {}
    assert len(peaks) <= 4


def test_few_runs_are_no_peak_until_they_have_become_many() -> None:
    peaks = noted(PEAK - 3, 2)
    assert taken(peaks) == {}
    peaks.note(NOW + timedelta(seconds=3), target(1))
    assert taken(peaks) == {"host-0.example": PER_ENDPOINT, "host-1.example": 3}
    peaks.note(NOW + timedelta(seconds=3), target(1))
    assert taken(peaks) == {"host-1.example": 4}


def test_many_seconds_of_few_runs_are_no_peak() -> None:
    peaks = Peaks()
    for second in range(2 * PEAK):
        peaks.note(NOW + timedelta(seconds=second), target(1))
    assert taken(peaks) == {}


def test_what_is_past_is_forgotten() -> None:
    peaks = noted(PEAK)
    assert taken(peaks, NOW + timedelta(seconds=5)) == {}
    assert len(peaks) == 0


class Warmed:
    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def warm(self, target: Target, count: int) -> None:
        self.asked.append((target.host, count))


class WarmedPool(CallPool):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._warmer = self.warmed = Warmed()


async def test_the_pool_asks_once_for_what_it_was_told_to_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PEAK", 2)
    bench = PoolBench(WarmedPool)
    assert isinstance(bench.pool, WarmedPool)
    task = bench.a_task()
    for _ in range(2):
        bench.pool.expect(START + timedelta(seconds=3), task)
    assert bench.pool._warming is not None
    for _ in range(2):
        bench.pool._warming.cancel()
        bench.pool._warm(bench.pool.warmed)
        assert bench.pool.warmed.asked == [("example.com", 2)]
        assert bench.pool._warming is not None, "the second is still to come"
    await bench.pool.close()


async def test_without_a_warmer_nothing_is_kept(bench: PoolBench) -> None:
    bench.pool.expect(START, bench.a_task())
    assert (bench.pool._warming, len(bench.pool._peaks)) == (None, 0)
