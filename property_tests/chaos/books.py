"""The ledgers in the orders in which they are asked, and what is found in them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from property_tests.chaos.ledger import Attempt, Call, Evidence, Row

EXAMPLES = 5

LINGER_SECONDS = 3.0
"""From a process's last work to its end, at most."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One count that must not exceed its bound; `least`: that must reach it, for else there was nothing to judge by.
    `fault`: the number of the fault it is of, where it is of one."""

    promise: int
    what: str
    found: float
    bound: float = 0
    unit: str = ""
    fault: int | None = None
    examples: tuple[str, ...] = ()
    least: bool = False

    @property
    def held(self) -> bool:
        return self.found >= self.bound if self.least else self.found <= self.bound


@dataclass(slots=True)
class Books:
    """The ledgers in the orders in which they are asked. `lease_of` names the lease of each recorded attempt;
    `last_result` is when the last call ended whose result a lease has written."""

    evidence: Evidence
    calls_of: dict[UUID, list[Call]] = field(default_factory=lambda: defaultdict(list))
    terminal: dict[UUID, list[Row]] = field(default_factory=lambda: defaultdict(list))
    lost: dict[Attempt, Row] = field(default_factory=dict)
    lease_of: dict[Attempt, UUID] = field(default_factory=dict)
    sent: dict[Attempt, Row] = field(default_factory=dict)
    skips: dict[UUID, list[Row]] = field(default_factory=lambda: defaultdict(list))
    last_result: dict[UUID, float] = field(default_factory=dict)

    @classmethod
    def of(cls, evidence: Evidence) -> "Books":
        books = cls(evidence)
        for call in evidence.calls:
            books.calls_of[call.run_id].append(call)
        for calls in books.calls_of.values():
            calls.sort(key=lambda call: (call.fence, call.at))
        for row in evidence.rows:
            books._file(row)
        return books

    def _file(self, row: Row) -> None:
        if row.state == "skipped":
            self.skips[row.task_id].append(row)
            return
        if row.state is not None:
            self.terminal[row.run_id].append(row)
        attempt = row.attempt  # one object for all three
        if row.lease_id is not None:
            self.lease_of[attempt] = row.lease_id
            if not (row.lost or row.stale):
                self.last_result[row.lease_id] = max(row.ended_at, self.last_result.get(row.lease_id, row.ended_at))
        if row.lost:
            self.lost[attempt] = row
        if row.sent:
            self.sent[attempt] = row

    def failed(self, lease_id: UUID) -> tuple[float, float] | None:
        """Between which instants a lease's process stopped working; None if it did not. One that is told to end may
        linger for a while before it is gone, its sockets closed and nothing written any more."""
        life = self.evidence.lives.get(lease_id)
        if life is None or life.failed is None:
            return None
        since, until = life.failed
        worked = min(since, self.last_result.get(lease_id, since))
        return max(worked, since - LINGER_SECONDS), until


def counted(promise: int, what: str, examples: Iterable[object], fault: int | None = None) -> Finding:
    found = list(examples)
    return Finding(promise, what, len(found), fault=fault, examples=tuple(map(str, found[:EXAMPLES])))


def reached(promise: int, what: str, found: float, least: float = 1) -> Finding:
    """What must have been there for the promise to be judged at all."""
    return Finding(promise, what, found, least, least=True)
