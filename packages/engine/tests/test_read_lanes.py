"""Read: an owner of some of a tenant's shards reads exactly their lanes, in order, be they side by side or not."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from engine_bench import SECOND, EngineBench, Executor
from tocsin.common.ids import LANES
from tocsin.common.store.rows import Pending, QueuePage
from tocsin.engine import read
from tocsin.engine.look import Look
from tocsin.engine.tenant import TenantScheduler

ROWS = 3000
MILLISECOND = timedelta(milliseconds=1)


class Lanes:
    """A tenant on shards of its own, of which one owner has some; what it read, and what it began."""

    def __init__(self, bench: EngineBench) -> None:
        self.bench = bench
        self.rows: list[Pending] = []
        self.read: list[Pending] = []
        self.begun: list[UUID] = []

    async def set(self, shards: int, mine: Sequence[int], lanes: Sequence[int]) -> Executor:
        """`lanes`: those of the backlog's rows, in turns."""
        tenant = await self.bench.a_tenant(max_in_flight=40 * shards)
        cell = await self.bench.store.tenants.open_cell(tenant.id, shards)
        numbers = sorted(number for number, shard in self.bench.database.shards.items() if shard.cell == cell)
        self.bench.replace_tenant(tenant, shard=numbers[0])
        owner = self.bench.executor()
        owner.owner.ownership._cell = cell
        await owner.start(cell)
        other = self.bench.executor()
        await other.owner._beat.register("elsewhere", 0, other.process, "2026a")
        for place, number in enumerate(numbers):
            mine_too = place in mine
            self.bench.database.shards[number].owner = owner.lease_id if mine_too else other.lease_id
        task = await self.bench.a_task(tenant, schedule=self.bench.every(7200))
        start = self.bench.clock.now() - timedelta(hours=1)
        self.rows = [self.bench.put(task, start + n * MILLISECOND, lane=lanes[n % len(lanes)]) for n in range(ROWS)]
        heads = owner.runs.heads

        async def noted(pages: Sequence[QueuePage], lead: float) -> list[Pending]:
            found = await heads(pages, lead)
            self.read += found
            return found

        owner.runs.heads = noted  # type: ignore[method-assign]
        tenants = await owner.store.leases.owned_tenants(owner.lease_id)
        await owner.owner.ownership._follow(tenants)
        return owner

    async def run(self, owner: Executor) -> None:
        for _ in range(120):
            self.bench.clock.advance(0.2)
            await owner.beat()
            await owner.owner.reader.run_once()
            for run in await owner.begin():
                self.begun.append(run.run_id)
                await owner.end(run)


CASES = pytest.mark.parametrize(
    ("shards", "mine", "lanes"),
    [
        (3, [0, 2], [5, 400, 900]),
        (3, [1], [5, 400, 900]),
        (3, [0, 1], [5, 400, 900]),
        (8, [0, 7], [5, 1000, *range(130, 890, 20)]),
        (4, [0, 2], [5, 6, 7, 8, 9, 10, 11, 12, 600]),  # one range has eight times the rows of the other
    ],
)


async def check_exact_and_in_order(shards: int, mine: list[int], lanes: list[int]) -> None:
    bench = EngineBench()
    await bench.start()
    scene = Lanes(bench)
    owner = await scene.set(shards, mine, lanes)
    served = {lane for n in mine for lane in range(n * LANES // shards, (n + 1) * LANES // shards)}
    await scene.run(owner)
    assert {row.lane for row in scene.read} <= served, "reads what others serve"
    assert scene.begun == [row.run_id for row in scene.rows if row.lane in served]


@CASES
async def test_the_lanes_of_an_owner_are_read_and_no_others(shards: int, mine: list[int], lanes: list[int]) -> None:
    await check_exact_and_in_order(shards, mine, lanes)


async def test_the_check_catches_a_read_of_all_between_the_first_lane_and_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = vars(TenantScheduler)["lanes"].fget

    def enclosing(self: TenantScheduler) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = exact(self)
        return [(ranges[0][0], ranges[-1][1])]

    monkeypatch.setattr(TenantScheduler, "lanes", property(enclosing))
    with pytest.raises(AssertionError, match="others serve"):
        await check_exact_and_in_order(3, [0, 2], [5, 400, 900])


async def test_the_check_catches_rows_taken_beyond_the_end_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of one range ends earlier than that of another: what the first has behind its end is not yet read."""

    def together(look: Look, rows: Sequence[Pending]) -> tuple[list[Pending], bool]:
        return sorted(rows, key=lambda row: (row.due_at, row.run_id)), len(rows) >= look[0].limit

    monkeypatch.setattr(read, "in_order", together)
    with pytest.raises(AssertionError):
        await check_exact_and_in_order(4, [0, 2], [5, 6, 7, 8, 9, 10, 11, 12, 600])


async def test_a_run_that_is_due_now_is_found_on_every_range(bench: EngineBench) -> None:
    scene = Lanes(bench)
    owner = await scene.set(3, [0, 2], [400])
    task = bench.database.tasks[scene.rows[0].task_id]
    for lane in (5, 900):
        bench.put(task, bench.clock.now() + SECOND, lane=lane)
    await scene.run(owner)
    assert len(scene.begun) == 2
