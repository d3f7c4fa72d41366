"""The judgement: what was due, what the endpoint saw and what the database recorded, held against each other.

The endpoint's log and the database's history are kept by different processes and know nothing of each
other; what was due is known from the seeding. Values in, a value out.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

SlotKey = tuple[UUID, datetime]
"""(task, slot)."""

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as the endpoint saw it: `at` is wall time in Unix seconds, `run_id` its Idempotency-Key, `slot`
    its Tocsin-Scheduled-For, `attempt` its Tocsin-Attempt."""

    at: float
    run_id: UUID
    task_id: UUID
    slot: datetime
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Recorded:
    """A row of history. Of a skip, `slot` to `until_slot` are the slots without a run."""

    run_id: UUID
    task_id: UUID
    slot: datetime
    until_slot: datetime | None
    state: str | None
    sent: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """Counts of slots, but for `duplicates`, `strangers`, `early` (calls) and `unseen` (attempts).

    `lost`: no call at the endpoint, or no terminal run in history, and no recorded skip. `duplicates`: calls
    of a run beyond its attempts recorded as sent, and runs of a slot beyond the first. `skipped`: a recorded
    skip instead of a run. `failed`: ended in another state than it should have. `strangers`: calls for what was
    not due. `unseen`: attempts recorded as sent that the endpoint did not see. `delays`: seconds from due to
    the first arrival, rising, one per slot that was called; `delay_of` the same by slot. `ended`: by state, how many
    slots ended so. `retried`: attempts recorded as sent that ended their call, but not their run.
    """

    expected: int
    lost: int
    duplicates: int
    skipped: int
    failed: int
    strangers: int
    early: int
    unseen: int
    delays: Sequence[float]
    examples: Sequence[str] = ()
    delay_of: Mapping[SlotKey, float] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    retried: int = 0

    @property
    def other_faults(self) -> int:
        """All that must not happen where nothing fails, but for losses and duplicates."""
        return self.skipped + self.failed + self.strangers + self.early + self.unseen

    @property
    def clean(self) -> bool:
        """Every slot was called, as often as recorded, by one run that ended as it should, and never early."""
        return not (self.lost or self.duplicates or self.other_faults)

    def late(self, limit: float) -> int:
        """Slots first called more than `limit` seconds after they were due."""
        return sum(1 for delay in self.delays if delay > limit)


def always_succeeds(task_id: UUID, run_id: UUID) -> Collection[str]:
    """Where nothing fails."""
    return ("succeeded",)


def judge(
    expected: Mapping[SlotKey, float],
    arrivals: Iterable[Arrival],
    history: Iterable[Recorded],
    right_ends: Callable[[UUID, UUID], Collection[str]] = always_succeeds,
) -> Judgement:
    """Holds the ledgers against each other.

    `expected` gives each slot's due instant in Unix seconds, `right_ends` the states in which a run may end, by its
    task and its id: of an endpoint that is down, dead.
    """
    first_call: dict[SlotKey, float] = {}
    runs: defaultdict[SlotKey, set[UUID]] = defaultdict(set)
    calls: Counter[UUID] = Counter()
    strangers = early = 0
    for arrival in arrivals:
        key = (arrival.task_id, arrival.slot)
        due = expected.get(key)
        if due is None:
            strangers += 1
            continue
        early += arrival.at < due
        calls[arrival.run_id] += 1
        runs[key].add(arrival.run_id)
        first_call[key] = min(arrival.at, first_call.get(key, math.inf))
    ended: dict[SlotKey, str] = {}
    failed: set[SlotKey] = set()
    retried = 0
    sent: Counter[UUID] = Counter()
    skips: defaultdict[UUID, list[tuple[datetime, datetime]]] = defaultdict(list)
    for row in history:
        if row.state == "skipped":
            skips[row.task_id].append((row.slot, row.until_slot or row.slot))
            continue
        key = (row.task_id, row.slot)
        runs[key].add(row.run_id)
        sent[row.run_id] += row.sent
        if row.state is None:
            retried += row.sent
        else:
            ended[key] = row.state
            if row.state not in right_ends(row.task_id, row.run_id):
                failed.add(key)
    skipped = {k for k in expected if any(a <= k[1] <= b for a, b in skips.get(k[0], ())) and k not in ended}
    lost = [key for key in expected if (key not in first_call or key not in ended) and key not in skipped]
    examples = [f"lost: task {task}, slot {slot.isoformat()}" for task, slot in lost[:_EXAMPLES]]
    return Judgement(
        expected=len(expected),
        lost=len(lost),
        duplicates=sum(max(0, n - sent[run]) for run, n in calls.items()) + sum(len(r) - 1 for r in runs.values()),
        skipped=len(skipped),
        failed=len(failed & expected.keys()),
        strangers=strangers,
        early=early,
        unseen=sum(max(0, n - calls[run]) for run, n in sent.items()),
        delays=sorted(at - expected[key] for key, at in first_call.items()),
        examples=examples,
        delay_of={key: at - expected[key] for key, at in first_call.items()},
        ended=Counter(ended[key] for key in expected if key in ended),
        retried=retried,
    )


def percentile(rising: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of the values do not exceed; nan of no values."""
    if not rising:
        return math.nan
    return rising[max(0, math.ceil(share * len(rising)) - 1)]


def delay_figures(judgement: Judgement) -> dict[str, float | None]:
    """Start delays in milliseconds."""
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999, "max": 1.0}
    found = {name: percentile(judgement.delays, share) * 1000 for name, share in shares.items()}
    return {f"start_delay_{n}_ms": None if math.isnan(v) else round(v, 2) for n, v in found.items()}
