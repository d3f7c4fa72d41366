"""The client that measures the endpoint's ceiling counts what the endpoint has answered."""

from pathlib import Path

import pytest

from bench.endpoint import Endpoint
from bench.network import Calibration
from bench.p0 import ask, ceiling


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
