"""`TOCSIN_TRANSPORT`: what a node calls with, within the files that it may open."""

import resource
from datetime import timedelta

import pytest

from node_bench import NodeBench
from tocsin.cli.limits import connection_limit, in_flight_limit
from tocsin.cli.node import ExecutorNode
from tocsin.common.models import AtSchedule
from tocsin.common.settings import Settings
from tocsin.common.target import Target
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.executor import peaks
from tocsin.executor.transport.aiohttp_transport import AiohttpTransport
from tocsin.executor.transport.lean import LeanTransport


@pytest.mark.parametrize(("name", "kind"), [("aiohttp", AiohttpTransport), ("lean", LeanTransport)])
async def test_the_setting_chooses_the_transport(name: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_TRANSPORT", name)
    transport = ExecutorNode(Settings(), "shared", 0, MemoryMeter())._transport()
    assert type(transport) is kind
    await transport.close()


async def test_it_is_the_lean_one_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOCSIN_TRANSPORT", raising=False)
    transport = ExecutorNode(Settings(), "shared", 0, MemoryMeter())._transport()
    assert type(transport) is LeanTransport
    await transport.close()


def test_there_are_more_connections_than_calls_and_fewer_than_files() -> None:
    calls = in_flight_limit(Settings())
    assert calls < connection_limit() < resource.getrlimit(resource.RLIMIT_NOFILE)[0]


async def test_a_peak_is_called_over_the_lean_transport_which_was_told_of_it_before(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int, int]] = []

    def warm(_transport: LeanTransport, target: Target, count: int) -> None:
        told.append((target.port, count, len(bench.endpoint.seen)))

    monkeypatch.setattr(LeanTransport, "warm", warm)
    monkeypatch.setattr(peaks, "PEAK", 3)
    instant = await bench.now() + timedelta(seconds=3)
    tenant = await bench.a_tenant()
    for number in range(3):
        await bench.a_task(tenant, f"/{number}", schedule=AtSchedule(at=instant.replace(microsecond=0)))
    bench.start()
    await bench.until(lambda: len(bench.endpoint.seen) == 3, "all are called")
    assert told[-1] == (bench.endpoint.port, 3, 0)
