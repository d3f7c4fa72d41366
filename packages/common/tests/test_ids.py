"""Identifiers: UUIDv7 that rise, and hashes that never change."""

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.common.clock import ManualClock
from tocsin.common.ids import LANES, SHARED_SHARDS, Ids, lane_of, planted_at, shard_of

NOW = datetime(2026, 3, 10, 12, 0, 0, 123_000, tzinfo=UTC)


def rise(make: Ids, clock: ManualClock) -> bool:
    """Ten thousand ids, the clock standing, moving on and stepping back between them."""
    ids = []
    for n in range(10_000):
        ids.append(make.new())
        if n % 1000 == 0:
            clock.advance(0.0015)
        if n == 7000:
            clock.set_wall(clock.now() - timedelta(hours=1))
    return ids == sorted(set(ids))


class NoCounter(Ids):
    """Broken: within a millisecond only chance decides."""

    def new(self, at: datetime | None = None) -> UUID:
        self._counter = self._rng.getrandbits(12)
        return super().new(at)


def test_ids_of_a_process_rise_within_a_millisecond_and_over_a_step_back() -> None:
    for ids, right in ((Ids, True), (NoCounter, False)):
        clock = ManualClock(NOW)
        assert rise(ids(clock, random.Random(1)), clock) is right


def test_an_id_is_a_version_7_uuid_of_its_millisecond() -> None:
    made = Ids(ManualClock(NOW), random.Random(1)).new()
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert planted_at(made) == NOW


def test_an_id_of_an_instant_says_that_instant_whatever_the_clock_shows() -> None:
    ids = Ids(ManualClock(NOW + timedelta(hours=1)), random.Random(1))
    first, second = ids.new(NOW), ids.new(NOW - timedelta(hours=1))
    assert planted_at(first) == planted_at(second) == NOW
    assert first < second
    assert planted_at(ids.separate().new(NOW - timedelta(hours=1))) == NOW - timedelta(hours=1)


def test_two_processes_make_different_ids() -> None:
    one, two = (Ids(ManualClock(NOW), random.Random(seed)) for seed in (1, 2))
    assert {one.new() for _ in range(100)}.isdisjoint({two.new() for _ in range(100)})


@pytest.mark.parametrize(
    ("value", "shard", "lane"), [(UUID(int=0), 14, 14), (UUID(int=1), 2, 898), (UUID(int=2**127), 21, 213)]
)
def test_shard_and_lane_are_the_same_in_every_version(value: UUID, shard: int, lane: int) -> None:
    """Stored in rows, so they may never change."""
    assert (shard_of(value), lane_of(value)) == (shard, lane)


@given(st.uuids())
def test_shard_and_lane_lie_in_their_ranges(value: UUID) -> None:
    assert 0 <= shard_of(value) < SHARED_SHARDS
    assert 0 <= lane_of(value) < LANES


def test_tenants_spread_over_the_shards() -> None:
    rng = random.Random(1)
    shards = [shard_of(UUID(int=rng.getrandbits(128))) for _ in range(6400)]
    counts = [shards.count(shard) for shard in range(SHARED_SHARDS)]
    assert min(counts) > 60
    assert max(counts) < 150
