"""Wake-ups: coalesced, spaced, never lost."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise
from uuid import UUID

import pytest

from api_client import Client, Connection, begin_waiting
from database_proxy import Proxy
from tocsin.api.notifier import PAYLOAD_BYTES, SPACING, Notifier
from tocsin.common.clock import ManualClock, SystemClock
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.postgres.wakeups import parse_payload

TENANT = UUID(int=1)


class Wire:
    """Stands for the database and for time: statements take `takes` seconds, pauses move the clock.

    `failures` are raised by the next statements. After a statement `during` is called, once for each.
    """

    def __init__(self) -> None:
        self.clock = ManualClock(SystemClock().now())
        self.sent: list[tuple[float, str]] = []
        self.tried: list[float] = []
        self.failures: list[Exception] = []
        self.takes = 0.0
        self.idle = asyncio.Event()
        self.during: Callable[[], None] | None = None

    async def send(self, payload: str) -> None:
        self.tried.append(self.clock.monotonic())
        if self.during is not None:
            self.during()
        self.clock.advance(self.takes)
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append((self.tried[-1], payload))

    async def pause(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.idle.set()
        await asyncio.sleep(0)

    @property
    def items(self) -> list[str]:
        return [item for _, payload in self.sent for item in payload.split(",")]


class Forgetful(Notifier):
    """The broken twin: forgets what a failed statement carried."""

    async def _send_one(self) -> bool:
        payload = self._take()
        try:
            await self._send(payload)
        except StoreUnavailableError:
            return False
        return True


async def drive(notifier: Notifier, wire: Wire, act: Callable[[], Awaitable[None]]) -> None:
    """Runs a notifier beside `act`, and then until it has nothing to do for many turns of the loop."""
    running = asyncio.create_task(notifier.run())
    await act()
    for _ in range(200):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def check_nothing_is_lost(make: type[Notifier]) -> None:
    """Statements fail in every way; each queue and each cancel is told all the same."""
    wire = Wire()
    wire.failures = [StoreUnavailableError("down"), OutcomeUnknownError("lost"), StoreUnavailableError("down")]
    notifier = make(wire.send, wire.clock, wire.pause)

    async def act() -> None:
        for priority in range(4):
            notifier.wake(TENANT, priority)
            notifier.cancelled(UUID(int=priority))
            await asyncio.sleep(0)

    await drive(notifier, wire, act)
    told = [f"queue {TENANT} {priority}" for priority in range(4)]
    told += [f"cancel {UUID(int=number)}" for number in range(4)]
    assert set(wire.items) == set(told)


async def test_nothing_is_lost() -> None:
    await check_nothing_is_lost(Notifier)


async def test_a_forgetful_notifier_is_caught() -> None:
    with pytest.raises(AssertionError):
        await check_nothing_is_lost(Forgetful)


async def test_told_during_a_statement_means_told_after_it() -> None:
    """The row committed after the statement had been sent: the owner must hear of it again."""
    wire = Wire()
    notifier = Notifier(wire.send, wire.clock, wire.pause)
    wakes = [1]

    def again() -> None:
        if wakes.pop():
            wakes.append(0)
            notifier.wake(TENANT, 2)

    wire.during = lambda: again() if wakes else None

    async def act() -> None:
        notifier.wake(TENANT, 2)

    await drive(notifier, wire, act)
    assert wire.items == [f"queue {TENANT} 2"] * 2


async def test_the_first_goes_at_once_and_the_rest_are_spaced() -> None:
    wire = Wire()
    wire.takes = 0.001
    notifier = Notifier(wire.send, wire.clock, wire.pause)
    start = wire.clock.monotonic()

    async def act() -> None:
        for _ in range(5):
            for number in range(100):
                notifier.wake(UUID(int=number), number % 4)
            await asyncio.sleep(0)

    await drive(notifier, wire, act)
    times = [at for at, _ in wire.sent]
    assert times[0] == start
    assert 1 < len(times) <= 6
    assert all(b - a >= SPACING - 1e-9 for a, b in pairwise(times))


async def test_failures_are_tried_again_with_growing_pauses() -> None:
    wire = Wire()
    wire.failures = [StoreUnavailableError("down") for _ in range(8)]
    notifier = Notifier(wire.send, wire.clock, wire.pause)

    async def act() -> None:
        notifier.wake(TENANT, 0)

    await drive(notifier, wire, act)
    gaps = [round(b - a, 3) for a, b in pairwise(wire.tried)]
    assert gaps == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert wire.items == [f"queue {TENANT} 0"]


async def test_payloads_stay_below_the_servers_limit_and_name_each_queue_once() -> None:
    wire = Wire()
    notifier = Notifier(wire.send, wire.clock, wire.pause)
    tenants = [UUID(int=number) for number in range(1000)]

    async def act() -> None:
        for tenant in tenants * 2:
            notifier.wake(tenant, 3)

    await drive(notifier, wire, act)
    assert wire.items == [f"queue {tenant} 3" for tenant in tenants]
    assert all(len(payload) <= PAYLOAD_BYTES for _, payload in wire.sent)
    assert len(wire.sent) == 6  # 175 of 45 bytes fit


async def test_cancelled_runs_go_with_the_queues_once_each_and_within_the_limit() -> None:
    wire = Wire()
    notifier = Notifier(wire.send, wire.clock, wire.pause)
    runs = [UUID(int=number) for number in range(400)]

    async def act() -> None:
        notifier.wake(TENANT, 2)
        for run_id in runs * 2:
            notifier.cancelled(run_id)

    await drive(notifier, wire, act)
    assert len(wire.sent) == 3  # 179 of 44 bytes fit
    assert all(len(payload) <= PAYLOAD_BYTES for _, payload in wire.sent)
    named = [parse_payload(payload) for _, payload in wire.sent]
    assert [queue for each in named for queue in each.queues] == [(TENANT, 2)]
    assert [run_id for each in named for run_id in each.cancelled] == runs


async def test_what_is_left_is_sent_at_the_end() -> None:
    wire = Wire()
    notifier = Notifier(wire.send, wire.clock, wire.pause)
    for number in range(200):
        notifier.wake(UUID(int=number), 0)
    await notifier.flush(5)
    assert len(wire.items) == 200
    await notifier.flush(5)
    assert len(wire.sent) == 2


@pytest.fixture
async def heard(sql: Connection) -> "asyncio.Queue[str]":
    """What an owner hears."""
    queue: asyncio.Queue[str] = asyncio.Queue()
    await sql.add_listener("tocsin", lambda *message: queue.put_nowait(str(message[3])))
    return queue


async def test_owners_hear_of_what_was_committed(client: Client, heard: "asyncio.Queue[str]") -> None:
    async def next_queue() -> str:
        async with asyncio.timeout(5):
            return await heard.get()

    created = await client.create(priority="critical")
    assert await next_queue() == f"queue {client.tenant_id} 0"
    path = f"/v1/tasks/{created.document['id']}"
    for method, step in ("POST", "/run-now"), ("POST", "/skip-next"):
        assert (await client.call(method, path + step)).status in (200, 202)
        assert await next_queue() == f"queue {client.tenant_id} 0"
    assert (await client.call("PATCH", path, {"priority": "low"})).status == 200
    assert await next_queue() == f"queue {client.tenant_id} 3"


async def test_owners_hear_of_the_cancel_of_a_running_run_and_of_no_other(
    client: Client, sql: Connection, heard: "asyncio.Queue[str]"
) -> None:
    task_id = await client.made()
    waiting, running = [
        (await client.call("POST", f"/v1/tasks/{task_id}/run-now")).document["run_id"] for _ in range(2)
    ]
    assert (await client.call("POST", f"/v1/runs/{waiting}/cancel")).document["found"] == "pending"
    await begin_waiting(sql)
    for _ in range(2):  # again, as a client does that got no answer
        assert (await client.call("POST", f"/v1/runs/{running}/cancel")).document["found"] == "running"
        named: list[UUID] = []
        async with asyncio.timeout(5):
            while not named:
                named += parse_payload(await heard.get()).cancelled
        assert named == [UUID(running)]


async def test_a_wake_up_survives_a_lost_connection(proxied: Client, proxy: Proxy, heard: "asyncio.Queue[str]") -> None:
    task_id = await proxied.made()
    async with asyncio.timeout(5):
        await heard.get()
    proxy.cut_at = b"queue "
    assert (await proxied.call("POST", f"/v1/tasks/{task_id}/run-now")).status == 202
    async with asyncio.timeout(10):
        assert await heard.get() == f"queue {proxied.tenant_id} 2"
    assert json.dumps(proxy.cut_at) == "null"
