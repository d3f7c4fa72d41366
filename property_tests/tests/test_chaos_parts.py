"""The parts of chaos: schedule, plot, endpoint, and wrong clocks."""

import asyncio
import math
import os
import random
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from uuid import UUID
from xml.etree import ElementTree

import asyncpg
import pytest

from property_tests.chaos.delays import Second
from property_tests.chaos.endpoint import Endpoint, answer_of
from property_tests.chaos.faults import catalogue
from property_tests.chaos.ledger import Call, Struck, call_line, read_calls
from property_tests.chaos.load import Tenants, expected_of, first_slot, loads_of
from property_tests.chaos.plot import DELAYS, plot
from property_tests.chaos.schedule import BETWEEN_SECONDS, CALM_SECONDS, QUIET_SECONDS, Plan, schedule
from property_tests.chaos.skewed import STEP_EVERY, SkewedClock
from property_tests.chaos.up_behind_proxy import at_port
from property_tests.chaos.watch import Watch
from tocsin.common.clock import ManualClock, SystemClock
from tocsin.common.ids import Ids
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.engine.process import this_process

FIRST = 1_800_000_000.0
RUN, TASK = UUID(int=1000), UUID(int=1)
FAULTS = [
    Struck("kill-executor", FIRST + 1, FIRST + 1, "killed one", database=False),
    Struck("cut-postgres", FIRST + 3, FIRST + 5, "cut", database=True),
]


def plans() -> list[Plan]:
    return [fault.plan(10.0) for fault in catalogue().values()]


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    assert schedule(7, 1800, plans()) == schedule(7, 1800, list(reversed(plans())))
    assert schedule(7, 1800, plans()) != schedule(8, 1800, plans())


@pytest.mark.parametrize("seed", range(20))
def test_faults_follow_one_another_with_time_to_recover(seed: int) -> None:
    planned = schedule(seed, 1800, plans())
    assert {one.name for one in planned} == set(catalogue())
    assert planned[0].at >= CALM_SECONDS
    for before, after in pairwise(planned):
        assert before.at + before.seconds + before.recover + BETWEEN_SECONDS[0] <= after.at + 0.1
    assert planned[-1].at + planned[-1].seconds + planned[-1].recover <= 1800 - QUIET_SECONDS


def test_a_short_time_holds_short_faults_only() -> None:
    assert schedule(1, 20, [Plan("long", 30, 30, 10)]) == []
    assert [one.name for one in schedule(1, 60, [Plan("long", 60, 60, 10), Plan("short", 0, 0, 25)])] == ["short"]


def test_the_plot_is_an_svg_with_a_band_for_each_fault_and_gaps_where_nothing_was_due() -> None:
    seconds = [Second(int(FIRST) + n, 10, 0.002, 0.02, 0.2) for n in (0, 1, 2, 5, 6)]
    root = ElementTree.fromstring(plot(seconds, FAULTS, "a < b & c"))
    names = [element.tag.partition("}")[2] for element in root.iter()]
    assert names.count("g") == 2
    assert names.count("polyline") == 6  # three lines, each in two strokes
    assert any((element.text or "").startswith("a < b & c: ") for element in root.iter())


def test_the_plot_has_a_log_axis() -> None:
    assert DELAYS.share(0.1) - DELAYS.share(0.01) == pytest.approx(DELAYS.share(10.0) - DELAYS.share(1.0))
    assert (DELAYS.share(0.0), DELAYS.share(math.inf)) == (0.0, 1.0)


def test_a_plot_of_nothing_is_an_svg() -> None:
    ElementTree.fromstring(plot([], [], "nothing"))


def test_the_endpoints_log_is_read_back(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    run, task = str(RUN).encode(), str(TASK).encode()
    line = call_line((FIRST + 0.25, math.inf, run, task, b"3", b"2027-01-15T08:00:00Z"))
    log.write_bytes(line)
    assert list(read_calls(log)) == [Call(FIRST + 0.25, math.inf, RUN, TASK, 3, FIRST)]


@pytest.mark.parametrize(
    ("path", "run", "attempt", "status"),
    [
        ("/ok/250/7", "a1", 1, 200),
        ("/flaky/250/7", "a2", 1, 503),
        ("/flaky/250/7", "a1", 1, 200),
        ("/flaky/250/7", "a2", 2, 200),
        ("/broken/250/7", "a1", 2, 500),
    ],
)
def test_the_endpoint_answers_as_its_path_says(path: str, run: str, attempt: int, status: int) -> None:
    head = f"POST {path} HTTP/1.1\r\nIdempotency-Key: {run}\r\nTocsin-Attempt: {attempt}\r\n".encode()
    assert answer_of(head) == (status, 0.25)


def test_a_skewed_clock_is_ahead_steps_back_and_runs_too_fast() -> None:
    real = ManualClock(datetime.fromtimestamp(FIRST, UTC))
    clock = SkewedClock(real, wall=3600.0, step=-60.0, rate=1.5)
    ahead = (clock.now() - real.now()).total_seconds()
    before = clock.monotonic(), clock.boottime()
    real.advance(STEP_EVERY)
    assert {ahead, (clock.now() - real.now()).total_seconds()} == {3600.0, 3540.0}
    assert (clock.monotonic() - before[0], clock.boottime() - before[1]) == pytest.approx((15.0, 15.0))


def test_the_proxys_address_keeps_the_account_and_the_database() -> None:
    assert at_port("postgresql://me:p%40ss@127.0.0.1:5432/base", 99) == "postgresql://me:p%40ss@127.0.0.1:99/base"


def test_the_load_is_the_rate_and_each_slot_of_it_is_known() -> None:
    ids, rng = Ids(ManualClock(datetime.fromtimestamp(FIRST, UTC)), random.Random(1)), random.Random(1)
    tenants = Tenants([UUID(int=n) for n in range(1, 21)], UUID(int=21), UUID(int=22), 6)
    first = first_slot(datetime.fromtimestamp(FIRST - 7.5, UTC), 6.0)
    parts = list(loads_of(ids, rng, tenants, 100, first, 60, "http://127.0.0.1:9/"))
    expected = [expected_of(load) for _, load in parts]
    assert first.timestamp() == FIRST
    assert sum(map(len, expected)) == pytest.approx(60 * 100, rel=0.05)
    for (group, load), due in zip(parts, expected, strict=True):
        assert min(slot for _, slot in due) == load.first.timestamp()
        assert max(slot for _, slot in due) < FIRST + 60
        assert all(0 <= at - slot < max(1, group.spread) for (_, slot), at in due.items())


async def test_the_watch_sees_a_lease_its_heartbeats_and_its_processs_end(database_url: str) -> None:
    clock, lease_id = SystemClock(), UUID(int=77)
    store = PostgresStore(database_url, lease_id=lease_id)
    await store.open()
    connection = await asyncpg.connect(database_url)
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    try:
        process = replace(this_process(), pid=ended.pid)
        await store.leases.register(lease_id, "shared", 0, process, "2026a", 10.0)
        watch = Watch(lambda: database_url, clock, random.Random(1))
        watch.early_of[ended.pid] = 0.01
        await watch.read_leases(connection)
        await store.leases.beat(lease_id, draining=True)
        await store.leases.leave(lease_id)
        await watch.read_leases(connection)
        life = watch.lives[lease_id]
        assert (life.pid, life.cell, life.draining, life.early) == (ended.pid, "shared", True, 0.01)
        assert len(life.beats) == 2
        assert life.expired is not None
        watching = asyncio.create_task(watch.run([TASK]))
        while life.failed is None:
            await asyncio.sleep(0.05)
        watching.cancel()
        watch.failed(lease_id, 1.0, 2.0)
        assert life.failed[0] > FIRST - 1e9  # what was seen first stays
    finally:
        await connection.close()
        await store.close()


async def test_the_endpoint_keeps_each_call_with_its_end(tmp_path: Path) -> None:
    headers = f"Idempotency-Key: {RUN}\r\nTocsin-Task: {TASK}\r\nTocsin-Fence: 1\r\n"
    headers += "Tocsin-Attempt: 1\r\nTocsin-Scheduled-For: 2027-01-15T08:00:00Z\r\nContent-Length: 4\r\n\r\nbody"
    async with Endpoint(tmp_path, dict(os.environ)) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        for _ in range(2):
            writer.write(f"POST /ok/20/1 HTTP/1.1\r\nHost: x\r\n{headers}".encode())
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK")
        writer.write(f"POST /ok/60000/1 HTTP/1.1\r\nHost: x\r\n{headers}".encode())
        await writer.drain()
        gone = await asyncio.open_connection("127.0.0.1", endpoint.port)
        gone[1].write(f"POST /ok/60000/1 HTTP/1.1\r\nHost: x\r\n{headers}".encode())
        await gone[1].drain()
        gone[1].close()
        await gone[1].wait_closed()
        late = await asyncio.open_connection("127.0.0.1", endpoint.port)
        late[1].write(f"POST /ok/0/1 HTTP/1.1\r\nHost: x\r\n{headers}".encode())
        await late[0].readuntil(b"ok")  # by now the endpoint knows of the others
        late[1].close()
        await endpoint.end()
        writer.close()
    calls = list(read_calls(endpoint.log))
    lasted = sorted(call.until - call.at for call in calls)
    assert len(calls) == 5
    assert lasted[-1] == math.inf
    assert all(seconds < 30 for seconds in lasted[:-1])
    assert sum(seconds >= 0.019 for seconds in lasted[:-1]) >= 2
