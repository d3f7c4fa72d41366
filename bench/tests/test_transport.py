"""The transports' verdict follows from costs and conformance; cases run in real processes; TLS is trusted as set."""

import random
from pathlib import Path

import pytest

from bench import transport
from bench.caller import Case, OpenGate, Phase, Result, run_case
from bench.clients import CLIENTS, DEFAULT, SHIPPED
from bench.conformance import run_checks
from bench.endpoint import Endpoint
from bench.frame import Options, Screen
from bench.report import Report
from bench.tls_endpoint import TlsEndpoint
from bench.transport import Measured, report, typical_cost
from tocsin.common.clock import SystemClock
from tocsin.common.store.rows import Outcome
from tocsin.common.target import parse_target
from tocsin.executor.egress import EgressGuard, EgressPolicy
from tocsin.executor.transport.port import Failure, OutgoingRequest, Response


def measured(client: str, micros: float, failed: int = 0) -> Measured:
    """1,000 warm calls that took so much processor time each."""
    phase = Phase(1_000, failed, 1.0, micros / 1_000, 0.001, 0.002)
    return Measured(client, False, 100, Result(phase, phase, 50_000_000, "reset" if failed else ""))


COSTS = [measured(client, 100.0 if client == DEFAULT else 200.0) for client in CLIENTS]
PASSED = {client: {"a": "", "b": ""} for client in CLIENTS}


def missed(judged: Report) -> list[str]:
    return [target.name for target in judged.targets if not target.met]


def test_the_cheapest_that_passes_everything_is_to_be_the_default() -> None:
    assert missed(report(COSTS, PASSED, {})) == []
    for client in CLIENTS.keys() - {DEFAULT}:
        cheap = [*COSTS, measured(client, 1.0)]
        assert missed(report(cheap, PASSED, {})) == ["transports cheaper than the default that pass everything"]
        if client not in SHIPPED:
            assert missed(report(cheap, {**PASSED, client: {"a": "", "b": "sent twice"}}, {})) == []


def test_without_a_run_of_the_suite_only_the_products_own_are_judged() -> None:
    stranger = next(client for client in CLIENTS if client not in SHIPPED)
    assert missed(report([*COSTS, measured(stranger, 1.0)], {}, {})) == []


def test_a_failed_call_and_a_failed_check_of_the_product_are_misses() -> None:
    for client in SHIPPED:
        dear = measured(client, 1_000.0, failed=1)
        assert f"{client}: calls that failed" in missed(report([*COSTS, dear], PASSED, {}))
        failing = {**PASSED, client: {"a": "", "b": "sent twice"}}
        judged = report(COSTS, failing, {})
        assert f"{client}: checks of the suite that fail" in missed(judged)
        assert judged.figures[f"{client} fails b"] == "sent twice"
        assert judged.figures[f"{client}: checks passed"] == "1 of 2"


def test_a_clients_cost_is_the_geometric_mean_of_its_cases() -> None:
    assert typical_cost([measured("lean", 10.0), measured("lean", 1_000.0)]) == {"lean": pytest.approx(100.0)}


@pytest.mark.bench
async def test_a_small_comparison_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(transport, "SHORT_LEVELS", ((100, 0),))
    monkeypatch.setattr(transport, "CLIENTS", ("lean", "pyreqwest"))
    found = await transport.run(Options(short=True, scale=0.02, work_dir=tmp_path), Screen())
    assert {(row[0], row[1], row[-1]) for row in found.charts.tables[0].rows} == {
        (client, tls, 0) for client in ("lean", "pyreqwest") for tls in (False, True)
    }
    assert {row[2] for row in found.charts.tables[0].rows} == {2}


async def test_calls_that_fail_are_counted(tmp_path: Path) -> None:
    async with Endpoint(tmp_path) as endpoint:
        result = await run_case(Case("lean", f"{endpoint.url}reset/", 3, 0.0), endpoint.settings)
    assert (result.cold.requests, result.cold.failed) == (3, 3)
    assert "CONNECTION_LOST" in result.fault


def test_the_suite_tells_what_a_client_keeps_and_what_not() -> None:
    found = run_checks("pyreqwest", {"bodies_are_kept_up_to_the_cap", "nothing_is_added_to_the_request"})
    assert found["bodies_are_kept_up_to_the_cap"] == ""
    assert found["nothing_is_added_to_the_request"].startswith("AssertionError")


class Loopback:
    async def resolve(self, host: str) -> tuple[str, ...]:
        return ("127.0.0.1",)

    async def close(self) -> None: ...


async def call(client: str, url: str) -> Response | Failure:
    guard = EgressGuard(EgressPolicy.parse("127.0.0.1/32"), Loopback())
    made = CLIENTS[client](guard, SystemClock(), random.Random(1), None)
    try:
        return await made.call(OutgoingRequest(parse_target(url), "POST", (), b"{}", 10.0), OpenGate())
    finally:
        await made.close()


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_endpoints_authority_is_trusted_by_its_settings_alone(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with TlsEndpoint(tmp_path, ["*.tenants.test"]) as endpoint:
        url = f"https://t7.tenants.test:{endpoint.port}/"
        refused = await call(client, url)
        assert isinstance(refused, Failure)
        assert refused.outcome is Outcome.TLS_ERROR
        for name, value in endpoint.settings.items():
            monkeypatch.setenv(name, value)
        answer = await call(client, url)
        assert isinstance(answer, Response), answer
        stranger = await call(client, f"https://t7.others.test:{endpoint.port}/")
        assert isinstance(stranger, Failure)
        assert stranger.outcome is Outcome.TLS_ERROR
