"""What chaos is judged by: the endpoint's ledger, the database's, what was due, and who failed when.

Instants are Unix seconds of the machine's wall clock. The endpoint and the database know nothing of each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from uuid import UUID

from asyncpg.pgproto import pgproto

Attempt = tuple[UUID, int]
"""(run, fence)."""

SlotKey = tuple[UUID, float]
"""(task, slot)."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the endpoint saw it: from its arrival to its answer, or to the end of its connection.

    `scheduled` is its Tocsin-Scheduled-For; `until` is infinite where it was still open when the log was closed.
    """

    at: float
    until: float
    run_id: UUID
    task_id: UUID
    fence: int
    scheduled: float


@dataclass(frozen=True, slots=True)
class Row:
    """One row of history. Of a skip, `slot` to `until_slot` are the slots without a run."""

    run_id: UUID
    task_id: UUID
    fence: int
    kind: str
    due_at: float | None
    slot: float | None
    last_slot: float | None
    until_slot: float | None
    ended_at: float
    state: str | None
    outcome: str
    sent: bool
    stale: bool
    lease_id: UUID | None

    @property
    def attempt(self) -> Attempt:
        return self.run_id, self.fence

    @property
    def lost(self) -> bool:
        return self.outcome == "lost"


@dataclass(slots=True)
class Life:
    """One lease as it was watched. `beats`: its heartbeats on the database's clock, rising.

    `failed`: between which instants its process stopped acting (killed, frozen, cut off); None while it did not.
    `early`: by how many seconds the drift of its process's clock may let it start a call too early.
    """

    lease_id: UUID
    pid: int
    started: float
    cell: str
    beats: list[float] = field(default_factory=list)
    failed: tuple[float, float] | None = None
    expired: float | None = None
    draining: bool = False
    early: float = 0.0


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault as it was done. `database`: it was of the database alone, so no executor may be taken for dead.

    `recover`: seconds after its end in which all is allowed to become on time again. `holds_up`: whether runs may be
    late by it. `missed`: why it does not count as struck: what it should have done was not seen, or something did not
    come back from it. `zombie`: a process was taken for dead and lives on.
    """

    name: str
    began: float
    ended: float
    detail: str
    database: bool
    recover: float = 0.0
    missed: str | None = None
    zombie: bool = False
    holds_up: bool = True


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a task of the load. `judged`: its start delays count as the product's; not where a low cap or
    a policy holds it back. `fails`: its endpoint never answers well, so its runs end dead. `deadline`: seconds after
    its first due instant in which a run may be tried again. `grace`: seconds after its due instant from which a slot of
    it is passed over; None where none ever may be."""

    tenant_id: UUID
    group: str
    judged: bool = True
    fails: bool = False
    deadline: float | None = None
    grace: float | None = None


@dataclass(slots=True)
class Evidence:
    """All that the judge is given.

    `expected`: every slot that was due, with its due instant. `tasks`: all tasks, those made through the API too.
    `accepted`: runs that the API has promised (202), `unanswered`: how many of `run_now_task` it may have made without
    saying so, `made`: how many tasks (201). `caps`: calls in flight at most, by tenant. `terminal`: terminal rows seen
    while it ran, as (attempt, ended at, state, outcome). `left`: rows that are pending or running at the end.
    `reopened`: terminal runs seen to be pending or running. `doubled`: requests to make one task that made several.
    """

    expected: Mapping[SlotKey, float]
    tasks: Mapping[UUID, Known]
    calls: Sequence[Call]
    rows: Sequence[Row]
    lives: Mapping[UUID, Life]
    faults: Sequence[Struck]
    ttl: float
    margin: float
    accepted: Sequence[UUID] = ()
    unanswered: int = 0
    run_now_task: UUID | None = None
    made: int = 0
    caps: Mapping[UUID, int] = field(default_factory=dict)
    terminal: Sequence[tuple[Attempt, float, str, str]] = ()
    left: int = 0
    reopened: int = 0
    doubled: int = 0

    def without_slot(self) -> set[UUID]:
        """Runs that are of no slot. A run-now is said to be scheduled for the millisecond in which it was asked for,
        which may be a slot's too: in the endpoint's ledger it is told from that slot's run by its id alone."""
        with_slot = {row.run_id for row in self.rows if row.slot is not None}
        return {row.run_id for row in self.rows if row.slot is None} - with_slot

    def fault_at(self, instant: float) -> int | None:
        """The number of the fault in whose time an instant lies: from its beginning to that of the next one."""
        found = None
        for number, fault in enumerate(self.faults):
            if fault.began <= instant:
                found = number
        return found

    def held_up_by(self, instant: float, grace: float = 0.0) -> Struck | None:
        """The fault that excuses what is late at an instant: it began before it, and has not been over for its time to
        recover and so many seconds more. The earlier, where a grace makes it two."""
        return next(
            (f for f in self.faults if f.holds_up and f.began <= instant <= f.ended + f.recover + grace),
            None,
        )


def call_line(call: tuple[float, float, bytes, bytes, bytes, bytes]) -> bytes:
    """A line of the endpoint's log: (at, until, run, task, fence, scheduled), the last four as they were sent."""
    return b"%r %r %b %b %b %b\n" % call


def read_calls(log: Path) -> Iterator[Call]:
    """The endpoint's log.

    Raises:
        ValueError: a call without one of the headers, or with one that cannot be read.
    """
    tasks: dict[str, UUID] = {}
    instants: dict[str, float] = {}
    with log.open() as lines:
        for line in lines:
            at, until, run_id, task_id, fence, scheduled = line.rstrip("\n").split(" ")
            if task_id not in tasks:  # one object for all its calls, of which there are many
                tasks[task_id] = pgproto.UUID(task_id)
            if scheduled not in instants:
                instants[scheduled] = datetime.fromisoformat(scheduled).timestamp()
            run = pgproto.UUID(run_id)  # equal to Python's, and hashed in C
            yield Call(float(at), float(until), run, tasks[task_id], int(fence), instants[scheduled])
