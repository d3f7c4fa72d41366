"""Promise 11: whatever the hint index says, the same runs are begun at the same instants, and history is the same.

One script is played by two executors over one store. The first asks an index; the trace is compared with that of
the same script without one. Readers that believe what they are told are caught by the same comparison.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from engine_bench import START, EngineBench, Executor
from tocsin.common.hints.lying import FailingHints, ForeignHints, InventedHints, StaleHints
from tocsin.common.hints.null import NullHints
from tocsin.common.hints.port import HintIndex
from tocsin.common.ids import LANES, Ids
from tocsin.common.models import EverySchedule, Kind, Overlap
from tocsin.common.states import RunState
from tocsin.common.store.rows import Pending, Task
from tocsin.common.store.tenants import OwnedTenant, Tenant
from tocsin.engine.hint_reader import HintReader
from tocsin.engine.read_config import ReadConfig

ROUNDS = 14
BACKLOG = 300


@dataclass
class Trace:
    """Round, executor, task, slot and fence of everything begun; and the rows of history, without ids and instants."""

    begun: list[tuple[int, str, str, str, int]] = field(default_factory=list)
    history: list[tuple[str, ...]] = field(default_factory=list)


class Script:
    """Two tenants of the first executor, one of the second; overlap, a cap, a backlog, retries, edits, a pause."""

    def __init__(self, hints: HintIndex, reader: type[HintReader] = HintReader) -> None:
        self.bench = EngineBench()
        self.hints = hints
        self.first, self.second = self.bench.first, self.bench.executor()
        self.second.owner.beginner._planner._ids = Ids(self.bench.clock, random.Random(3))
        config = ReadConfig(sweep_every=0.0)
        for executor in (self.first, self.second):
            executor.owner.reader._config = config
        owner = self.first.owner
        owner.reader._hints = reader(
            hints, owner.board, self.bench.clock, owner._database_clock, self.first.meter, config
        )
        self.names: dict[UUID, str] = {}
        self.trace = Trace()
        self.told: set[tuple[UUID, UUID]] = set()
        self.open: list[tuple[int, Executor, str]] = []

    async def play(self) -> Trace:
        await self.first.start()
        await self.second.start()
        await self.first.own()
        await self.second.own()
        await self._fill()
        for number in range(ROUNDS):
            await self._edit(number)
            await self._tell()
            await self._round(self.first, "first", number)
            await self._round(self.second, "second", number)
            self.bench.clock.advance(1.0)
            await self.first.beat()
            await self.second.beat()
        self.trace.history = sorted(
            (
                self.names[row.task_id],
                _second(row.slot),
                _second(row.until_slot),
                str(row.state),
                row.outcome,
                str(row.reason),
                str(row.fence),
            )
            for row in self.bench.database.history.values()
        )
        return self.trace

    async def _tenant_of(self, executor: Executor, **changes: Any) -> Tenant:
        while True:
            tenant = await self.bench.a_tenant(**changes)
            if tenant.shard in executor.owner.ownership.shards:
                return tenant

    async def _task(self, name: str, tenant: Tenant, every: int, **plan: Any) -> Task:
        task = await self.bench.a_task(tenant, schedule=self.bench.every(every), **plan)
        self.names[task.id] = name
        return task

    async def _fill(self) -> None:
        mine = await self._tenant_of(self.first)
        capped = await self._tenant_of(self.first, max_in_flight=40)
        others = await self._tenant_of(self.second)
        await self._task("plain", mine, 2)
        await self._task("rare", mine, 3600)
        await self._task("flaky", mine, 4)
        await self._task("slow", mine, 2, overlap=Overlap.SKIP)
        self.edited = await self._task("edited", mine, 3)
        self.paused = await self._task("paused", mine, 2)
        self.backlog = await self._task("backlog", capped, 3600)
        await self._task("of another", others, 2)

    async def _edit(self, number: int) -> None:
        tasks = self.bench.tasks
        if number == 1:
            for _ in range(BACKLOG):
                await tasks.run_now(self.backlog.tenant_id, self.backlog.id)
            self.first.owner.reader.want([(self.backlog.tenant_id, int(self.backlog.plan.priority))])
        if number == 4:
            faster = EverySchedule(every_seconds=2, anchor=START)
            await tasks.edit(
                self.edited.tenant_id,
                self.edited.id,
                lambda task, _now: replace(task, plan=task.plan.model_copy(update={"schedule": faster})),
            )
        if number == 5:
            await tasks.pause(self.paused.tenant_id, self.paused.id)

    async def _tell(self) -> None:
        """What a feeder would: everything that is pending, and what no longer is."""
        rows = list(self.bench.database.pending._rows.values())
        pending = {(row.tenant_id, row.run_id) for row in rows}
        gone = self.told - pending
        self.told |= pending
        with suppress(ConnectionError):
            await self.hints.add(rows)
            await self.hints.remove(list(gone))

    async def _round(self, executor: Executor, name: str, number: int) -> None:
        await executor.own()
        await executor.owner.reader.run_once()  # by a look at the queues
        await executor.owner.reader.run_once()  # by hints
        for run in await executor.begin():
            task = self.names[run.task_id]
            self.trace.begun.append((number, name, task, _second(run.slot), run.fence))
            if task == "slow":
                self.open.append((number + 3, executor, str(run.run_id)))
            elif task == "flaky" and run.fence == 1:
                await executor.end(run, None, retry_in=1.0)
            else:
                await executor.end(run)
        for entry in [entry for entry in self.open if entry[0] <= number and entry[1] is executor]:
            self.open.remove(entry)
            (run,) = [run for run in executor.owner.board.in_flight.values() if str(run.run_id) == entry[2]]
            await executor.end(run)


def _second(slot: datetime | None) -> str:
    return "-" if slot is None else f"{(slot - START).total_seconds():g}"


class SilentHints(StaleHints):
    """Never answers."""

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class BoundlessHints(StaleHints):
    """Names far more than it was asked for, each run twice."""

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        return [*self._rows, *(UUID(int=n) for n in range(3 * limit)), *self._rows]


WITHOUT: list[Trace] = []
"""The trace without hints, once it was played: the script is the same each time."""

INDEXES: dict[str, Callable[[], HintIndex]] = {
    "stale": StaleHints,
    "foreign": ForeignHints,
    "invented": lambda: InventedHints(random.Random(5)),
    "failing": FailingHints,
    "silent": SilentHints,
    "boundless": BoundlessHints,
}


async def differs(hints: HintIndex, reader: type[HintReader] = HintReader) -> bool:
    """Whether anything comes out otherwise than without hints."""
    return await Script(hints, reader).play() != await without_hints()


async def without_hints() -> Trace:
    if not WITHOUT:
        WITHOUT.append(await Script(NullHints()).play())
    return WITHOUT[0]


@pytest.mark.parametrize("make", INDEXES.values(), ids=INDEXES.keys())
async def test_promise_11_outcomes_are_those_without_hints(make: Callable[[], HintIndex]) -> None:
    assert not await differs(make())


async def test_promise_11_the_script_says_something() -> None:
    trace = await without_hints()
    assert trace == await Script(NullHints()).play()
    begun = [task for _, _, task, _, _ in trace.begun]
    assert begun.count("backlog") == BACKLOG
    assert begun.count("plain") == 6
    assert "rare" not in begun
    assert max(fence for _, _, task, _, fence in trace.begun if task == "flaky") == 2
    assert {name for _, name, task, _, _ in trace.begun if task == "of another"} == {"second"}
    states = {(row[0], row[3]) for row in trace.history}
    assert ("slow", RunState.SKIPPED) in states
    assert begun.count("edited") > 4


async def test_promise_11_what_is_asked_of_the_index() -> None:
    """Owned tenants only."""
    script = Script(hints := _Asked())
    await script.play()
    assert hints.asked
    tenants = script.bench.database.tenants
    shards = {tenants[tenant_id].shard for asked in hints.asked for tenant_id in asked}
    assert shards <= script.first.owner.ownership.shards


class _Asked(StaleHints):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[set[UUID]] = []

    async def due(self, tenant_ids: Collection[UUID], lead: float, limit: int) -> list[UUID]:
        self.asked.append(set(tenant_ids))
        return await super().due(tenant_ids, lead, limit)


async def test_a_named_run_is_found_without_a_sweep_and_without_a_notice() -> None:
    """What hints are for: the same begin, sooner."""

    async def begun_at_once(hints: HintIndex) -> int:
        script = Script(hints)
        await script.first.start()
        task = await script.bench.a_task(schedule=script.bench.every(3600))
        await script.first.go()
        await script.bench.tasks.run_now(task.tenant_id, task.id)
        await script._tell()
        script.bench.clock.advance(1.0)
        await script.first.beat()
        await script.first.owner.reader.run_once()
        return len(await script.first.begin())

    assert await begun_at_once(StaleHints()) == 1
    assert await begun_at_once(NullHints()) == 0


async def test_an_index_that_fails_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    await Script(FailingHints()).play()
    assert [record.getMessage() for record in caplog.records] == [
        "no hints (the hint index is gone); the sweep finds every row without them"
    ]
    caplog.clear()
    await Script(SilentHints()).play()
    assert [record.getMessage() for record in caplog.records] == [
        "no hints (TimeoutError); the sweep finds every row without them"
    ]


# --- readers that believe what they are told


LookUp = Callable[[Sequence[UUID]], Awaitable[list[Pending]]]


class TakesWhatItDoesNotOwn(HintReader):
    """Broken: a named run's tenant is served, whoever owns its shard."""

    async def read(self, look_up: LookUp) -> list[Pending] | None:
        named = await self._index.due(self._board.tenants.keys(), self._config.lead, self._config.batch)
        rows = await look_up(named)
        for tenant_id in {row.tenant_id for row in rows} - self._board.tenants.keys():
            tenant = Tenant(tenant_id, "another", 0, 1.0, 1000, None)
            self._board.add_tenant([OwnedTenant(tenant, tenant.shard, 0, LANES, 1)])
        return rows


class DoesNotLookUp(HintReader):
    """Broken: what is named is taken as due, as it was when the index heard of it."""

    async def read(self, look_up: LookUp) -> list[Pending] | None:
        assert isinstance(self._index, StaleHints)
        rows = self._index._rows.values()
        return [replace(row, due_at=self._database_clock.now()) for row in rows]


class LooksUpAndBelievesTheInstant(HintReader):
    """Broken: a named run that is pending counts as due, whatever its row says."""

    async def read(self, look_up: LookUp) -> list[Pending] | None:
        assert isinstance(self._index, StaleHints)
        found = {row.run_id for row in await look_up(list(self._index._rows))}
        told = [replace(row, due_at=self._database_clock.now()) for row in self._index._rows.values()]
        return [row for row in told if row.run_id in found or row.kind is Kind.NEXT]


@pytest.mark.parametrize(
    ("reader", "make"),
    [
        (TakesWhatItDoesNotOwn, ForeignHints),
        (DoesNotLookUp, StaleHints),
        (LooksUpAndBelievesTheInstant, StaleHints),
    ],
)
async def test_a_reader_that_believes_is_caught(reader: type[HintReader], make: Callable[[], HintIndex]) -> None:
    assert await differs(make(), reader)


class LetsItThrough(HintReader):
    """Broken: a failing index fails the round."""

    async def read(self, look_up: LookUp) -> list[Pending] | None:
        return await look_up(await self._index.due(self._board.tenants.keys(), self._config.lead, self._config.batch))


async def test_a_reader_that_lets_an_index_fail_its_round_is_caught() -> None:
    with pytest.raises(ConnectionError):
        await differs(FailingHints(), LetsItThrough)
