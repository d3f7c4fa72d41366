"""Fairness: the owner's choice among the heads in memory, against a cap per tenant by row_number() over the backlog."""

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from bench.alone import alone
from bench.begin import median_ratio
from bench.frame import Measurement, Options, Screen
from bench.heads import Backlog, backlog, page
from bench.report import Environment, Figure, Report, at_least, at_most, exactly, median_milliseconds
from tocsin.cli.node import collect_garbage_rarely
from tocsin.common.clock import SystemClock
from tocsin.common.ids import LANES, Ids
from tocsin.common.models import Priority
from tocsin.common.store.rows import QueuePage, begun_of
from tocsin.common.store.tenants import OwnedTenant, Tenant
from tocsin.engine.board import Board
from tocsin.engine.read_config import ReadConfig
from tocsin.engine.tenant import PAGE, RowKey, key_of

TENANTS = 1000
DUE_EACH = 20
BACKLOGS = (10_000, 100_000, 1_000_000)
PICK = 500
CAP = 5
"""Runs of one tenant that the rival takes in one pick."""

PICKS, SHORT_PICKS = 30, 5
WARM_UP = 2
GROWTH = 1.5
ADVANTAGE = 2.0
UNFAIR = 2.0
"""Times its part by number, what the tenant with the backlog may have of the picks."""

_NO_CAP = 1_000_000

_ROW_NUMBER = """
select run_id
  from (select run_id, priority, due_at,
               row_number() over (partition by tenant_id order by priority, due_at, run_id) as place
          from pending where due_at <= now()) ranked
 where place <= $1
 order by priority, due_at
 limit $2
"""
"""In its strongest form: the index `pending_queue` gives the window its order, so nothing is sorted for it, and the
window stops numbering a tenant beyond the cap. It reads every due row all the same."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Seconds of one choice, and of reading as many rows on from the queues that it took from."""

    choose: float
    read: float

    @property
    def seconds(self) -> float:
        return self.choose + self.read


@dataclass(slots=True)
class Chooser:
    """An owner's memory over one database: the heads of every queue, and the picks among them."""

    due: Backlog
    board: Board
    now: datetime
    last: dict[UUID, RowKey]
    """By tenant, the last row that was read."""
    chosen: Counter[UUID]
    """By tenant, the runs that were picked."""

    async def fill(self) -> None:
        """Reads the heads of every queue, as many as memory holds."""
        portion = max(1, ReadConfig().batch // PAGE)
        tenants = [self.due.crowded, *self.due.tenants]
        for start in range(0, len(tenants), portion):
            await self._read([page(tenant_id, PAGE) for tenant_id in tenants[start : start + portion]])

    async def pick(self, count: int) -> Pick:
        """Chooses among what is in memory, and reads on."""
        began = time.perf_counter()
        rows = self.board.choose(self.now, count)
        choose = time.perf_counter() - began
        for row in rows:
            self.board.forget(row)
            self.board.take_flight(begun_of(row, 1), None)  # what a tenant has in flight counts against it
        taken = Counter(row.tenant_id for row in rows)
        self.chosen += taken
        pages = [QueuePage(t, Priority.NORMAL, 0, LANES, n, *self.last[t]) for t, n in taken.items()]
        return Pick(choose, await self._read(pages))

    async def _read(self, pages: Sequence[QueuePage]) -> float:
        began = time.perf_counter()
        rows = await self.due.store.runs.heads(pages, ReadConfig().lead)
        for row in rows:
            self.board.add(row)
            self.last[row.tenant_id] = key_of(row)
        return time.perf_counter() - began

    async def rival_pick(self, count: int) -> tuple[float, int]:
        """What the database takes to number the backlog for one pick; seconds, and the runs that it names."""
        began = time.perf_counter()
        rows = await self.due.connection.fetch(_ROW_NUMBER, CAP, count)
        return time.perf_counter() - began, len(rows)


def chooser(due: Backlog) -> Chooser:
    board = Board(SystemClock(), _NO_CAP)
    for tenant_id in (due.crowded, *due.tenants):
        board.add_tenant([OwnedTenant(Tenant(tenant_id, "", 0, 1.0, _NO_CAP, None), 0, 0, LANES, 1)])
    return Chooser(due, board, datetime.now(UTC), {}, Counter())


@dataclass(frozen=True, slots=True)
class Found:
    """By size of the backlog, picks taken in turn: ours and the rival's. `crowded_part`: of our picks, the greatest
    part that the tenant with the backlog had. `missed`: runs fewer than asked for, of either."""

    ours: Mapping[int, Sequence[Pick]]
    rival: Mapping[int, Sequence[float]]
    crowded_part: float
    missed: int


async def picks(choosers: Mapping[int, Chooser], count: int, rounds: int) -> Found:
    ours: dict[int, list[Pick]] = {size: [] for size in choosers}
    rival: dict[int, list[float]] = {size: [] for size in choosers}
    named = 0
    for each in choosers.values():
        await each.fill()
    for _ in range(WARM_UP + rounds):
        for size, each in choosers.items():
            ours[size].append(await each.pick(count))
            seconds, rows = await each.rival_pick(count)
            rival[size].append(seconds)
            named += rows
    asked = len(choosers) * (WARM_UP + rounds) * count
    chosen = sum(each.chosen.total() for each in choosers.values())
    return Found(
        {size: taken[WARM_UP:] for size, taken in ours.items()},
        {size: taken[WARM_UP:] for size, taken in rival.items()},
        max(each.chosen[each.due.crowded] / each.chosen.total() for each in choosers.values()),
        2 * asked - chosen - named,
    )


async def run(options: Options, screen: Screen) -> Report:
    ids = Ids(SystemClock(), random.Random(options.seed))
    tenants = [ids.new() for _ in range(options.amount(TENANTS, 10))]
    crowded = ids.new()
    count = options.amount(PICK, 5)
    rounds = options.amount(SHORT_PICKS if options.short else PICKS, 3)
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(alone(options, "the owner's memory and the store from one process"))
        sizes = [options.amount(size) for size in BACKLOGS]
        screen.say(f"seeding {', '.join(f'{size:,}' for size in sizes)} due runs of one tenant beside {len(tenants):,}")
        choosers = {
            size: chooser(await stack.enter_async_context(backlog(base.dsn, tenants, crowded, size, DUE_EACH)))
            for size in sizes
        }
        collect_garbage_rarely()  # as an executor does
        screen.say(f"{rounds} picks of {count:,} by the owner's choice and by row_number(), in turn")
        found = await picks(choosers, count, rounds)
    return report(found, len(tenants) + 1, base.environment)


def growth(seconds: Mapping[int, Sequence[float]]) -> float:
    """The median of the times beside the greatest backlog over those beside the smallest, pair by pair."""
    return median_ratio(seconds[min(seconds)], seconds[max(seconds)])


def report(found: Found, tenants: int, where: Environment) -> Report:
    ours = {size: [pick.seconds for pick in taken] for size, taken in found.ours.items()}
    largest, smallest = max(ours), min(ours)
    figures: dict[str, Figure] = {
        "tenants": tenants,
        "picks": len(ours[largest]),
        "row_number_growth": round(growth(found.rival), 1),
    }
    for size, taken in found.ours.items():
        figures |= {
            f"choose_ms_beside_{size}": median_milliseconds([pick.choose for pick in taken]),
            f"read_on_ms_beside_{size}": median_milliseconds([pick.read for pick in taken]),
            f"row_number_ms_beside_{size}": median_milliseconds(found.rival[size]),
        }
    return Report(
        test="fairness",
        environment=where,
        targets=[
            at_most(
                f"time of a pick beside {largest:,} due runs, times that beside {smallest:,}", GROWTH, growth(ours)
            ),
            at_least(
                "time of row_number() there, times that of a pick",
                ADVANTAGE,
                median_ratio(ours[largest], found.rival[largest]),
            ),
            at_most("part of the picks that the tenant with the backlog had", UNFAIR / tenants, found.crowded_part),
            exactly("runs fewer than asked for", 0, found.missed),
        ],
        figures=figures,
        not_meaning="a claim: row_number() only names the runs, where a claim would lock and move them too. A pick "
        "counts the choice and the reading of as many rows on; begin is the same for both, and in neither.",
    )


MEASUREMENT = Measurement(
    "fairness", "a pick costs the same beside 10,000 and 1,000,000 due runs; row_number() does not", run
)
