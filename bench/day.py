"""A day of the town in the running product: seeded, lived through, and judged by what became of a window's slots."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import repeat

from bench.delays import delay_charts
from bench.drive import Rig, judgement_figures, rig
from bench.frame import Options, Screen
from bench.ledger import Arrival, Judgement, SlotKey, judge, percentile
from bench.load import Planned, is_over, recorded_by_name, seed_tasks
from bench.names import NameServer, host_of
from bench.reach import Reach
from bench.report import Environment, Figure, Report, Target, exactly
from bench.series import Charts
from bench.system import Connection
from bench.town import TENANTS, Town, TownTask, make_town, next_meeting
from tocsin.common.models import AtSchedule, CallSpec, PlanSpec, Priority
from tocsin.common.time.schedule import next_slot

SHORT_PATIENCE = 0.2
"""Of the short forms: slow endpoints, timeouts and back-off take a fifth of their time."""

SHORTER = (
    " In the short form slow endpoints and timeouts take a fifth of their time: fewer calls are in flight at once."
)

END_SECONDS = 30.0
"""How much longer than its calls may take a run may take to end; what has not ended then is lost."""

SEEDING_SECONDS, SHORT_SEEDING_SECONDS = 27, 10
"""For the whole town, before a window that begins at once."""

BEFORE_SECONDS, SHORT_BEFORE_SECONDS = 13, 6
"""From the first slots of such a window to the meeting, for the whole town."""

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Window:
    """When what is due, all whole seconds: slots from `first` to `last` are judged, and crons meet at `meeting`."""

    first: datetime
    meeting: datetime
    last: datetime


def window_of(now: datetime, options: Options, after: timedelta, *, at_once: bool) -> Window:
    """The window around the next meeting, which ends `after` it.

    Crons meet at a full minute, the window begins with the full minute before it, and there is half a minute for the
    seeding. With `at_once` they meet at a second, by crons with a field for it, as soon as the town is seeded.
    """
    if not at_once:
        meeting = next_meeting(now, timedelta(seconds=90))
        return Window(meeting - timedelta(seconds=60), meeting, meeting + after)
    size = min(1.0, options.scale)
    seeding = SHORT_SEEDING_SECONDS if options.short else SEEDING_SECONDS
    before = SHORT_BEFORE_SECONDS if options.short else BEFORE_SECONDS
    first = now.replace(microsecond=0) + timedelta(seconds=3 + round(seeding * size))
    meeting = first + timedelta(seconds=2 + round(before * size))
    return Window(first, meeting, meeting + after)


@dataclass(frozen=True, slots=True)
class Lived:
    """A window of the town that has passed, the judgement on all of its slots, and the calls for them."""

    town: Town
    window: Window
    judgement: Judgement
    arrivals: Sequence[Arrival] = ()

    def delays(
        self,
        at: Callable[[datetime], bool],
        priorities: Collection[Priority] = tuple(Priority),
        of: Callable[[TownTask], bool] = lambda task: True,
    ) -> list[float]:
        """Start delays in seconds, rising, of the first attempts for these slots, priorities and tasks."""
        wanted = {task.id for task in self.town.tasks if task.plan.priority in priorities and of(task)}
        found = self.judgement.delay_of.items()
        return sorted(delay for (task_id, slot), delay in found if task_id in wanted and at(slot))

    def is_meeting(self, slot: datetime) -> bool:
        return slot == self.window.meeting

    def is_mark(self, slot: datetime) -> bool:
        """Whether crons of the town are due then."""
        return (slot - self.window.meeting) % timedelta(minutes=1) == timedelta()


@asynccontextmanager
async def town_rig(options: Options, screen: Screen, *, reach: Reach | None = None) -> AsyncIterator[Rig]:
    """The running product with the town's tenants, each under a host name of its own, which has been called once.

    `reach` is the network before the database, where not that of the options.
    """
    async with NameServer() as names:
        settings = {"TOCSIN_DNS_SERVERS": names.address}
        tenants = max(2, round(TENANTS * options.scale))
        async with rig(options, screen, tenants, reach=reach, settings=settings) as ready:
            await _call_each_tenant(ready)
            yield ready


async def _call_each_tenant(ready: Rig) -> None:
    """Names and connections are as in a town that has been there for long."""
    at = await ready.instant(2)
    plan = PlanSpec(schedule=AtSchedule(at=at))
    calls = (CallSpec(url=f"{_url(ready, number)}tail/") for number in range(len(ready.tenants)))
    tasks = [Planned(ready.ids.new(), *tenant, at) for tenant in zip(ready.tenants, repeat(plan), calls, strict=False)]
    await seed_tasks(ready.connection, ready.ids, "warm-up", tasks)
    await ready.screen.wait("calling each tenant once", END_SECONDS, _SometimesOver(ready.connection, at))
    await ready.endpoint.take()


def _url(ready: Rig, tenant: int) -> str:
    return f"http://{host_of(tenant)}:{ready.endpoint.port}/"


async def _now(ready: Rig) -> datetime:
    now: datetime = await ready.connection.fetchval("select clock_timestamp()")
    return now


async def next_window(ready: Rig, options: Options, after: timedelta, *, at_once: bool | None = None) -> Window:
    """The window from the database's now on; `at_once` as the options say, where not given."""
    return window_of(await _now(ready), options, after, at_once=options.short if at_once is None else at_once)


def town_of(options: Options, window: Window, *, peak: bool) -> Town:
    """The town of a window, with less patience in the short form."""
    patience = SHORT_PATIENCE if options.short else 1.0
    return make_town(options.seed, options.scale, window.first, window.meeting, peak=peak, patience=patience)


async def live(ready: Rig, town: Town, window: Window, name: str, wait: float = 0.0) -> Lived:
    """Seeds the town, waits until all runs of the window have ended, and judges them.

    `wait`: for so many seconds runs may have to wait for others of their tenant.

    Raises:
        RuntimeError: seeding took so long that the window had begun.
    """
    ready.screen.say(f"{name}: seeding {len(town.tasks):,} tasks of {town.tenants:,} tenants")
    planned = await asyncio.to_thread(lambda: list(_planned(ready, town, window.first)))
    await seed_tasks(ready.connection, ready.ids, name, planned)
    await ready.connection.execute("analyze tasks, pending")  # as where tasks have been for long
    if await _now(ready) >= window.first:
        raise RuntimeError("the town was seeded too late: its first tasks are due already")
    await ready.screen.wait(f"{name}: crons meet at {window.meeting:%H:%M:%S}", await ready.until(window.meeting))
    await ready.screen.wait(f"{name}: the rest of the window", await ready.until(window.last + _SECOND))
    over = _SometimesOver(ready.connection, window.last)
    await ready.screen.wait(f"{name}: the last to end", wait + town.longest + END_SECONDS, over)
    arrivals = [arrival for arrival in await ready.endpoint.take() if arrival.slot <= window.last]
    history = [row for row in await recorded_by_name(ready.connection, name) if row.slot <= window.last]
    expected = await asyncio.to_thread(town.expected, window.first, window.last)
    judgement = await asyncio.to_thread(judge, expected, arrivals, history, town.right_ends())
    return Lived(town, window, judgement, arrivals)


def _planned(ready: Rig, town: Town, first: datetime) -> Iterator[Planned]:
    """Every task with its first slot from `first` on. Tasks of one tenant and manner share their call."""
    calls: dict[tuple[int, str], CallSpec] = {}
    slots: dict[int, datetime | None] = {}
    for task in town.tasks:
        key = task.tenant, task.manner
        call = calls.get(key)
        if call is None:
            call = calls[key] = town.call(task, _url(ready, task.tenant))
        if id(task.plan) not in slots:
            slots[id(task.plan)] = next_slot(task.plan, first - _SECOND)
        slot = slots[id(task.plan)]
        assert slot is not None
        yield Planned(task.id, ready.tenants[task.tenant], task.plan, call, slot)


class _SometimesOver:
    """Whether all runs up to a slot have ended, asked for once a second: it reads all of the waiting rows."""

    def __init__(self, connection: Connection, last: datetime) -> None:
        self._connection = connection
        self._last = last
        self._asked = 0.0

    async def __call__(self) -> bool:
        if time.monotonic() - self._asked < 1.0:
            return False
        self._asked = time.monotonic()
        return bool(
            await self._connection.fetchval(
                "select not exists (select from pending where slot <= $1)"
                " and not exists (select from running where slot <= $1)",
                self._last,
            )
        )


async def end_town(ready: Rig) -> None:
    """Lets nothing be due any more, and waits for what is under way: it may come back into pending."""
    while True:
        await ready.connection.execute("delete from pending")
        if await is_over(ready.connection):
            break
        await asyncio.sleep(0.5)
    await ready.endpoint.take()


def faults(judgements: Sequence[Judgement]) -> list[Target]:
    """What must not happen, however late or slow anything is."""
    return [
        exactly("lost", 0, sum(judgement.lost for judgement in judgements)),
        exactly("duplicates", 0, sum(judgement.duplicates for judgement in judgements)),
        exactly(
            "skipped, early, unexpected, not ended as the endpoint had it",
            0,
            sum(judgement.other_faults for judgement in judgements),
        ),
    ]


def day_report(
    test: str,
    options: Options,
    days: Sequence[Lived],
    where: Environment,
    targets: Sequence[Target],
    figures: Mapping[str, Figure],
    charts: Charts,
    not_meaning: str,
) -> Report:
    """The report on days of the town: the targets, and that no run of any day was lost, doubled or ended wrongly."""
    judgements = [day.judgement for day in days]
    return Report(
        test=test,
        environment=where,
        targets=[*targets, *faults(judgements)],
        figures=figures,
        lost=sum(judgement.lost for judgement in judgements),
        duplicates=sum(judgement.duplicates for judgement in judgements),
        charts=charts,
        not_meaning=not_meaning + (SHORTER if options.short else ""),
    )


def town_figures(lived: Lived) -> dict[str, Figure]:
    """What the window held, and how it ended."""
    judgement = lived.judgement
    return {
        **judgement_figures(judgement),
        **{f"ended_{state}": count for state, count in sorted(judgement.ended.items())},
        "retried_attempts": judgement.retried,
    }


def delay_figures_of(name: str, rising: list[float]) -> dict[str, Figure]:
    """Count, median, p99 and the greatest delay, in milliseconds; nothing of none."""
    if not rising:
        return {f"{name}_count": 0}
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {f"{name}_{label}_ms": round(percentile(rising, share) * 1000, 1) for label, share in shares.items()}
    return {f"{name}_count": len(rising), **found}


def charts_of(lived: Lived) -> Charts:
    """The start delays of the window, by priority."""
    groups: dict[str, dict[SlotKey, float]] = {priority.name.lower(): {} for priority in Priority}
    group_of = {task.id: groups[task.plan.priority.name.lower()] for task in lived.town.tasks}
    for key, delay in lived.judgement.delay_of.items():
        group_of[key[0]][key] = delay
    return delay_charts(groups)


def by_priority(lived: Lived, name: str, at: Callable[[datetime], bool]) -> dict[str, Figure]:
    """The delays of these slots, by priority."""
    figures: dict[str, Figure] = {}
    for priority in Priority:
        figures.update(delay_figures_of(f"{name}_{priority.name.lower()}", lived.delays(at, (priority,))))
    return figures
