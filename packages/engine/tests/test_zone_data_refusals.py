"""The zone data upgrade where the store refuses: one task's row that another holds, or everything, in an outage."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import asyncpg
import pytest

from next_row_bench import MemoryNextRowBench, PostgresNextRowBench
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.rows import Task
from tocsin.common.tasks import Tasks
from tocsin.engine.zone_data import ZoneDataUpgrade
from zone_data_checks import NEW, noted, planned_by, upgrade

REFUSALS: tuple[Callable[[str], StoreUnavailableError], ...] = (StoreUnavailableError, OutcomeUnknownError)


class Scene:
    """Six tasks as an older release planned them, three a page; the rows of some are held by another."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = MemoryNextRowBench()
        self.service = upgrade(self.rows, page=3)
        self.tasks: list[Task] = []
        self.held: set[UUID] = set()
        self.refusal: Callable[[str], StoreUnavailableError] = StoreUnavailableError
        self.waits: list[int] = []
        """How many of each round's replants waited for a row in vain."""
        self.tries = 0
        self.outage_at: int | None = None
        """The replant that the database's outage begins with."""
        replant = Tasks.replant

        async def meeting(tasks: Tasks, tenant_id: UUID, task_id: UUID) -> bool:
            self.tries += 1
            if self.tries == self.outage_at:
                self.rows.database.unavailable = True
            if task_id in self.held:
                self.waits[-1] += 1
                raise self.refusal("canceling statement due to lock timeout")
            return await replant(tasks, tenant_id, task_id)

        patch.setattr(Tasks, "replant", meeting)

    async def start(self, *held: int) -> "Scene":
        await planned_by(self.rows)
        self.tasks = [await self.rows.a_task() for _ in range(6)]
        for task in self.tasks:
            await self.rows.age(task)
        self.held = {self.tasks[number].id for number in held}
        return self

    async def rounds(self, seconds: int) -> int:
        """How many of as many rounds failed."""
        failed = 0
        for _ in range(seconds):
            self.waits.append(0)
            try:
                await self.service.run_once()
            except StoreUnavailableError:
                failed += 1
            self.rows.clock.advance(1)
        return failed

    async def replanted(self) -> list[int]:
        now = [(await self.rows.the_task(task.id)).plan_version for task in self.tasks]
        return [number for number, version in enumerate(now) if version == 2]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def check_held_rows_hold_up_no_other(scene: Scene) -> None:
    """One or several in a row, each of one task; a round waits for two at most, one of them again."""
    await scene.start(1, 2, 5)
    assert await scene.rounds(10) == 0
    assert await scene.replanted() == [0, 3, 4]
    assert max(scene.waits) <= 2
    scene.held.clear()
    assert await scene.rounds(60) == 0
    assert await scene.replanted() == [0, 1, 2, 3, 4, 5]
    assert await noted(scene.rows) == (NEW, None)


async def check_an_outage_fails_the_rounds(scene: Scene) -> None:
    """It begins within a page: all that the database refuses then is done once it is back."""
    await scene.start()
    scene.outage_at = 2
    assert await scene.rounds(10) == 10
    assert scene.tries == 2, "no other task is tried in an outage"
    scene.rows.database.unavailable = False
    assert await scene.rounds(10) == 0
    assert await scene.replanted() == [0, 1, 2, 3, 4, 5]
    assert await noted(scene.rows) == (NEW, None)


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("check", CHECKS)
async def test_refusals(scene: Scene, check: str, refusal: Callable[[str], StoreUnavailableError]) -> None:
    scene.refusal = refusal
    await CHECKS[check](scene)


async def test_a_refusal_is_said_with_its_reason_and_no_trace(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.start(1)
    await scene.rounds(10)
    who = f"task {scene.tasks[1].id} of tenant {scene.tasks[1].tenant_id}"
    said = f"zone data: {who} could not be planned (canceling statement due to lock timeout); it is tried again"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert "Traceback" not in caplog.text


def raises(_self: ZoneDataUpgrade, _tenant_id: UUID, _task_id: UUID, _now: object, error: Exception) -> None:
    """Broken: every refusal is an outage."""
    raise error


async def test_one_that_takes_a_held_row_for_an_outage_is_caught(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZoneDataUpgrade, "_fail", raises)
    with pytest.raises(AssertionError):
        await check_held_rows_hold_up_no_other(scene)


async def test_a_task_that_a_forgotten_transaction_holds(database_url: str) -> None:
    """By the store's own error: its lock timeout."""
    rows = PostgresNextRowBench(database_url)
    assert isinstance(rows.store, PostgresStore)
    rows.store._work._timeout = 1.0
    await rows.open()
    other = await asyncpg.connect(database_url)
    try:
        await planned_by(rows)
        tasks = [await rows.a_task() for _ in range(3)]
        for task in tasks:
            await rows.age(task)
        async with other.transaction():
            await other.execute("select from tasks where id = $1 for update", tasks[0].id)
            service = upgrade(rows)
            await asyncio.wait_for(service.run_once(), 60)
            await asyncio.wait_for(service.run_once(), 60)
            assert [(await rows.the_task(task.id)).plan_version for task in tasks] == [1, 2, 2]
    finally:
        await other.close()
        await rows.close()
