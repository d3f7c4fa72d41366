"""`up` takes over no database on which somebody works; what a `kill -9` left there only costs a wait."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import SecretStr

from tocsin.cli.database import open_store
from tocsin.cli.tenants import make_tenant
from tocsin.cli.up import machine, others
from tocsin.cli.up.given_postgres import GivenPostgres
from tocsin.cli.up.machine import Machine
from tocsin.cli.up.options import UpError, UpOptions
from tocsin.cli.up.others import LEAVING_SECONDS, SILENT_SECONDS, Others, require_alone
from tocsin.common.clock import ManualClock
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.leases import MemoryLeases
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.tenants import LeaseInfo, Process
from up_process import CLOCK

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
MOST_LOOKS = 200
LONGEST_TTL = 120.0
A, B = UUID(int=1), UUID(int=2)
PROCESS = Process("host-1", "boot", "namespace", 77, 1.0)


class Watched(MemoryLeases):
    """Half a second passes with each look, and then what the test says happens."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        super().__init__(MemoryDatabase(self.clock))
        self.happens: Callable[[float], None] = lambda second: None
        self.looks = 0

    async def listing(self, cell: str | None = None) -> list[LeaseInfo]:
        self.looks += 1
        assert self.looks < MOST_LOOKS, "it looks on"
        self.clock.advance(0.5)
        self.happens(self.looks / 2)
        return await super().listing(cell)

    async def has(self, lease_id: UUID, ttl: float = 10.0, generation: int = 1) -> None:
        await self.register(lease_id, "shared", generation, PROCESS, "2026a", ttl)

    def beats(self, lease_id: UUID, *, draining: bool = False) -> None:
        lease = self._db.leases[lease_id]
        lease.heartbeat_at, lease.draining = self.clock.now(), draining

    def ends(self, lease_id: UUID) -> None:
        self._db.leases[lease_id].expired_at = self.clock.now()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(others, "_LOOK_SECONDS", 0)
    return Watched()


async def refused(watched: Watched) -> float:
    """Checks that the start is refused; says after how many seconds."""
    with pytest.raises(UpError) as error:
        await require_alone(watched, watched.clock, "the database at db/x")
    said = "another Tocsin works on the database at db/x (pid 77 on host-1): stop it, or give this one a database"
    assert str(error.value) == f"{said} of its own"
    return watched.looks / 2


async def free(watched: Watched) -> float:
    """Checks that the start goes on; says after how many seconds."""
    await require_alone(watched, watched.clock, "the database at db/x")
    return watched.looks / 2


async def test_where_no_lease_is_left_it_is_not_waited(watched: Watched) -> None:
    assert await free(watched) == 0.5
    await watched.has(A)
    watched.ends(A)
    assert await free(watched) == 1.0, "after a clean stop"


@pytest.mark.parametrize("generation", [0, 3])
async def test_a_lease_that_beats_on_is_somebody(watched: Watched, generation: int) -> None:
    await watched.has(A)  # dead, as others of that Tocsin may be
    await watched.has(B, generation=generation)
    watched.happens = lambda _second: watched.beats(B)
    assert await refused(watched) <= LEAVING_SECONDS + 1


async def test_the_slowest_heart_is_heard(watched: Watched) -> None:
    await watched.has(A, LONGEST_TTL)
    watched.happens = lambda second: watched.beats(A) if second % (LONGEST_TTL / 8) == 0 else None
    assert await refused(watched) <= LEAVING_SECONDS + LONGEST_TTL / 8


async def test_one_that_judges_too_soon_does_not_hear_it(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "SILENT_SECONDS", 10.0)
    with pytest.raises(pytest.fail.Exception):
        await test_the_slowest_heart_is_heard(watched)


async def test_what_a_kill_left_is_waited_for_once(watched: Watched) -> None:
    await watched.has(A)
    assert await free(watched) <= SILENT_SECONDS + 1


async def test_executors_of_a_killed_up_may_take_their_time_to_leave(watched: Watched) -> None:
    """They drain, or are killed at last."""
    await watched.has(A)
    await watched.has(B)

    def leaving(second: float) -> None:
        if second < LEAVING_SECONDS:
            watched.beats(A, draining=second > 1)
        if second < 4:
            watched.beats(B, draining=second > 1)
        elif second == 4:
            watched.ends(B)

    watched.happens = leaving
    assert await free(watched) <= LEAVING_SECONDS + SILENT_SECONDS + 1


async def test_one_that_does_not_wait_for_them_is_caught(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "LEAVING_SECONDS", 0.0)
    with pytest.raises(UpError):
        await test_executors_of_a_killed_up_may_take_their_time_to_leave(watched)


def test_an_executor_that_is_started_again_and_again_is_somebody() -> None:
    """Each of its leases is silent, and there is always a new one."""
    found = Others(0.0, {UUID(int=1): START})
    verdicts = [found.look(float(n), {UUID(int=n): START}) for n in range(1, 12)]
    assert verdicts == [None] * 9 + [True, True]


class WrittenError(Exception):
    """`up` has gone on to what writes."""


async def first_write(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, demo: bool = False) -> None:
    """Starts an `up` on this database, up to its first write.

    Raises:
        UpError: it was refused; WrittenError: it was not.
    """

    async def migrate(_: str) -> list[str]:
        raise WrittenError

    monkeypatch.setattr(machine, "migrate", migrate)
    made = Machine(UpOptions(folder / "data", 1, 2, 1, demo, SecretStr(url)), CLOCK, "")
    try:
        await made.start()
    finally:
        await made.stop()


async def beat_until(stop: asyncio.Event, store: PostgresStore) -> None:
    while not stop.is_set():
        await store.leases.beat(A, draining=False)
        await asyncio.sleep(0.05)


async def check_is_not_taken_over(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an executor at work that no Supervisor has placed, as `tocsin engine`."""
    monkeypatch.setattr(others, "LEAVING_SECONDS", 0.5)
    stop = asyncio.Event()
    async with open_store(url) as store:
        await store.leases.register(A, "shared", 0, PROCESS, "2026a", 10.0)
        beating = asyncio.create_task(beat_until(stop, store))
        try:
            with pytest.raises(UpError, match=r"another Tocsin works on the database at .* that TOCSIN_DATABASE_URL"):
                await first_write(url, folder, monkeypatch)
        finally:
            stop.set()
            await beating
    assert not (folder / "data" / "logs").exists()


async def test_a_database_in_use_is_not_taken_over(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_is_not_taken_over(database_url, tmp_path, monkeypatch)


async def test_an_up_that_does_not_look_is_caught(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def blind(_: GivenPostgres, *, demo: bool) -> None:
        return

    monkeypatch.setattr(GivenPostgres, "require_free", blind)
    with pytest.raises(WrittenError):
        await check_is_not_taken_over(database_url, tmp_path, monkeypatch)


async def test_what_was_killed_costs_a_wait(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(others, "SILENT_SECONDS", 0.5)
    caplog.set_level(logging.INFO)
    async with open_store(database_url) as store:
        await store.leases.register(A, "shared", 1, PROCESS, "2026a", 10.0)
    with pytest.raises(WrittenError):
        await first_write(database_url, tmp_path, monkeypatch)
    assert "looking whether somebody works there" in caplog.text


async def test_an_empty_database_is_free(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WrittenError):
        await first_write(empty_database_url, tmp_path, monkeypatch, demo=True)


async def test_the_demo_joins_no_tenants_of_others(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(database_url) as store:
        await make_tenant(store, CLOCK, "demo")
        with pytest.raises(WrittenError):  # its own, of a start before
            await first_write(database_url, tmp_path, monkeypatch, demo=True)
        await make_tenant(store, CLOCK, "somebody's")
    with pytest.raises(UpError, match=r"has tenants other than the demo's: start without --demo, or give the demo"):
        await first_write(database_url, tmp_path, monkeypatch, demo=True)
    with pytest.raises(WrittenError):
        await first_write(database_url, tmp_path, monkeypatch)
