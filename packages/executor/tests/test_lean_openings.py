"""Openings: so many at once, a little apart, every place in turn, and none is held up by dead endpoints."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from lean_bench import manual_clock
from tocsin.executor.transport.lean_openings import FURTHER_APART, LATE_SECONDS, SLOW_SECONDS, Lane, Turn


@dataclass(eq=False)
class Wanted:
    place: str


@dataclass
class Traffic:
    """A lane whose openings only begin; the test moves its clock and fires its timer."""

    at_once: int = 2
    apart: float = 0.0
    places: int = 1_000
    begun: list[Wanted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = manual_clock()
        self.lane: Lane[Wanted] = Lane(
            self.begun.append, self.has_room, self.clock, at_once=self.at_once, apart=self.apart
        )

    def has_room(self, _ahead: bool) -> bool:
        return self.places > len(self.begun)

    def want(self, *places: str, turn: Turn = Turn.FIRST) -> list[Wanted]:
        wanted = [Wanted(place) for place in places]
        for each in wanted:
            self.lane.add(each, turn)
        return wanted

    @property
    def order(self) -> str:
        return "".join(each.place for each in self.begun)


async def test_only_so_many_are_under_way_at_once() -> None:
    traffic = Traffic(at_once=2)
    first, *_ = traffic.want("a", "b", "c", "d")
    assert traffic.order == "ab"
    traffic.lane.free(first)
    traffic.lane.free(first)  # over, and later slow: counted once
    assert traffic.order == "abc"


async def test_places_take_turns_whatever_one_of_them_wants() -> None:
    traffic = Traffic(at_once=1)
    traffic.want(*"aaaaabbc")
    for _ in range(7):
        traffic.lane.free(traffic.begun[-1])
    assert traffic.order == "aabcabaa"


async def test_they_begin_a_little_apart() -> None:
    traffic = Traffic(at_once=10, apart=0.002)
    traffic.want(*"abc")
    assert traffic.order == "a"
    traffic.lane.fire()  # early: nothing begins
    assert traffic.order == "a"
    for order in ("ab", "abc"):
        traffic.clock.advance(0.002)
        traffic.lane.fire()
        assert traffic.order == order
    traffic.lane.clear()


async def test_after_a_pause_the_first_one_begins_at_once() -> None:
    traffic = Traffic(at_once=10, apart=0.002)
    traffic.want("a")
    traffic.clock.advance(5)
    traffic.want("b")
    assert traffic.order == "ab"


async def test_one_that_is_slow_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[tuple[Any, ...]] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *timer: timers.append(timer))
    traffic = Traffic(at_once=1)
    slow, _ = traffic.want("a", "b")
    assert traffic.order == "a"
    ((seconds, call, opening),) = timers
    assert (seconds, opening) == (SLOW_SECONDS, slow)
    call(opening)
    assert traffic.order == "ab"


async def test_what_is_no_longer_wanted_does_not_begin() -> None:
    traffic = Traffic(at_once=1)
    first, second, third = traffic.want("a", "a", "b")
    assert not traffic.lane.remove(first)
    assert traffic.lane.remove(second)
    assert traffic.lane.remove(third)
    traffic.lane.free(first)
    assert traffic.order == "a"


async def test_without_room_they_wait() -> None:
    traffic = Traffic(places=1)
    traffic.want("a", "b")
    assert traffic.order == "a"
    traffic.places = 2
    traffic.lane.go()
    assert traffic.order == "ab"


async def test_what_nobody_waits_for_begins_after_all_else() -> None:
    traffic = Traffic(at_once=1)
    traffic.want(*"aab", turn=Turn.AHEAD)
    traffic.want("c", "c")
    assert traffic.order == "a"
    for _ in range(4):
        traffic.lane.free(traffic.begun[-1])
    assert traffic.order == "accab"


async def test_a_place_without_a_connection_goes_before_those_that_have_some() -> None:
    traffic = Traffic(at_once=1)
    traffic.want(*"aab", turn=Turn.FURTHER)
    traffic.want(*"cd")
    for _ in range(4):
        traffic.lane.free(traffic.begun[-1])
    assert traffic.order == "acdab"


@pytest.mark.parametrize(("late", "apart"), [(0.0, 0.002), (LATE_SECONDS + 0.001, 0.002 * FURTHER_APART)])
async def test_a_late_loop_opens_further_ones_farther_apart(
    late: float, apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(at_once=10, apart=0.002)
    timers: list[tuple[Any, ...]] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *timer: timers.append(timer))
    traffic.want(*"abcd", turn=Turn.FURTHER)
    traffic.clock.advance(0.002 + late)
    traffic.lane.fire()
    assert traffic.order == "ab"
    seconds, call = timers[-1]
    assert (round(seconds, 6), call) == (apart, traffic.lane.fire)
    traffic.clock.advance(apart)
    traffic.lane.fire()
    assert traffic.order == "abc"


async def test_a_late_loop_catches_up_with_first_ones() -> None:
    traffic = Traffic(at_once=4, apart=0.002)
    traffic.want(*"abcdefg")
    assert traffic.order == "a"
    traffic.clock.advance(0.004)
    traffic.lane.fire()
    assert traffic.order == "abc"
    traffic.clock.advance(1)
    traffic.lane.fire()
    assert traffic.order == "abcd", "no more than may be under way"
    traffic.lane.clear()


async def test_what_was_to_be_opened_ahead_is_taken_back() -> None:
    traffic = Traffic(at_once=1)
    (first,) = traffic.want("c")
    ahead = [Wanted("a"), Wanted("a")]
    for each in ahead:
        traffic.lane.add(each, Turn.AHEAD)
    assert traffic.lane.remove_ahead("a") == ahead
    assert traffic.lane.remove_ahead("b") == []
    traffic.lane.free(first)
    assert traffic.order == "c"


class Greedy(Lane[Wanted]):
    """Broken: one place after the other."""

    def add(self, opening: Wanted, turn: Turn) -> None:
        super().add(opening, turn)
        turns = self._turns[turn]
        for place in sorted(turns, key=str):
            turns.move_to_end(place)


async def test_the_check_of_turns_catches_a_lane_that_serves_the_first_place_first() -> None:
    traffic = Traffic(at_once=1)
    traffic.lane.__class__ = Greedy
    for place in "aabb":
        traffic.want(place)
        traffic.want("a")
        traffic.lane.free(traffic.begun[-1])
    assert traffic.order.startswith("aaaa")
