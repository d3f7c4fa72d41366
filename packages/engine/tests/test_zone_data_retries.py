"""The zone data upgrade where a task fails for a passing reason: tried again until it is done, and in nobody's way."""

from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pytest

from next_row_bench import MemoryNextRowBench
from tocsin.common.errors import FaultyDefinitionError
from tocsin.common.store.rows import Task
from tocsin.common.tasks import Tasks
from tocsin.engine.zone_data import ZoneDataConfig, ZoneDataUpgrade
from zone_data_checks import NEW, noted, planned_by, upgrade

HOUR = 3600


class Scene:
    """Five tasks as an older release planned them, two a page; some of them fail when they are replanted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = MemoryNextRowBench()
        self.service = upgrade(self.rows, page=2)
        self.tasks: list[Task] = []
        self.left: Counter[UUID] = Counter()
        """How often each fails yet."""
        self.tries: Counter[UUID] = Counter()
        self.error: Callable[[UUID], Exception] = lambda _task_id: RuntimeError("a passing fault")
        replant = Tasks.replant

        async def failing(tasks: Tasks, tenant_id: UUID, task_id: UUID) -> bool:
            self.tries[task_id] += 1
            if self.left[task_id] > 0:
                self.left[task_id] -= 1
                raise self.error(task_id)
            return await replant(tasks, tenant_id, task_id)

        patch.setattr(Tasks, "replant", failing)

    async def start(self, **failures: int) -> "Scene":
        """`failures` of the tasks, by their names `t0` to `t4`."""
        await planned_by(self.rows)
        self.tasks = [await self.rows.a_task() for _ in range(5)]
        for number, task in enumerate(self.tasks):
            await self.rows.age(task)
            self.left[task.id] = failures.get(f"t{number}", 0)
        return self

    async def rounds(self, seconds: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _ in range(seconds):
            counts.update(await self.service.run_once())
            self.rows.clock.advance(1)
        return counts

    async def replanted(self) -> list[int]:
        """The numbers of the tasks that are planned anew."""
        now = [(await self.rows.the_task(task.id)).plan_version for task in self.tasks]
        return [number for number, version in enumerate(now) if version == 2]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def check_what_fails_is_done_in_the_end(scene: Scene) -> None:
    await scene.start(t1=4, t4=1)
    assert await scene.rounds(3) == {"looked_at": 5, "replanted": 3, "failed": 3}
    assert await scene.replanted() == [0, 2, 3], "the pages behind it do not wait"
    release, through = await noted(scene.rows)
    assert release == NEW
    assert through is not None
    assert scene.tasks[0].id <= through < scene.tasks[1].id, "up to it all are done"
    assert (await scene.rounds(60))["replanted"] == 2
    assert await scene.replanted() == [0, 1, 2, 3, 4]
    assert await noted(scene.rows) == (NEW, None)


async def check_another_process_does_what_this_one_could_not(scene: Scene) -> None:
    await scene.start(t1=1_000_000)
    await scene.rounds(10)
    scene.left.clear()
    scene.service = upgrade(scene.rows, page=2)
    assert await scene.rounds(3) == {"looked_at": 4, "replanted": 1, "failed": 0}
    assert await noted(scene.rows) == (NEW, None)


async def check_what_always_fails_is_tried_ever_more_rarely(scene: Scene) -> None:
    await scene.start(t1=1_000_000)
    await scene.rounds(6 * HOUR)
    assert 12 <= scene.tries[scene.tasks[1].id] <= 20
    assert await scene.replanted() == [0, 2, 3, 4]
    assert (await noted(scene.rows))[1] is not None, "it is not done"


async def check_what_cannot_be_read_is_not_tried_again(scene: Scene) -> None:
    scene.error = lambda task_id: FaultyDefinitionError(task_id, "by hand")
    await scene.start(t1=1_000_000)
    assert await scene.rounds(10) == {"looked_at": 5, "replanted": 4, "failed": 1}
    assert scene.tries[scene.tasks[1].id] == 1
    assert await noted(scene.rows) == (NEW, None)


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


@pytest.mark.parametrize("check", CHECKS)
async def test_zone_data_retries(scene: Scene, check: str) -> None:
    await CHECKS[check](scene)


async def test_each_failure_is_logged_once_with_its_task_and_its_tenant(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await scene.start(t1=5, t3=5)
    await scene.rounds(120)
    for number in (1, 3):
        who = f"task {scene.tasks[number].id} of tenant {scene.tasks[number].tenant_id}"
        said = [record.getMessage() for record in caplog.records if who in record.getMessage()]
        assert said == [
            f"zone data: {who} could not be planned; it is tried again",
            f"zone data: {who} could be planned after all",
        ]
    assert caplog.text.count("Traceback") == 2
    assert "of 5 tasks looked at, 5 were replanted and 0 failed" in caplog.text


# --- broken twins ------------------------------------------------------------------------------------------------


def is_left(self: ZoneDataUpgrade, tenant_id: UUID, task_id: UUID, now: object, error: Exception) -> None:
    """Its page counts as done."""


def passes_over(self: ZoneDataUpgrade) -> UUID | None:
    """This process alone knows what failed."""
    return self._after


TWINS: tuple[tuple[str, object, str], ...] = (
    ("_fail", is_left, "what_fails_is_done_in_the_end"),
    ("_fail", is_left, "another_process_does_what_this_one_could_not"),
    ("_done_through", passes_over, "another_process_does_what_this_one_could_not"),
)


@pytest.mark.parametrize(("name", "instead", "check"), TWINS)
async def test_a_broken_twin_is_caught(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str, instead: object, check: str
) -> None:
    monkeypatch.setattr(ZoneDataUpgrade, name, instead)
    with pytest.raises(AssertionError):
        await CHECKS[check](scene)


async def test_one_that_tries_again_each_round_is_caught(scene: Scene) -> None:
    config = ZoneDataConfig(NEW, page=2, longest_retry=1.0)
    scene.service = ZoneDataUpgrade(scene.rows.store.next_rows, scene.rows.tasks, config)
    with pytest.raises(AssertionError):
        await check_what_always_fails_is_tried_ever_more_rarely(scene)
