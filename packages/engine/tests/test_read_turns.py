"""One tenant whose queues cannot be read from their start, for ever: it takes nothing from any other."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from engine_bench import EngineBench
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.rows import Pending, QueuePage, Task
from tocsin.engine.look import START
from tocsin.engine.read import Reader
from tocsin.engine.turns import Turns


class Scene:
    """`tasks` of as many tenants, of which the first is at fault; `refused`: the rounds of refused statements."""

    def __init__(self, bench: EngineBench) -> None:
        self.bench = bench
        self.tasks: list[Task] = []
        self.round = 0
        self.refused: list[int] = []
        self.failed: list[int] = []
        self.fault = True

    async def start(self, tenants: int, *, known: bool = True) -> "Scene":
        self.tasks = [await self.bench.a_task(schedule=self.bench.every(7200)) for _ in range(tenants)]
        heads = self.bench.runs.heads

        async def refusing(pages: Sequence[QueuePage], lead: float) -> list[Pending]:
            if self.fault and any((p.tenant_id, p.from_due) == (self.at_fault, START[0]) for p in pages):
                self.refused.append(self.round)
                raise StoreUnavailableError("statement timeout")
            return await heads(pages, lead)

        await self.bench.first.own()
        if known:
            await self.bench.owner.reader.run_once()
        self.bench.runs.heads = refusing  # type: ignore[method-assign]
        return self

    @property
    def at_fault(self) -> UUID:
        return self.tasks[0].tenant_id

    async def rounds(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.2)):
            await self.bench.advance(0.2)
            self.round += 1
            try:
                await self.bench.owner.reader.run_once()
            except StoreUnavailableError:
                self.failed.append(self.round)

    def old_rows(self) -> list[Pending]:
        """One of each tenant, that only a look at everything finds."""
        return [self.bench.put(task, self.bench.clock.now() - timedelta(hours=1)) for task in self.tasks]

    def known(self, rows: Sequence[Pending]) -> list[bool]:
        return [self.bench.owner.board.knows(row) for row in rows]


@pytest.fixture
def scene(bench: EngineBench) -> Scene:
    return Scene(bench)


async def check_all_others_are_looked_at_whole(scene: Scene) -> None:
    """Those of its own turn from the second lap on, and each 10 s again."""
    await scene.start(23)
    rows = scene.old_rows()
    await scene.rounds(10.4)
    turn = scene.at_fault.int % 5
    in_turn = [task.tenant_id.int % 5 == turn for task in scene.tasks]
    assert 1 < sum(in_turn) < 23
    assert all(known for known, mine in zip(scene.known(rows), in_turn, strict=True) if not mine)
    await scene.rounds(10)
    assert scene.known(rows) == [False] + [True] * 22
    rows = scene.old_rows()
    await scene.rounds(10.4)
    assert scene.known(rows) == [False] + [True] * 22


async def check_it_costs_ever_fewer_rounds(scene: Scene) -> None:
    await scene.start(23)
    await scene.rounds(300)
    assert 4 <= len(scene.refused) <= 8, "each may last as long as a statement does"
    assert not scene.failed, "the database answers"


async def check_its_old_rows_are_found_when_it_can_be_read(scene: Scene) -> None:
    await scene.start(7)
    rows = scene.old_rows()
    await scene.rounds(60)
    scene.fault = False
    await scene.rounds(95)
    assert all(scene.known(rows))
    rows = scene.old_rows()
    await scene.rounds(10.4)
    assert all(scene.known(rows))


async def check_its_new_rows_are_found_by_looks_from_the_margin(scene: Scene) -> None:
    await scene.start(1)
    for _ in range(20):
        row = scene.bench.put(scene.tasks[0], scene.bench.clock.now())
        await scene.rounds(4.2)
        assert scene.known([row]) == [True]
    assert not scene.failed


async def check_a_take_over_holds_up_nobody(scene: Scene) -> None:
    await scene.start(7, known=False)
    rows = scene.old_rows()
    await scene.rounds(0.4)
    assert scene.known(rows) == [False] + [True] * 6
    new = [scene.bench.put(task, scene.bench.clock.now()) for task in scene.tasks]
    scene.bench.owner._queues_changed([(row.tenant_id, int(row.priority)) for row in new])
    await scene.rounds(0.2)
    assert scene.known(new) == [True] * 7
    await scene.rounds(100)
    assert len(scene.refused) <= 8


async def check_it_is_followed_and_reviewed_all_the_same(scene: Scene) -> None:
    await scene.start(7)
    done: list[str] = []
    reader = scene.bench.owner.reader
    follow, review = reader._follow, reader._reviews.run_once

    async def followed() -> int:
        done.append("followed")
        return await follow()

    async def reviewed() -> None:
        done.append("reviewed")
        await review()

    reader._follow, reader._reviews.run_once = followed, reviewed  # type: ignore[method-assign]
    await scene.rounds(20)
    assert len(scene.refused) >= 1
    assert done == ["followed", "reviewed"] * scene.round


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


@pytest.mark.parametrize("check", CHECKS)
async def test_a_tenant_that_cannot_be_read_whole(scene: Scene, check: str) -> None:
    await CHECKS[check](scene)


async def test_it_is_named_once_and_again_when_it_can_be_read(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.start(7)
    await scene.rounds(120)
    scene.fault = False
    await scene.rounds(95)
    who = f"tenant {scene.at_fault}: its queues could "
    said = [record.getMessage().removeprefix(who) for record in caplog.records if who in record.getMessage()]
    assert said == [
        "not be read from their start; that is tried again",
        "be read from their start after all",
    ]
    assert "statement timeout" in caplog.text


async def test_an_outage_says_nothing_against_a_tenant(bench: EngineBench) -> None:
    scene = await Scene(bench).start(7)
    scene.fault = False
    bench.database.unavailable = True
    for _ in range(20):
        bench.clock.advance(2.0)
        with pytest.raises(StoreUnavailableError):
            await bench.owner.reader.run_once()
    bench.database.unavailable = False
    assert bench.owner.reader._turns._failed == {}
    rows = scene.old_rows()
    await scene.rounds(10.4)
    assert all(scene.known(rows))


# --- broken twins ------------------------------------------------------------------------------------------------


def stays(self: Turns, tenant_ids: Sequence[UUID]) -> tuple[list[UUID], list[UUID]]:
    """A turn is not over while it fails."""
    for failed in self._failed.values():
        failed.passes = 0
    others, in_turn = take(self, tenant_ids)
    if any(tenant_id in self._failed for tenant_id in in_turn):
        self._taken -= 1
    return others, in_turn


def all_together(self: Turns, tenant_ids: Sequence[UUID]) -> list[list[UUID]]:
    """Nobody is looked at alone."""
    return [list(tenant_ids)] if tenant_ids else []


def each_turn(self: Turns, tenant_id: UUID) -> None:
    """It passes over none of its turns."""


async def first_failure_ends_it(self: Reader) -> dict[str, int]:
    """A part that fails ends the round."""
    self._parts.begin()
    try:
        added = 0
        for group in self._turns.owed():
            added += await self._everything(group, "take_over")
        return {"added": added + await self._wake() + await self._follow()}
    finally:
        self._turns.settle(answered=False)


take = Turns.take

TWINS: tuple[tuple[type[object], str, object, str], ...] = (
    (Turns, "take", stays, "all_others_are_looked_at_whole"),
    (Turns, "groups", all_together, "all_others_are_looked_at_whole"),
    (Turns, "_pass_over", each_turn, "it_costs_ever_fewer_rounds"),
    (Reader, "run_once", first_failure_ends_it, "a_take_over_holds_up_nobody"),
)


@pytest.mark.parametrize(("owner", "name", "instead", "check"), TWINS)
async def test_a_broken_twin_is_caught(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, owner: type[object], name: str, instead: object, check: str
) -> None:
    monkeypatch.setattr(owner, name, instead)
    with pytest.raises(AssertionError):
        await CHECKS[check](scene)
