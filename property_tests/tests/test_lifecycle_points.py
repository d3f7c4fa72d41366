"""The lifecycle machine comes to each crash point and each statement, and is cut there in each way."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from property_tests.lifecycle import LifecycleMachine
from property_tests.lifecycle_faults import OWN_POINTS, STATEMENTS
from property_tests.lifecycle_points import BLOWS, NO_WAYS, WAYS, Blow, Way
from property_tests.lifecycle_tenants import API_POINTS
from property_tests.world.backends import MemoryBackend
from property_tests.world.process import Died, Injected, Process
from property_tests.world.promises import pairs_of
from property_tests.world.struck import STRUCK
from property_tests.world.wire import Fault
from tocsin.common.crashpoints import POINTS
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.leases import MemoryLeases
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.rows import BeginItem, BeginResult


def way_of(place: str) -> str:
    return WAYS[place.removesuffix(".before").removesuffix(".after")]


def in_struck(blow: Blow) -> tuple[str, str]:
    place, how = blow
    return place, how.value if isinstance(how, Fault) else how.__name__


def play(machine: LifecycleMachine, blows: Sequence[Blow]) -> list[Blow]:
    """One program with these blows; returns those that did not strike."""
    missed = []
    machine.begin_world(caps=[2], periods=[1], indexes=["none"], fails=False, opening="", blows=[])
    for number, blow in enumerate(blows):
        before = STRUCK[in_struck(blow)]
        machine.somebody_fails(pick=number, blows=[blow])
        machine.the_promises_hold()
        if STRUCK[in_struck(blow)] == before:
            missed.append(blow)
        machine.work(rounds=14, every=1.25, answered=True)  # a dead one is given up
    return missed


@pytest.mark.parametrize("way", sorted(set(WAYS.values())))
def test_each_blow_strikes_and_the_promises_hold(way: str) -> None:
    blows = [blow for blow in BLOWS if way_of(blow[0]) == way]
    machine = LifecycleMachine()
    try:
        assert play(machine, blows) == []
    finally:
        machine.teardown()


class WithoutAWay(LifecycleMachine):
    def to_an_answer(self, pick: int) -> Way:
        yield from ()


@pytest.fixture
def without_a_way() -> Iterator[WithoutAWay]:
    machine = WithoutAWay()
    yield machine
    machine.teardown()


def test_a_point_that_nobody_comes_to_is_noticed(without_a_way: WithoutAWay) -> None:
    assert play(without_a_way, [("complete.after", Died), ("beat.after", Died)]) == [("complete.after", Died)]


class Watched(LifecycleMachine):
    """`guilty`: the leases that each judge in turn was to end as its blow was about to strike."""

    def __init__(self) -> None:
        super().__init__()
        self.guilty: list[list[UUID]] = []

    def to_a_judgement(self, pick: int) -> Way:
        for threatened in self.way(pick):
            for each in threatened:
                assert isinstance(each, Process)
                assert isinstance(self.world.backend, MemoryBackend)
                self.guilty.append(would_end(self.world.backend.database, each))
            yield threatened

    def way(self, pick: int) -> Way:
        yield from super().to_a_judgement(pick)


class BesideTheLiving(Watched):
    """Judges where there is nobody to end."""

    def way(self, pick: int) -> Way:
        yield from self.to_a_round(pick)


def would_end(database: MemoryDatabase, judge: Process) -> list[UUID]:
    assert judge.lease_id is not None
    ended = judge.loop.run_until_complete(MemoryLeases(database).judge(judge.lease_id))
    for lease_id in ended:
        database.leases[lease_id].expired_at = None
        database.ended_backends.remove(lease_id)
    return ended


JUDGED: Sequence[Blow] = [blow for blow in BLOWS if blow[0].partition(".")[0] == "judge"]
ENDS: Sequence[Blow] = [("judge.after", Died), ("judge.after", Injected), ("judge", Fault.UNANSWERED)]
"""The blows that strike when the leases have ended already."""


def strike_judges(machine: Watched) -> None:
    """Each blow strikes a judge who has a lease to end, and which then has ended, or has not, as the blow would have
    it."""
    machine.begin_world(caps=[2], periods=[1], indexes=["none"], fails=False, opening="", blows=[])
    for number, blow in enumerate(JUDGED):
        machine.somebody_fails(pick=number, blows=[blow])
        (guilty,) = machine.guilty
        assert guilty, f"{blow} strikes a judge who has nobody to end"
        leases = machine.world.look().leases
        assert [leases[each] is not None for each in guilty] == [blow in ENDS] * len(guilty)
        machine.guilty.clear()
        machine.work(rounds=14, every=1.25, answered=True)


def test_a_judge_is_struck_over_a_lease_to_end() -> None:
    assert len(JUDGED) == 7
    machine = Watched()
    try:
        strike_judges(machine)
    finally:
        machine.teardown()


def test_a_judge_who_has_nobody_to_end_is_noticed() -> None:
    machine = BesideTheLiving()
    try:
        with pytest.raises(AssertionError, match="strikes a judge who has nobody to end"):
            strike_judges(machine)
    finally:
        machine.teardown()


def test_a_late_begin_arrives_though_its_senders_store_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[MemoryRuns] = []
    real = MemoryRuns.begin

    async def close(store: MemoryStore) -> None:
        closed.append(store.runs)

    async def begin(runs: MemoryRuns, lease_id: UUID, items: Sequence[BeginItem], note: Any = None) -> BeginResult:
        if runs in closed:
            raise StoreUnavailableError("the store is closed")
        return await real(runs, lease_id, items, note)

    monkeypatch.setattr(MemoryStore, "close", close)
    monkeypatch.setattr(MemoryRuns, "begin", begin)
    machine = LifecycleMachine()
    try:
        machine.begin_world(caps=[2], periods=[1], indexes=["none"], fails=False, opening="", blows=[])
        (process,) = machine.world.processes
        machine.world.run_now(*machine.task(0))
        process.wire.faults |= {"begin": Fault.LATE, "end_backend": Fault.REFUSED}
        process.step("read")
        process.step("begin")
        late, owner = process.wire.late, process.owner
        assert late is not None
        assert owner is not None
        process.die()
        process.loop.run_until_complete(owner._store.close())
        with pytest.raises(StoreUnavailableError):
            process.loop.run_until_complete(late.send())
        process.late_commit()
        began = {(item.row.run_id, item.row.fence + 1) for item in late.items}
        assert began
        assert began <= pairs_of(machine.world.look().running)
    finally:
        machine.teardown()


def test_every_point_has_its_blows_or_a_reason_why_none() -> None:
    struck = {place for place, how in BLOWS if how in (Died, Injected)}
    assert struck == {*OWN_POINTS, *API_POINTS}
    assert {point.partition(".")[0] for point in POINTS - struck} == NO_WAYS.keys()
    for statement in STATEMENTS:
        assert {how for place, how in BLOWS if place == statement} >= {Fault.REFUSED, Fault.LOST, Fault.UNANSWERED}
