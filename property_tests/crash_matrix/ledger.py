"""The judgement of one cell: what was due, what the endpoint saw and what the database says. Values in, values out."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from uuid import UUID

COMMIT_SECONDS = 0.5
"""The longest that an answered call may wait for the commit of its result, and so be in flight."""

ARRIVAL_SECONDS = 0.25
"""The longest that a call may be on its way: what a process had sent when it failed was in flight. The endpoint is in
the harness's own loop, which has little else to do; in chaos it is a process under load, and that takes longer."""


@dataclass(slots=True)
class Call:
    """One request as the endpoint saw it. Unix seconds; `ended`: when it was answered, or its caller hung up."""

    at: float
    run_id: UUID
    task_id: UUID
    fence: int
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the run tables. `state` of a row of history: null for an attempt that was not the last; of the others
    `pending` or `running`. Of a skip, `slot` to `until_slot` are the slots without a run."""

    run_id: UUID
    task_id: UUID
    kind: str
    slot: datetime | None
    last_slot: datetime | None
    fence: int
    state: str | None
    until_slot: datetime | None = None
    outcome: str | None = None
    sent: bool = False
    stale: bool = False
    lease_id: UUID | None = None

    @property
    def is_live(self) -> bool:
        return self.state in ("pending", "running")


@dataclass(frozen=True, slots=True)
class Death:
    """A process that failed at the Unix second `at`, with the leases that it had held."""

    leases: frozenset[UUID]
    at: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """`slots`: those that each task must account for, by the seeding. `next_rows`: how many each task must have, where
    it is not none."""

    slots: Mapping[UUID, Collection[datetime]]
    calls: Sequence[Call]
    rows: Sequence[Row]
    deaths: Sequence[Death] = ()
    next_rows: Mapping[UUID, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Counts. `lost`: slots without a terminal run or a recorded skip, gaps and repeats of a chain, runs that never
    ended or ended twice, missing or surplus next rows. `unrecorded`: calls without a recorded attempt. `unseen`:
    recorded answers of calls that the endpoint never saw. `duplicates`: calls of a run beyond the attempts that had an
    end of their own. `bound`: calls in flight in the processes that failed. `strays`: duplicates of runs that were in
    flight in none of them. `first_again`: Unix second of the first duplicate, nan of none."""

    lost: int
    unrecorded: int
    unseen: int
    duplicates: int
    bound: int
    strays: int
    first_again: float
    faults: Sequence[str]

    @property
    def held(self) -> bool:
        return not (self.lost or self.unrecorded or self.unseen or self.strays) and self.duplicates <= self.bound


def judge(ledger: Ledger) -> Judgement:
    """Holds the two ledgers against each other."""
    losses = [*_missing_slots(ledger), *_chain_faults(ledger), *_unended(ledger)]
    recorded = {(row.run_id, row.fence) for row in ledger.rows if row.sent}
    made = Counter((call.run_id, call.fence) for call in ledger.calls)
    unrecorded = [key for key, count in made.items() for _ in range(count - (key in recorded))]
    answered = {(r.run_id, r.fence) for r in ledger.rows if r.sent and r.outcome != "lost" and not r.stale}
    unseen = [key for key in answered if key not in made]
    again = _duplicates(ledger.calls, answered)
    open_then = _in_flight(ledger, answered)
    strays = [call for call in again if call.run_id not in open_then]
    return Judgement(
        lost=len(losses),
        unrecorded=len(unrecorded),
        unseen=len(unseen),
        duplicates=len(again),
        bound=sum(open_then.values()),
        strays=len(strays),
        first_again=min((call.at for call in again), default=math.nan),
        faults=[
            *losses,
            *(f"call without a recorded attempt: run {run}, fence {fence}" for run, fence in unrecorded),
            *(f"recorded as sent, never seen: run {run}, fence {fence}" for run, fence in unseen),
            *(f"called again, though not in flight: run {call.run_id}, fence {call.fence}" for call in strays),
        ],
    )


def _missing_slots(ledger: Ledger) -> list[str]:
    """Slots that must be accounted for, and are in no terminal run and no recorded skip."""
    ended: defaultdict[UUID, set[datetime]] = defaultdict(set)
    skips: defaultdict[UUID, list[tuple[datetime, datetime]]] = defaultdict(list)
    for row in ledger.rows:
        if row.slot is None or row.state is None or row.is_live or row.stale:
            continue
        if row.state == "skipped":
            skips[row.task_id].append((row.slot, row.until_slot or row.slot))
        else:
            ended[row.task_id].add(row.slot)
    return [
        f"lost: task {task_id}, slot {slot.isoformat()}"
        for task_id, slots in ledger.slots.items()
        for slot in slots
        if slot not in ended[task_id] and not any(first <= slot <= last for first, last in skips[task_id])
    ]


def _chain_faults(ledger: Ledger) -> list[str]:
    """Gaps and repeats in the chain of each task's slots, and a wrong number of next rows."""
    links: defaultdict[UUID, dict[tuple[UUID, datetime], Row]] = defaultdict(dict)
    found: Counter[UUID] = Counter()
    for row in ledger.rows:
        if row.kind == "next" and row.state == "pending":
            found[row.task_id] += 1
        if row.slot is not None and not row.stale:
            links[row.task_id][row.run_id, row.slot] = row
    faults = []
    for task_id, of_task in links.items():
        chain = sorted(of_task.values(), key=lambda row: (row.slot, row.run_id))
        for before, after in pairwise(chain):
            until = before.until_slot or before.slot
            if after.last_slot != until:
                assert until is not None
                is_repeat = after.last_slot is not None and after.last_slot < until
                faults.append(f"{'repeat' if is_repeat else 'gap'}: task {task_id}, {until} then {after.slot}")
    for task_id in {*ledger.slots, *ledger.next_rows, *found, *links}:
        wanted = ledger.next_rows.get(task_id, 0)
        if found[task_id] != wanted:
            faults.append(f"task {task_id} has {found[task_id]} next rows instead of {wanted}")
    return faults


def _unended(ledger: Ledger) -> list[str]:
    """Runs that have no end, or several, or go on after it."""
    ends = Counter(row.run_id for row in ledger.rows if row.state is not None and not row.is_live)
    faults = [f"run {run_id} has ended {count} times" for run_id, count in ends.items() if count > 1]
    faults += [
        f"run {row.run_id} has ended and is {row.state}" for row in ledger.rows if row.is_live and ends[row.run_id]
    ]
    waiting = {row.run_id for row in ledger.rows if row.is_live and row.kind != "next"}
    begun = {row.run_id for row in ledger.rows} | {call.run_id for call in ledger.calls}
    live = {row.run_id for row in ledger.rows if row.is_live}
    faults += [f"run {run_id} is still under way" for run_id in waiting]
    faults += [f"run {run_id} is nowhere" for run_id in begun if not ends[run_id] and run_id not in live]
    return faults


def _duplicates(calls: Sequence[Call], answered: Collection[tuple[UUID, int]]) -> list[Call]:
    """The last calls of each run, as many as there are beyond its first, or beyond its attempts with an answer."""
    by_run: defaultdict[UUID, list[Call]] = defaultdict(list)
    for call in calls:
        by_run[call.run_id].append(call)
    attempts = Counter(run_id for run_id, _ in answered)
    again = []
    for run_id, made in by_run.items():
        again += sorted(made, key=lambda call: call.at)[max(1, attempts[run_id]) :]
    return again


def _in_flight(ledger: Ledger, answered: Collection[tuple[UUID, int]]) -> Counter[UUID]:
    """Runs whose calls were in flight in a process that failed, at that instant: no result of theirs was committed, and
    by the endpoint's clock they had not ended, or only just."""
    made_by = {(row.run_id, row.fence): row.lease_id for row in ledger.rows if row.lease_id is not None}
    return Counter(
        call.run_id
        for death in ledger.deaths
        for call in ledger.calls
        if made_by.get((call.run_id, call.fence)) in death.leases
        and (call.run_id, call.fence) not in answered
        and call.at <= death.at + ARRIVAL_SECONDS
        and (call.ended is None or call.ended > death.at - COMMIT_SECONDS)
    )
