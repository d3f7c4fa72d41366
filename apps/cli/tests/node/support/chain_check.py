"""What must hold of a task whatever happened: each slot in one place, in a chain; each call a recorded attempt."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Everything that the database has of one task."""

    pending: Sequence[Row]
    running: Sequence[Row]
    history: Sequence[Row]

    def ended(self, state: str) -> list[Row]:
        return [row for row in self.history if row["state"] == state]


@dataclass(frozen=True, slots=True)
class _Link:
    first: datetime
    until: datetime
    last: datetime | None


def chain_faults(rows: TaskRows, next_rows: int = 1) -> list[str]:
    """Gaps and repeats of slots, runs that ended twice, and another number of next rows than there should be."""
    links: dict[tuple[UUID, datetime], _Link] = {}
    for row in (*rows.pending, *rows.running, *rows.history):
        if row["slot"] is not None and not row.get("stale"):
            until = row.get("until_slot") or row["slot"]
            links[row["run_id"], row["slot"]] = _Link(row["slot"], until, row["last_slot"])
    chain = sorted(links.values(), key=lambda link: link.first)
    faults = [
        f"{'repeat' if after.last is not None and after.last < before.until else 'gap'}: {before} then {after}"
        for before, after in pairwise(chain)
        if after.last != before.until
    ]
    found = [row for row in rows.pending if row["kind"] == "next"]
    if len(found) != next_rows:
        faults.append(f"{len(found)} next rows instead of {next_rows}")
    ends = Counter(row["run_id"] for row in rows.history if row["state"] is not None)
    alive = [row["run_id"] for row in (*rows.pending, *rows.running)]
    faults += [f"run {run_id} ended {count} times" for run_id, count in ends.items() if count > 1]
    faults += [f"run {run_id} has ended and goes on" for run_id in alive if run_id in ends]
    return faults


def call_faults(rows: TaskRows, calls: Counter[UUID], *, after_failure: bool = False) -> list[str]:
    """Promise 3: calls of a run = its attempts recorded as sent; after a failure at most as many."""
    recorded = Counter(row["run_id"] for row in rows.history if row["sent"] and not row["stale"])
    faults = []
    for run_id in calls.keys() | recorded.keys():
        seen, sent = calls[run_id], recorded[run_id]
        if seen > sent or (seen < sent and not after_failure):
            faults.append(f"run {run_id} was called {seen} times, with {sent} attempts recorded as sent")
    return faults
