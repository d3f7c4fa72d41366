"""The driver against a peer that keeps the protocol and against those that break it; all processes are real."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bench.endpoint import Endpoint
from bench.frame import Screen
from bench.peers import adapter, bare_peer, driver
from bench.peers.adapter import Jobs, job_id
from bench.peers.catalogue import Peer
from bench.peers.driver import Adapter, AdapterError, Attempt, LateError, attempted
from bench.peers.verdict import Outcome, judged

COUNT = 4
PEER = Peer("scripted", "a script")
LEAD = 600.0
"""Its calls come early by as much: nothing waits for the instant."""

SCRIPT = Path(__file__).with_name("scripted_peer.py")


@pytest_asyncio.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[Endpoint]:
    async with Endpoint(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SETTLE_SECONDS", 0.0)


def scripted(manner: str, endpoint: Endpoint, folder: Path) -> Adapter:
    environment = {"PEER_URL": endpoint.url, "SCRIPT_FOLDER": str(folder), "PATH": os.environ["PATH"]}
    return Adapter((sys.executable, SCRIPT, manner), environment, folder)


async def outcome(manner: str, endpoint: Endpoint, folder: Path, limit: float = 0.0, warm: int = 0) -> Outcome:
    """`limit` -LEAD: cut as soon as it has been looked at once."""
    attempt = Attempt(PEER, 1, COUNT, 0, limit, warm)
    return await attempted(attempt, scripted(manner, endpoint, folder), endpoint, Screen(), LEAD)


async def test_a_peer_that_does_its_jobs(endpoint: Endpoint, tmp_path: Path) -> None:
    found = await outcome("honest", endpoint, tmp_path)
    assert found.whole
    assert (found.lost, found.duplicates, found.kept, len(found.delays)) == (0, 0, COUNT, COUNT)
    assert found.early == COUNT


async def test_a_warm_up_is_not_judged(endpoint: Endpoint, tmp_path: Path) -> None:
    found = await outcome("honest", endpoint, tmp_path, warm=2)
    assert found.whole
    assert (found.expected, found.duplicates, found.kept, found.cold, len(found.delays)) == (COUNT, 0, COUNT, 0, COUNT)


async def test_a_warm_up_that_is_not_over_is_said(endpoint: Endpoint, tmp_path: Path) -> None:
    found = await outcome("stays-cold", endpoint, tmp_path, warm=2)
    assert (found.whole, found.cold) == (True, 1)


async def test_a_second_call_of_a_job_is_a_duplicate(endpoint: Endpoint, tmp_path: Path) -> None:
    found = await outcome("doubles", endpoint, tmp_path)
    assert (found.lost, found.duplicates) == (0, 1)


async def test_a_peer_that_hangs_is_cut(endpoint: Endpoint, tmp_path: Path) -> None:
    found = await outcome("loses", endpoint, tmp_path, limit=-LEAD)
    assert found.fault is not None
    assert found.fault.startswith("cut")
    assert found.lost >= 1
    assert not found.whole


async def test_a_worker_that_crashes_ends_the_attempt(endpoint: Endpoint, tmp_path: Path) -> None:
    found = await outcome("crashes", endpoint, tmp_path)
    assert found.fault == "work ended with 1: it broke"
    assert (found.lost, len(found.delays)) == (2, 2)


async def test_a_peer_may_keep_no_results(endpoint: Endpoint, tmp_path: Path) -> None:
    assert (await outcome("keeps-none", endpoint, tmp_path)).kept is None


@pytest.mark.parametrize(
    ("manner", "said"), [("dies-at-once", "work ended with 1: no server"), ("cannot-enqueue", "enqueue ended with 1")]
)
async def test_what_fails_before_there_is_anything_to_measure(
    manner: str, said: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    with pytest.raises(AdapterError, match=said):
        await outcome(manner, endpoint, tmp_path)


async def test_a_worker_that_never_gets_ready(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "READY_SECONDS", 0.3)
    with pytest.raises(AdapterError, match="not ready"):
        await (await scripted("never-ready", endpoint, tmp_path).start("work", log="work")).ready()


async def test_an_instant_that_has_passed_is_no_measurement(endpoint: Endpoint, tmp_path: Path) -> None:
    attempt = Attempt(PEER, 1, COUNT, 0, 60.0)
    with pytest.raises(LateError):
        await attempted(attempt, scripted("honest", endpoint, tmp_path), endpoint, Screen(), -1.0)


async def test_nothing_is_left_running(endpoint: Endpoint, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    await outcome("leaves-a-child", endpoint, tmp_path)
    reading = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)
    assert await asyncio.to_thread(os.read, reading, 1) == b""  # once nobody holds its other end
    os.close(reading)


async def test_the_peers_client_is_known_to_the_endpoint(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEER_URL", endpoint.url + "0ms/")
    jobs = Jobs(5, 0, time.time() - 1)
    await bare_peer.enqueue(jobs)
    found = judged({job_id(number): due for number, due in jobs}, await endpoint.take(), processes=1)
    assert (found.whole, found.duplicates, found.early) == (True, 0, 0)
    assert found.seconds >= 1


def test_jobs_of_a_steady_load_are_due_by_ticks() -> None:
    jobs = list(Jobs(2500, 1000, 50.0))
    assert jobs[0] == (0, 50.0)
    assert jobs[9] == (9, 50.0)
    assert jobs[10] == (10, 50.01)
    assert jobs[1000] == (1000, 51.0)
    assert jobs[-1][1] == pytest.approx(52.49)
    assert {due for _, due in Jobs(3, 0, 50.0)} == {50.0}


def test_the_warm_up_comes_first_at_one_instant_with_numbers_of_its_own() -> None:
    jobs = Jobs(2, 0, 50.0, warm=2)
    assert jobs.begins == 50.0 - adapter.WARM_SECONDS
    assert list(jobs) == [(2, jobs.begins), (3, jobs.begins), (0, 50.0), (1, 50.0)]
    assert Jobs(2, 0, 50.0).begins == 50.0


def test_a_job_has_the_names_that_tocsin_sends() -> None:
    sent = adapter.headers(0, 0.5)
    assert sent["Idempotency-Key"] == sent["Tocsin-Task"] == str(job_id(0))
    assert sent["Tocsin-Scheduled-For"] == "1970-01-01T00:00:00.500000+00:00"
