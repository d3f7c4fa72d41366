"""The town: the load model of a multi-tenant scheduler's ordinary day, as a pure function of seed, scale and instants.

1,000 tenants have 50,000 tasks, 40 % of them in the hands of the ten largest tenants. Cron texts are real ones, shifted
so that every minute, every five minutes, hourly and daily tasks meet at one instant: no clock is shifted.

Shares are exact at every scale, by the largest remainder; who has what is shuffled by the seed.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

from bench.ledger import SlotKey
from bench.manners import manner_of, possible_ends
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids
from tocsin.common.models import AtSchedule, CallSpec, CronSchedule, PlanSpec, Priority, RetrySpec
from tocsin.common.time.schedule import next_slot

TENANTS = 1_000
TASKS = 50_000
LARGEST_TENANTS = 10
LARGEST_PERCENT = 40
ONE_OFF_SPAN = timedelta(hours=1)
"""Over which one-off tasks are spread: 20,000 make 5.6 a second."""

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 3
BACKOFF_SECONDS = 5.0
_SLACK_SECONDS = 2.0
"""Within which an answer and the timeout may have come in either order."""

T = TypeVar("T")


class Rhythm(StrEnum):
    """How often a task is due."""

    MINUTE = "every minute"
    FIVE_MINUTES = "every five minutes"
    HOURLY = "hourly"
    DAILY = "daily"
    ONE_OFF = "one-off"


RHYTHMS: Mapping[Rhythm, int] = {
    Rhythm.MINUTE: 2,
    Rhythm.FIVE_MINUTES: 8,
    Rhythm.HOURLY: 20,
    Rhythm.DAILY: 30,
    Rhythm.ONE_OFF: 40,
}
"""Percent of the tasks; so are the others."""

PRIORITIES: Mapping[Priority, int] = {
    Priority.CRITICAL: 5,
    Priority.HIGH: 15,
    Priority.NORMAL: 60,
    Priority.LOW: 20,
}


def mix(patience: float) -> dict[str, int]:
    """The endpoints by the path that makes them so: fast with a long tail, slow, very slow (one in 21 calls takes
    longer than the timeout), flaky, down. `patience` multiplies the times of the slow ones."""
    slow, very_slow, longest = (round(seconds * 1000 * patience) for seconds in (1, 10, 31))
    return {
        "tail": 80,
        f"{slow}-{very_slow}ms": 12,
        f"{very_slow}-{longest}ms": 5,
        "flaky": 2,
        "reset": 1,
    }


@dataclass(frozen=True, slots=True)
class TownTask:
    """`tenant` is a number below the town's tenants; `manner` the first segment of the endpoint's path."""

    id: UUID
    tenant: int
    rhythm: Rhythm
    manner: str
    plan: PlanSpec


@dataclass(frozen=True, slots=True)
class Town:
    """The tasks, and how much patience their calls have: it multiplies timeout and back-off."""

    tenants: int
    tasks: Sequence[TownTask]
    patience: float

    def call(self, task: TownTask, url: str) -> CallSpec:
        """The task's request; `url` is its tenant's address, with a slash at its end."""
        return CallSpec(
            url=f"{url}{task.manner}/",
            timeout_seconds=self.timeout,
            retry=RetrySpec(max_attempts=ATTEMPTS, base_seconds=BACKOFF_SECONDS * self.patience),
        )

    @property
    def timeout(self) -> float:
        return TIMEOUT_SECONDS * self.patience

    @property
    def longest(self) -> float:
        """Seconds after which every run has ended: its attempts all time out, and wait as long as they may."""
        return (ATTEMPTS * TIMEOUT_SECONDS + 3 * BACKOFF_SECONDS) * self.patience

    def expected(self, first: datetime, last: datetime) -> dict[SlotKey, float]:
        """Every slot from `first` to `last`, both included, with its due instant in Unix seconds."""
        slots: dict[int, list[datetime]] = {}  # tasks of one plan share it
        due: dict[SlotKey, float] = {}
        for task in self.tasks:
            if (mine := slots.get(id(task.plan))) is None:
                mine = slots[id(task.plan)] = list(_slots(task.plan, first, last))
            due.update(((task.id, slot), slot.timestamp()) for slot in mine)
        return due

    def right_ends(self) -> Callable[[UUID, UUID], Collection[str]]:
        """The states in which a run may end, by its task and its id, as the judgement asks for them."""
        manners = {task.id: manner_of(task.manner.encode()) for task in self.tasks}

        def ends(task_id: UUID, run_id: UUID) -> Collection[str]:
            manner, run = manners[task_id], str(run_id).encode()
            return possible_ends(
                lambda attempt: manner.answer(run, str(attempt).encode()), ATTEMPTS, self.timeout, _SLACK_SECONDS
            )

        return ends

    def with_own_peak(self, tenant: int, meeting: datetime) -> "Town":
        """The same town, but for the crons of one tenant: its hourly and daily ones too meet at this instant."""
        plans = _cron_plans(meeting, peak=True)
        tasks = [
            replace(task, plan=plans.get((task.rhythm, task.plan.priority), task.plan))
            if task.tenant == tenant
            else task
            for task in self.tasks
        ]
        return replace(self, tasks=tasks)

    def with_manner(self, tenant: int, manner: str) -> "Town":
        """The same town, but for the endpoints of one tenant."""
        tasks = [replace(task, manner=manner) if task.tenant == tenant else task for task in self.tasks]
        return replace(self, tasks=tasks)


def _slots(plan: PlanSpec, first: datetime, last: datetime) -> Iterable[datetime]:
    slot = next_slot(plan, first - timedelta(seconds=1))
    while slot is not None and slot <= last:
        yield slot
        slot = next_slot(plan, slot)


def make_town(
    seed: int, scale: float, first: datetime, meeting: datetime, *, peak: bool, patience: float = 1.0
) -> Town:
    """The town whose one-off tasks are due within an hour from `first` on, and whose crons meet at `meeting`.

    Both are whole seconds. Without `peak` hourly and daily tasks keep away, half of their period: an ordinary day.
    """
    rng = random.Random(seed)
    ids = Ids(SystemClock(), rng)
    count = max(5, round(TASKS * scale))
    tenants = max(2, round(TENANTS * scale))
    owners = _owners(count, tenants, max(1, round(LARGEST_TENANTS * scale)))
    rhythms, manners, priorities = (
        _shuffled(shared_out(count, shares), rng) for shares in (RHYTHMS, mix(patience), PRIORITIES)
    )
    plans = _cron_plans(meeting, peak=peak)
    tasks = []
    for owner, rhythm, manner, priority in zip(owners, rhythms, manners, priorities, strict=True):
        plan = plans.get((rhythm, priority))
        if plan is None:
            at = first + timedelta(seconds=rng.randrange(int(ONE_OFF_SPAN.total_seconds())))
            plan = PlanSpec(schedule=AtSchedule(at=at), priority=priority)
        tasks.append(TownTask(ids.new(first), owner, rhythm, manner, plan))
    return Town(tenants, tasks, patience)


def _cron_plans(meeting: datetime, *, peak: bool) -> dict[tuple[Rhythm, Priority], PlanSpec]:
    """One for all tasks of a rhythm and a priority."""
    return {
        (rhythm, priority): PlanSpec(schedule=CronSchedule(cron=text), priority=priority)
        for rhythm, text in cron_texts(meeting, peak=peak).items()
        for priority in Priority
    }


def cron_texts(meeting: datetime, *, peak: bool) -> dict[Rhythm, str]:
    """Five fields where the meeting is a full minute, else six, with the seconds first."""
    away = timedelta() if peak else timedelta(hours=12, minutes=30)
    hourly, daily = meeting + away, meeting + away
    second = f"{meeting.second} " if meeting.second else ""
    return {
        Rhythm.MINUTE: f"{second}* * * * *",
        Rhythm.FIVE_MINUTES: f"{second}{meeting.minute % 5}-59/5 * * * *",
        Rhythm.HOURLY: f"{second}{hourly.minute} * * * *",
        Rhythm.DAILY: f"{second}{daily.minute} {daily.hour} * * *",
    }


def next_meeting(now: datetime, ahead: timedelta) -> datetime:
    """The first full minute that is at least so far ahead."""
    least = now + ahead
    minute = least.replace(second=0, microsecond=0)
    return minute if minute == least else minute + timedelta(minutes=1)


def shared_out(count: int, percents: Mapping[T, int]) -> list[T]:
    """`count` things by their shares, rounded by the largest remainder."""
    amounts = {thing: count * percent // 100 for thing, percent in percents.items()}
    by_remainder = sorted(percents, key=lambda thing: count * percents[thing] % 100, reverse=True)
    for thing in by_remainder[: count - sum(amounts.values())]:
        amounts[thing] += 1
    return [thing for thing, amount in amounts.items() for _ in range(amount)]


def _owners(count: int, tenants: int, largest: int) -> list[int]:
    """Each task's tenant: the first `largest` share their part evenly, the others the rest."""
    theirs = round(count * LARGEST_PERCENT / 100)
    others = tenants - largest
    return [n % largest for n in range(theirs)] + [largest + n % others for n in range(count - theirs)]


def _shuffled(things: list[T], rng: random.Random) -> list[T]:
    rng.shuffle(things)
    return things
