"""The board: pairs that memory knows, rows kept aside, what is in flight and the caps it counts against."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tocsin.common.clock import ManualClock
from tocsin.common.models import AtSchedule, CallSpec, Kind, PlanSpec, Priority, TaskState
from tocsin.common.store.rows import Begun, Pending, Task, begun_of, returned
from tocsin.common.store.tenants import OwnedTenant, Tenant
from tocsin.engine.board import Board
from tocsin.engine.tenant import PAGE

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
TENANT = UUID(int=1)


def owned(tenant: UUID = TENANT, **changes: Any) -> OwnedTenant:
    values: dict[str, Any] = {"weight": 1.0, "max_in_flight": 100, "max_in_flight_per_endpoint": None}
    return OwnedTenant(Tenant(tenant, "tenant", 0, **{**values, **changes}), 0, 0, 1024, 1)


def a_board(*tenants: OwnedTenant, process_cap: int = 10_000) -> Board:
    board = Board(ManualClock(NOW), process_cap)
    for tenant in tenants or (owned(),):
        board.add_tenant([tenant])
    return board


def clock_of(board: Board) -> ManualClock:
    assert isinstance(board._clock, ManualClock)
    return board._clock


def a_row(number: int, **changes: Any) -> Pending:
    row = Pending(
        run_id=UUID(int=number),
        fence=0,
        tenant_id=TENANT,
        task_id=UUID(int=50),
        priority=Priority.NORMAL,
        due_at=NOW,
        slot=None,
        last_slot=None,
        lane=0,
        kind=Kind.NOW,
        plan_version=1,
    )
    return replace(row, **changes)


def a_task(number: int = 50, url: str = "https://example.com/") -> Task:
    plan = PlanSpec(schedule=AtSchedule(at=NOW))
    return Task(UUID(int=number), TENANT, "task", TaskState.ACTIVE, 1, 1, plan, CallSpec(url=url), None, NOW, NOW)


def chosen(board: Board, limit: int = 1000, until: datetime = NOW) -> list[int]:
    return [row.run_id.int for row in board.choose(until, limit)]


def fly(board: Board, row: Pending, task: Task | None = None) -> Begun:
    board.forget(row)
    run = begun_of(row, 1)
    board.take_flight(run, task)
    return run


# --- pairs ----------------------------------------------------------------------------------------------------------


def test_a_pair_is_taken_up_once() -> None:
    board = a_board()
    assert board.add(a_row(1))
    assert not board.add(a_row(1))
    assert board.known_of(TENANT, Priority.NORMAL) == 1
    assert chosen(board) == [1]
    assert not board.add(a_row(1))  # the begin is under way
    board.forget(a_row(1))
    assert board.known_of(TENANT, Priority.NORMAL) == 0
    assert board.add(a_row(1))


def test_rows_of_others_are_not_taken_up() -> None:
    board = Board(ManualClock(NOW), 100)
    board.add_tenant([replace(owned(), lane_first=0, lane_last=512)])
    assert not board.add(a_row(1, tenant_id=UUID(int=2)))
    assert not board.add(a_row(1, lane=512))
    assert board.add(a_row(1, lane=511))


def late_read_of_a_run_that_came_back(make: Callable[[], Board]) -> list[tuple[int, int]]:
    """A read is answered after its row was begun; then the run comes back, due at the same instant. What is chosen."""
    board = make()
    board.add(a_row(1))
    fly(board, board.choose(NOW, 1)[0])
    board.add(a_row(1))  # the read's snapshot is older than the begin
    run = begun_of(a_row(1), 1)
    board.land(run)
    board.add(returned(run, losses=1))
    return [(row.run_id.int, row.fence) for row in board.choose(NOW, 10)]


class IdsAndFencesApart(Board):
    """Broken: pairs are all alike, so an outdated one stands beside the one that came back."""

    def add(self, row: Pending) -> bool:
        self.tenants[row.tenant_id].queues[row.priority].add(row)
        return True


def test_a_run_that_comes_back_replaces_what_an_older_read_knew_of_it() -> None:
    assert late_read_of_a_run_that_came_back(a_board) == [(1, 1)]


def test_the_check_catches_a_board_that_keeps_both() -> None:
    def make() -> Board:
        board = IdsAndFencesApart(ManualClock(NOW), 100)
        board.add_tenant([owned()])
        return board

    with pytest.raises(TypeError):  # two rows of one run and one instant cannot be put in order
        late_read_of_a_run_that_came_back(make)


def test_an_older_pair_is_not_taken_up_and_takes_nothing_with_it() -> None:
    board = a_board()
    board.add(a_row(1, fence=2))
    assert board.knows(a_row(1, fence=1))
    assert not board.add(a_row(1, fence=1))
    board.forget(a_row(1, fence=1))
    board.readmit(a_row(1, fence=1))
    assert [row.fence for row in board.choose(NOW, 10)] == [2]


class TakesUpWhatIsBeingCalled(Board):
    """Broken: a pair from before the begin that is in flight is taken up."""

    def add(self, row: Pending) -> bool:
        flying = self.in_flight.pop((row.run_id, row.fence + 1), None)
        taken = super().add(row)
        if flying is not None:
            self.in_flight[row.run_id, row.fence + 1] = flying
        return taken


@pytest.mark.parametrize(("kind", "taken"), [(Board, False), (TakesUpWhatIsBeingCalled, True)])
def test_a_pair_whose_begin_is_in_flight_is_out_of_date(kind: type[Board], taken: bool) -> None:
    """A completion is recorded, its answer comes late; meanwhile the retry that it planted has been begun."""
    board = a_board()
    board.__class__ = kind
    row = a_row(1)
    fly(board, row)
    assert board.add(row) is taken


def test_what_is_out_of_date_is_not_held() -> None:
    board = a_board()
    row = a_row(1)
    board.defer(row, 0.5)
    board.take_flight(begun_of(row, 1), None)  # by a begin whose answer was lost, and found since
    board.readmit(row)
    assert not board.is_held(row)


def test_a_row_of_a_begin_that_did_not_happen_is_due_again() -> None:
    board = a_board()
    board.add(a_row(1))
    (row,) = board.choose(NOW, 10)
    assert chosen(board) == []
    board.readmit(row)
    assert chosen(board) == [1]


def test_a_tenant_that_is_dropped_is_forgotten_but_for_what_is_in_flight() -> None:
    board = a_board(owned(), owned(UUID(int=2)))
    board.secrets[TENANT] = ("secret",)
    for number in (1, 2, 3):
        board.add(a_row(number))
    board.add(a_row(4, tenant_id=UUID(int=2)))
    run = fly(board, board.choose(NOW, 1)[0])
    aside = board.choose(NOW, 1)[0]
    board.defer(aside, 10)
    in_a_begin = board.choose(NOW, 1)[0]
    board.drop_tenant(TENANT)
    board.readmit(in_a_begin)
    assert board.known_of(TENANT, Priority.NORMAL) == 0
    assert TENANT not in board.secrets
    assert list(board.in_flight.values()) == [run]
    board.add_tenant([owned()])
    assert board.tenants[TENANT].in_flight == 1
    assert not board.is_held(aside)
    assert board.add(aside)
    clock_of(board).advance(20)
    board.return_deferred()
    assert sorted(chosen(board)) == sorted([aside.run_id.int, 4])
    board.land(run)
    assert board.tenants[TENANT].in_flight == 0


def test_other_limits_of_a_tenant_keep_its_rows_and_other_shards_do_not() -> None:
    board = a_board()
    board.add(a_row(1))
    assert not board.add_tenant([owned(max_in_flight=5)])
    assert board.tenants[TENANT].cap == 5
    assert board.known_of(TENANT, Priority.NORMAL) == 1
    assert board.add_tenant([replace(owned(), shard=70)])
    assert board.known_of(TENANT, Priority.NORMAL) == 0


# --- rows aside -----------------------------------------------------------------------------------------------------


def test_a_row_aside_comes_back_when_its_time_is_over_and_is_held() -> None:
    board = a_board()
    board.add(a_row(1))
    (row,) = board.choose(NOW, 10)
    board.defer(row, 0.5)
    board.return_deferred()
    assert chosen(board) == []
    assert board.is_waiting(row.task_id)
    assert not board.add(row)  # a read finds it meanwhile
    clock_of(board).advance(0.5)
    board.return_deferred()
    assert chosen(board) == [1]
    assert board.is_held(row)
    board.forget(row)
    assert not board.is_held(row)


def test_rows_aside_come_back_when_their_task_is_free() -> None:
    board = a_board()
    for number, task in ((1, 50), (2, 51), (3, 50)):
        board.add(a_row(number, task_id=UUID(int=task)))
    for row in board.choose(NOW, 10):
        board.defer(row, 0.5)
    assert board.return_deferred_of(UUID(int=50))
    assert not board.return_deferred_of(UUID(int=50))
    assert sorted(chosen(board)) == [1, 3]
    clock_of(board).advance(1)
    board.return_deferred()  # the first two are not brought back a second time
    assert chosen(board) == [2]


def test_a_row_that_is_aside_twice_in_a_row_is_there_once() -> None:
    board = a_board()
    board.add(a_row(1))
    for _ in range(3):
        (row,) = board.choose(NOW, 10)
        board.defer(row, 0.5)
        board.return_deferred_of(row.task_id)
    clock_of(board).advance(2)
    board.return_deferred()
    assert chosen(board) == [1]


def test_a_row_aside_of_a_tenant_that_is_gone_is_forgotten() -> None:
    board = a_board()
    board.add(a_row(1))
    (row,) = board.choose(NOW, 1)
    board.drop_tenant(TENANT)
    board.defer(row, 0)
    board.return_deferred()
    assert not board.knows(row)
    assert not board.is_held(row)
    assert board.aside_of(TENANT, Priority.NORMAL) == 0


def held_row_without_place(board: Board) -> bool:
    """A held row behind a page of others that wait for a full endpoint. Whether it is known and held still."""
    board.definitions.put(a_task())
    row = a_row(10_000)
    board.add(row)
    board.defer(board.choose(NOW, 1)[0], 10)
    (owner,) = board.tenants.values()
    owner.owned = (owned(max_in_flight_per_endpoint=0),)
    board.return_deferred_of(row.task_id)
    for number in range(PAGE):
        board.add(a_row(number))
    assert board.choose(NOW, 10) == []
    return board.knows(row) and board.is_held(row) and board.aside_of(TENANT, Priority.NORMAL) == 1


def test_a_held_row_that_has_no_place_among_those_of_a_full_endpoint_is_put_aside() -> None:
    assert held_row_without_place(a_board())


class Forgets(Board):
    """Broken: what has no place is forgotten, held or not."""

    def _put_aside(self, row: Pending, until: float) -> None:
        if self._clock.monotonic() < until:
            super()._put_aside(row, until)
        else:
            self.forget(row)


def test_the_check_catches_a_board_that_forgets_it() -> None:
    board = Forgets(ManualClock(NOW), 10_000)
    board.add_tenant([owned()])
    assert not held_row_without_place(board)


# --- in flight ------------------------------------------------------------------------------------------------------


def test_the_caps_of_tenant_and_process() -> None:
    board = a_board(owned(max_in_flight=3), owned(UUID(int=2)), process_cap=5)
    for number in range(10):
        board.add(a_row(number))
        board.add(a_row(100 + number, tenant_id=UUID(int=2)))
    taken = board.choose(NOW, 1000)
    runs = [fly(board, row) for row in taken]
    assert sum(run.tenant_id == TENANT for run in runs) <= 3
    assert len(runs) == 5
    assert chosen(board) == []
    board.land(runs[0])
    assert len(chosen(board)) == 1


def test_runs_that_others_hold_count_against_the_cap() -> None:
    board = a_board(owned(max_in_flight=3))
    board.tenants[TENANT].held_elsewhere = 2
    for number in range(5):
        board.add(a_row(number))
    assert len(chosen(board)) == 1


def test_the_cap_of_an_endpoint() -> None:
    board = a_board(owned(max_in_flight_per_endpoint=2))
    tasks = {n: a_task(n, url) for n, url in ((50, "https://a.example/x"), (51, "https://a.example/y"))}
    tasks[52] = a_task(52, "https://b.example/")
    for task in tasks.values():
        board.definitions.put(task)
    for number in range(9):
        board.add(a_row(number, task_id=UUID(int=50 + number % 3)))
    rows = board.choose(NOW, 1000)
    assert [row.task_id.int for row in rows] == [50, 51, 52, 52]
    runs = [fly(board, row, tasks[row.task_id.int]) for row in rows]
    assert chosen(board) == []
    board.land(runs[0])
    assert len(board.choose(NOW, 1000)) == 1


def two_begins_of_one_run(board: Board) -> None:
    """The second begin comes before the owner has heard that the first one's result is stored."""
    row = a_row(1)
    board.add(row)
    first = fly(board, board.choose(NOW, 1)[0])
    again = replace(returned(first), due_at=NOW)
    board.add(again)
    second = fly(board, board.choose(NOW, 1)[0])
    assert board.tenants[TENANT].in_flight == 2
    board.land(first)
    assert list(board.in_flight.values()) == [second], "the second begin is no longer known"
    board.land(second)
    assert board.tenants[TENANT].in_flight == 0, "a place under the cap is lost"


class LandsByRun(Board):
    """Broken: what is in flight is known by its run's id alone."""

    def land(self, run: Begun) -> None:
        for pair in [pair for pair in self.in_flight if pair[0] == run.run_id]:
            super().land(self.in_flight[pair])


def test_each_begin_of_a_run_lands_by_itself() -> None:
    two_begins_of_one_run(a_board())
    broken = LandsByRun(ManualClock(NOW), 100)
    broken.add_tenant([owned()])
    with pytest.raises(AssertionError):
        two_begins_of_one_run(broken)


def test_landing_twice_counts_once() -> None:
    board = a_board()
    board.add(a_row(1))
    run = fly(board, board.choose(NOW, 1)[0])
    board.land(run)
    board.land(run)
    assert board.tenants[TENANT].in_flight == 0


def test_a_run_adds_to_its_tenants_usage() -> None:
    board = a_board(owned(), owned(UUID(int=2)))
    board.add(a_row(1))
    run = fly(board, board.choose(NOW, 1)[0])
    clock_of(board).advance(5)
    board.land(run)
    board.add(a_row(2, due_at=NOW - timedelta(hours=1)))
    board.add(a_row(3, tenant_id=UUID(int=2)))
    assert chosen(board, limit=1) == [3]


def test_the_turn_without_priority_is_kept_between_calls() -> None:
    board = a_board(owned(), owned(UUID(int=2)))
    for number in range(100):
        board.add(a_row(number, priority=Priority.CRITICAL, due_at=NOW + timedelta(seconds=1 + number)))
        other = a_row(1000 + number, tenant_id=UUID(int=2), priority=Priority.CRITICAL)
        board.add(replace(other, due_at=NOW + timedelta(seconds=1 + number)))
    board.add(a_row(5000, priority=Priority.LOW))
    picked = [chosen(board, limit=1, until=NOW + timedelta(days=1))[0] for _ in range(40)]
    assert 5000 in picked


def test_the_oldest_due_row() -> None:
    board = a_board()
    assert board.oldest_due() is None
    board.add(a_row(1, due_at=NOW + timedelta(seconds=3)))
    board.add(a_row(2, priority=Priority.LOW, due_at=NOW - timedelta(seconds=3)))
    assert board.oldest_due() == NOW - timedelta(seconds=3)
