"""Where every cap has room for all that is due, nothing is chosen: all of it is begun, the most urgent first."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.common.clock import ManualClock
from tocsin.common.models import Kind, Priority
from tocsin.common.store.rows import Pending
from tocsin.common.store.tenants import OwnedTenant, Tenant
from tocsin.engine.board import Board
from tocsin.engine.tenant import TenantScheduler

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)

Due = list[tuple[int, int, int]]
"""(tenant, priority, milliseconds from now) of each row."""


def a_board(due: Due, cap: int, tenants: int = 3) -> Board:
    board = Board(ManualClock(NOW), process_cap=10_000)
    for number in range(tenants):
        tenant = Tenant(UUID(int=number), f"tenant {number}", 0, 1.0, cap, None)
        board.add_tenant([OwnedTenant(tenant, 0, 0, 1024, 1)])
    for number, (tenant_number, priority, milliseconds) in enumerate(due):
        row = Pending(
            run_id=UUID(int=number),
            fence=0,
            tenant_id=UUID(int=tenant_number),
            task_id=UUID(int=number),
            priority=Priority(priority),
            due_at=NOW + timedelta(milliseconds=milliseconds),
            slot=None,
            last_slot=None,
            lane=0,
            kind=Kind.NOW,
            plan_version=1,
        )
        assert board.add(row)
    return board


def held(rows: list[Pending], due: Due, cap: int, limit: int) -> bool:
    """Whether a choice kept to the limit, the caps and the instant, and left nothing that there was room for."""
    of_tenant = Counter(row.tenant_id.int for row in rows)
    ready = Counter(tenant for tenant, _, milliseconds in due if milliseconds <= 0)
    room = sum(min(count, cap) for count in ready.values())
    in_time = all(row.due_at <= NOW for row in rows)
    return in_time and all(count <= cap for count in of_tenant.values()) and len(rows) == min(limit, room)


rows_due = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-5, 2)), max_size=25)


@given(rows_due, st.integers(1, 12), st.integers(1, 30))
def test_nothing_is_left_that_there_is_room_for(due: Due, cap: int, limit: int) -> None:
    board = a_board(due, cap)
    rows = board.choose(NOW, limit)
    assert held(rows, due, cap, limit)
    queues = [queue for scheduler in board.tenants.values() for queue in scheduler.queues.values()]
    left = {row.run_id for queue in queues for row in queue}
    assert left == {UUID(int=number) for number in range(len(due))} - {row.run_id for row in rows}


@given(rows_due)
def test_where_there_is_room_for_all_the_most_urgent_goes_first(due: Due) -> None:
    rows = a_board(due, cap=100).choose(NOW, 1000)
    assert rows == sorted(rows, key=lambda row: (row.priority, row.due_at))


DUE: Due = [(0, 2, -1), (0, 0, -1), (0, 3, -4), (1, 1, -2), (1, 1, 1)]


def test_the_check_catches_a_board_that_takes_all_beyond_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    assert held(a_board(DUE, cap=2).choose(NOW, 10), DUE, 2, 10)
    monkeypatch.setattr(TenantScheduler, "room", property(lambda _self: 100))
    assert not held(a_board(DUE, cap=2).choose(NOW, 10), DUE, 2, 10)


def test_the_check_catches_a_board_that_takes_what_is_not_due(monkeypatch: pytest.MonkeyPatch) -> None:
    assert held(a_board(DUE, cap=9).choose(NOW, 10), DUE, 9, 10)
    due = TenantScheduler.due
    monkeypatch.setattr(TenantScheduler, "due", lambda self, until: due(self, until + timedelta(seconds=1)))
    assert not held(a_board(DUE, cap=9).choose(NOW, 10), DUE, 9, 10)


def test_the_count_of_picks_goes_on() -> None:
    board = a_board(DUE, cap=9)
    assert len(board.choose(NOW, 10)) == board._picks == 4
