"""What a store says of a task's slots, as one chain; and whether it is whole. It knows no rule of planning."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from property_tests.stepping import Links
from property_tests.wall_clock import Timeline
from tocsin.common.models import Kind
from tocsin.common.store.rows import SkipReason

TEN_YEARS = timedelta(days=10 * 366)
"""A skip that is longer may say a lower bound of its count."""


@dataclass(frozen=True, slots=True)
class Link:
    """Slots accounted for together: a run's one, or those of a skip (`reason` set). `last`: the slot before them."""

    run_id: UUID
    first: datetime
    until: datetime
    last: datetime | None
    kind: Kind
    count: int = 1
    exact: bool = True
    reason: SkipReason | None = None

    def __str__(self) -> str:
        if self.reason is None:
            return f"the run of {self.first:%Y-%m-%d %H:%M:%S}"
        return f"the skip ({self.reason}) from {self.first:%Y-%m-%d %H:%M:%S} to {self.until:%Y-%m-%d %H:%M:%S}"


def seconds(instant: datetime) -> int:
    """The last whole Unix second not after an instant."""
    return int(instant.timestamp() // 1)


def links_of(found: Links) -> list[Link]:
    """The links of a task, by their slots: its next row is none of them."""
    made: dict[UUID, Link] = {}
    live = [row for row in found.pending if row.kind is not Kind.NEXT] + list(found.running)
    for row in live:
        if row.slot is not None:
            made[row.run_id] = Link(row.run_id, row.slot, row.slot, row.last_slot, row.kind)
    for ended in found.history:
        if ended.state is None or ended.slot is None:
            continue
        reason = SkipReason(ended.reason) if ended.skip_count is not None and ended.reason else None
        made[ended.run_id] = Link(
            ended.run_id,
            ended.slot,
            ended.until_slot or ended.slot,
            ended.last_slot,
            ended.kind,
            ended.skip_count or 1,
            ended.skip_exact is not False,
            reason,
        )
    return sorted(made.values(), key=lambda link: link.first)


def check_places(found: Links) -> None:
    """A run is in one place: pending, running, or ended by one row for good."""
    places = [row.run_id for row in found.pending] + [run.run_id for run in found.running]
    places += [row.run_id for row in found.history if row.state is not None]
    assert len(places) == len(set(places)), "promises 1 and 5: a run is in two places, or ended twice"


def check_chain(links: Iterable[Link], timeline: Timeline, last: datetime | None) -> datetime | None:
    """Every slot of the timeline is in exactly one link, and each link names the slot before it.

    Returns the last slot accounted for.
    """
    for link in links:
        assert last is None or link.first > last, f"promise 2: the slot {link.first} is accounted for twice"
        expected = timeline.first_after(timeline.eras[0].since if last is None else seconds(last))
        assert expected == seconds(link.first), f"promise 1: {link} follows {last}, and not the next slot after that"
        assert link.last == last, f"promise 1: {link} says that another slot than {last} was before it"
        check_count(link, timeline)
        last = link.until
    return last


def check_count(link: Link, timeline: Timeline) -> None:
    assert link.until >= link.first, f"promise 8: {link} ends before it begins"
    if link.first == link.until:
        assert link.count == 1, f"promise 1: {link} counts wrong"
        return
    until = seconds(link.until)
    count = timeline.count(seconds(link.first) - 1, until)
    assert timeline.count(until - 1, until) == 1, f"promise 1: {link} ends where no slot is"
    if link.exact:
        assert link.count == count, f"promise 1: {link} says {link.count} slots, and has {count}"
    else:
        assert link.until - link.first > TEN_YEARS, f"promise 1: {link} says a bound where it can count"
        assert 0 < link.count <= count, f"promise 1: {link} says {link.count} slots, and has {count}"
