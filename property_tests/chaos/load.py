"""The load: what tenants of a platform would have, `rate` runs a second of it, each slot known beforehand.

Most of it is seeded in bulk, as `bench.load` does it; run-nows and tasks at one instant also come through the API.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from bench.load import Load, seed
from bench.system import Connection
from property_tests.chaos.ledger import Known, SlotKey
from tocsin.cli.tenants import make_tenant
from tocsin.common.clock import Clock
from tocsin.common.ids import Ids
from tocsin.common.models import (
    AtSchedule,
    CallSpec,
    CronSchedule,
    EverySchedule,
    Misfire,
    PlanSpec,
    RetrySpec,
    Schedule,
)
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.time.schedule import due_at, last_slots

GRACE_SECONDS = 600
"""No outage here is longer: every slot runs, none is passed over as a misfire, but those of `brief`."""

AT_EVERY = 5
"""Seconds between the instants of the single tasks: a small peak each."""

START_MULTIPLE = 15
"""Unix seconds of the first slot are a multiple of it, and so a slot of every group."""

_SECOND = timedelta(seconds=1)
_DURATIONS = 20
_CAPPED_SECONDS = 0.3
_TENANTS = 20
_RETRY = RetrySpec(max_attempts=5, base_seconds=0.5)


@dataclass(frozen=True, slots=True)
class Group:
    """A part of the load. `share` of all runs, by tasks that are each due every `every` seconds, to `answer` of the
    endpoint, after 50 to 1,000 ms or what is given here."""

    name: str
    share: float
    every: int
    tenant: str = "shared"
    answer: str = "ok"
    milliseconds: tuple[int, int] = (50, 1000)
    cron: str | None = None
    spread: int = 1
    grace: int = GRACE_SECONDS
    misfire: Misfire = Misfire.FIRE_ONCE
    retry: RetrySpec = _RETRY
    judged: bool = True


GROUPS = (
    Group("second", 0.52, 1),
    Group("five", 0.15, 5, spread=5),
    Group("cron", 0.05, 3, cron="*/3 * * * * *", spread=3),
    Group("promoted", 0.08, 1, tenant="promoted"),
    Group("capped", 0.05, 1, tenant="capped", milliseconds=(300, 300), spread=0, judged=False),
    Group("flaky", 0.05, 1, answer="flaky", milliseconds=(50, 200)),
    Group("broken", 0.02, 1, answer="broken", milliseconds=(50, 50), retry=RetrySpec(max_attempts=2, base_seconds=0.3)),
    Group(
        *("deadline", 0.01, 5),
        spread=5,
        answer="broken",
        milliseconds=(50, 50),
        retry=RetrySpec(max_attempts=20, base_seconds=1.0, factor=1.0, cap_seconds=1.0, deadline_seconds=3),
    ),
    Group("brief", 0.02, 1, grace=3, misfire=Misfire.SKIP, judged=False),
)
AT_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Tenants:
    shared: Sequence[UUID]
    promoted: UUID
    capped: UUID
    cap: int

    def of(self, name: str) -> Sequence[UUID]:
        return {"shared": self.shared, "promoted": (self.promoted,), "capped": (self.capped,)}[name]


async def make_tenants(store: PostgresStore, clock: Clock, rate: int) -> Tenants:
    """The capped one may have twice the calls in flight that it needs on average; all of a second are due at once, so
    it comes to its cap in each."""
    cap = max(1, round(2 * rate * _share("capped") * _CAPPED_SECONDS))
    shared = [(await make_tenant(store, clock, f"shared {n}"))[0].id for n in range(_TENANTS)]
    promoted = (await make_tenant(store, clock, "promoted"))[0].id
    capped = (await make_tenant(store, clock, "capped", max_in_flight=cap))[0].id
    return Tenants(shared, promoted, capped, cap)


def _share(name: str) -> float:
    return next(group.share for group in GROUPS if group.name == name)


def loads_of(
    ids: Ids, rng: random.Random, tenants: Tenants, rate: int, first: datetime, seconds: int, url: str
) -> Iterator[tuple[Group, Load]]:
    """`first` is a multiple of `START_MULTIPLE`; the last slot is before `first + seconds`."""
    for group in GROUPS:
        count = max(1, round(rate * group.share * group.every))
        schedule: Schedule
        if group.cron is None:
            schedule = EverySchedule(every_seconds=group.every, anchor=first)
        else:
            schedule = CronSchedule(cron=group.cron)
        yield group, _load(group, group.name, schedule, ids, rng, tenants, count, first, seconds, url)
    at = Group("at", AT_SHARE, AT_EVERY, spread=0)
    for offset in range(AT_EVERY, seconds, AT_EVERY):
        instant = first + offset * _SECOND
        count = max(1, round(rate * AT_SHARE * AT_EVERY))
        name = f"at {offset}"
        yield at, _load(at, name, AtSchedule(at=instant), ids, rng, tenants, count, instant, seconds - offset, url)


def _load(
    group: Group,
    name: str,
    schedule: Schedule,
    ids: Ids,
    rng: random.Random,
    tenants: Tenants,
    count: int,
    first: datetime,
    seconds: int,
    url: str,
) -> Load:
    plan = PlanSpec(
        schedule=schedule,
        start=first,
        end=first + seconds * _SECOND,
        spread_seconds=group.spread,
        grace_seconds=group.grace,
        misfire=group.misfire,
    )
    low, high = group.milliseconds
    calls = [
        CallSpec(url=f"{url}{group.answer}/{rng.randint(low, high)}/{n}", retry=group.retry) for n in range(_DURATIONS)
    ]
    owners = tenants.of(group.tenant)
    made = [(ids.new(), owners[n % len(owners)]) for n in range(count)]
    return Load(name, count, first, seconds, made, plan, calls)


async def seed_all(
    connection: Connection, ids: Ids, parts: Sequence[tuple[Group, Load]]
) -> tuple[dict[SlotKey, float], dict[UUID, Known]]:
    """Puts the tasks in; returns each slot's due instant, and what is known of each task."""
    expected: dict[SlotKey, float] = {}
    tasks: dict[UUID, Known] = {}
    for group, load in parts:
        await seed(connection, ids, load)
        expected.update(expected_of(load))
        fails, deadline = group.answer == "broken", group.retry.deadline_seconds
        grace = group.grace if group.misfire is Misfire.SKIP else None
        tasks.update({t: Known(tenant, group.name, group.judged, fails, deadline, grace) for t, tenant in load.tasks})
    return expected, tasks


def expected_of(load: Load) -> dict[SlotKey, float]:
    """Every slot of a load, with its due instant. The offset of a spread is the same at each slot."""
    slots = [slot.timestamp() for slot in last_slots(load.plan, load.first - _SECOND, load.end, 10_000_000)]
    due: dict[SlotKey, float] = {}
    for task_id, _ in load.tasks:
        offset = (due_at(load.plan, task_id, load.first) - load.first).total_seconds()
        due.update({(task_id, slot): slot + offset for slot in slots})
    return due


def first_slot(now: datetime, lead: float) -> datetime:
    """The first slot of a load that is to begin at least `lead` seconds after `now`."""
    earliest = now.timestamp() + lead
    return datetime.fromtimestamp(-(-earliest // START_MULTIPLE) * START_MULTIPLE, now.tzinfo)
