"""One tenant's queues, its usage and its room."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tocsin.common.models import Kind, Priority
from tocsin.common.store.rows import Pending
from tocsin.common.store.tenants import OwnedTenant, Tenant
from tocsin.engine.tenant import Queue, TenantScheduler, Usage

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)


def a_row(seconds: float, number: int, *, fence: int = 0, lane: int = 0) -> Pending:
    return Pending(
        run_id=UUID(int=number),
        fence=fence,
        tenant_id=UUID(int=1),
        task_id=UUID(int=2),
        priority=Priority.NORMAL,
        due_at=NOW + timedelta(seconds=seconds),
        slot=None,
        last_slot=None,
        lane=lane,
        kind=Kind.NOW,
        plan_version=1,
    )


def served(*shards: tuple[int, int, int], parts: int = 1, cap: int = 100) -> TenantScheduler:
    tenant = Tenant(UUID(int=1), "tenant", shards[0][0], 1.0, cap, None)
    return TenantScheduler([OwnedTenant(tenant, shard, first, last, parts) for shard, first, last in shards], 0.0)


def test_a_queue_is_in_due_order_and_of_one_instant_in_the_order_of_ids() -> None:
    queue = Queue()
    for row in (a_row(2, 1), a_row(1, 3), a_row(1, 2), a_row(0, 9)):
        queue.add(row)
    assert [row.run_id.int for row in queue] == [9, 2, 3, 1]
    assert [row.run_id.int for row in queue.due(NOW + timedelta(seconds=1))] == [9, 2, 3]
    assert queue.first_due() == NOW
    queue.discard(a_row(0, 9))
    queue.discard(a_row(1, 3))
    queue.discard(a_row(1, 4))  # not there
    queue.discard(a_row(3, 2))  # not at that place
    assert [row.run_id.int for row in queue] == [2, 1]
    assert len(queue) == 2


def test_an_empty_queue() -> None:
    assert Queue().first_due() is None
    assert list(Queue().due(NOW)) == []


def test_usage_has_a_half_life_of_ten_seconds() -> None:
    usage = Usage(0.0)
    used = usage.advance(1.0, 10)
    assert used == pytest.approx(10, rel=0.05)
    assert usage.advance(11.0, 0) == pytest.approx(used / 2)
    assert usage.advance(21.0, 0) == pytest.approx(used / 4)


def test_calls_in_flight_for_long_come_to_fourteen_seconds_each() -> None:
    usage = Usage(0.0)
    for second in range(1, 200):
        usage.advance(float(second), 3)
    assert usage.advance(200.0, 3) == pytest.approx(3 * 14.4, rel=0.01)


def test_usage_does_not_depend_on_how_often_it_is_looked_at() -> None:
    often, seldom = Usage(0.0), Usage(0.0)
    for step in range(1, 1001):
        often.advance(step / 100, 5)
    assert often.advance(10.0, 5) == pytest.approx(seldom.advance(10.0, 5))


def test_the_expected_length_of_a_call_follows_those_that_ended() -> None:
    usage = Usage(0.0)
    for _ in range(100):
        usage.call_ended(5.0)
    assert usage.mean_call == pytest.approx(5.0, rel=0.01)
    for _ in range(300):
        usage.call_ended(0.0)
    assert usage.mean_call == 0.001


def test_room_is_what_the_cap_leaves() -> None:
    tenant = served((0, 0, 1024))
    tenant.in_flight, tenant.held_elsewhere = 30, 25
    assert tenant.room == 45


@pytest.mark.parametrize(("mine", "cap"), [(1, 25), (2, 50), (4, 100)])
def test_the_shards_of_a_tenant_share_its_cap(mine: int, cap: int) -> None:
    shards = [(64 + n, n * 256, (n + 1) * 256) for n in range(mine)]
    assert served(*shards, parts=4).cap == cap
    assert served(*shards, parts=4, cap=2).cap >= 1


@pytest.mark.parametrize(("beyond", "room"), [(0, 20), (1, 19), (20, 0), (70, -50)])
def test_what_others_hold_beyond_their_parts_takes_room_here(beyond: int, room: int) -> None:
    """All of it, however large the others' parts are: these are theirs to fill."""
    tenant = served((64, 0, 256), parts=4)
    tenant.in_flight, tenant.held_elsewhere = 5, beyond
    assert tenant.room == room


def test_the_lanes_of_several_shards_of_one_tenant() -> None:
    tenant = served((64, 0, 256), (66, 512, 768), parts=4)
    assert tenant.lanes == [(0, 256), (512, 768)]
    assert served((66, 512, 768), (64, 0, 256), (65, 256, 512), parts=4).lanes == [(0, 768)]
    assert tenant.shards == {64, 66}
    assert [tenant.serves(a_row(0, 1, lane=lane)) for lane in (0, 255, 256, 511, 512, 767, 768)] == [
        True,
        True,
        False,
        False,
        True,
        True,
        False,
    ]
