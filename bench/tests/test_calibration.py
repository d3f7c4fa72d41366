"""The client that measures the endpoint's ceiling counts what the endpoint has answered."""

from pathlib import Path

import pytest

from bench.endpoint import Endpoint
from bench.p0 import ask, ceiling
from bench.p2 import on_both
from bench.reach import Calibration, Reached, judged_distance
from bench.report import Figure, Report


async def test_answers_are_counted_that_the_endpoint_has_given(tmp_path: Path) -> None:
    async with Endpoint(tmp_path) as endpoint:
        rate = await ask(endpoint.port, "20ms/", 0.2)
        assert 0 < rate * 0.2 <= await endpoint.count()


async def test_the_client_may_be_a_process_of_its_own(tmp_path: Path) -> None:
    async with Endpoint(tmp_path) as endpoint:
        assert await ceiling(endpoint, "", 0.1) > 0


def test_what_a_proxy_adds_is_told_beside_what_it_costs_alone() -> None:
    found = Calibration(direct_ms=0.1, proxy_ms=0.25, delayed_ms=1.12)
    assert found.added_ms == pytest.approx(1.02)
    assert str(found).startswith("+1.02 ms a round trip by a proxy (select 1: 0.10 ms direct, 0.25 through")


def found(**environment: Figure) -> Report:
    return judged_distance(Report("p1-az", environment, [], "anything", {"runs": 7}))


def test_a_report_that_was_measured_from_afar_says_how_far_that_was() -> None:
    reached = Reached("", "by a proxy", (), Calibration(direct_ms=0.1, proxy_ms=0.25, delayed_ms=1.12))
    report = found(**reached.environment(), **reached.environment("redis_network"))
    assert report.met
    assert [target.name for target in report.targets] == [
        "network: added round trip, off by",
        "redis_network: added round trip, off by",
    ]
    assert report.figures["network_added_round_trip_ms"] == pytest.approx(1.02)
    assert report.figures["network_whole_round_trip_ms"] == pytest.approx(1.12)
    assert report.figures["runs"] == 7
    assert set(report.environment) == {"network", "redis_network"}


@pytest.mark.parametrize("delayed", [0.12, 2.1])
def test_a_proxy_that_adds_too_little_or_too_much_misses_a_target(delayed: float) -> None:
    assert not found(**Reached("", "", (), Calibration(0.1, 0.2, delayed)).environment()).met


def test_of_a_direct_way_nothing_is_asked() -> None:
    assert found(**Reached("").environment()).targets == []


def test_on_two_networks_both_ways_are_known() -> None:
    far = Reached("", "far", (), Calibration(0.1, 0.2, 1.1))
    where = on_both({"direct": {"cores": 2, **Reached("").environment()}, "az": {"cores": 2, **far.environment()}})
    assert (where["network"], where["network_az"]) == ("direct", "far")
    assert [target.name for target in found(**where).targets] == ["network_az: added round trip, off by"]  # type: ignore[arg-type]
    assert on_both({"az": far.environment()}) == far.environment()
