"""A task's history as a chain: every slot stands in one place, and each place names the slot before it."""

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from uuid import UUID

from store_bench import Bench, RunningRow
from tocsin.common.models import Kind, TaskState
from tocsin.common.store.rows import Pending, Task


@dataclass(frozen=True, slots=True)
class Link:
    """Slots `first` to `until`; `last` is the slot accounted for before them."""

    first: datetime
    until: datetime
    last: datetime | None


async def chain_faults(bench: Bench, task_id: UUID, state: TaskState) -> list[str]:
    """What is wrong with a task: a gap, a slot twice, or another number of next rows than it may have."""
    links: dict[tuple[UUID, datetime], Link] = {}
    pending = await bench.pending(task_id)
    live: list[Pending | RunningRow] = [*pending, *await bench.running(task_id)]
    for row in live:
        if row.slot is not None:
            links[row.run_id, row.slot] = Link(row.slot, row.slot, row.last_slot)
    for ended in await bench.history(task_id):
        if ended.slot is not None and not ended.stale:
            link = Link(ended.slot, ended.until_slot or ended.slot, ended.last_slot)
            links[ended.run_id, ended.slot] = link
    faults = []
    chain = sorted(links.values(), key=lambda link: link.first)
    for before, after in pairwise(chain):
        if after.last != before.until:
            kind = "gap" if after.last is None or after.last > before.until else "repeat"
            faults.append(f"{kind}: {before} then {after}")
    next_rows = [row for row in pending if row.kind is Kind.NEXT]
    expected = 0 if state is TaskState.DELETED else 1
    if len(next_rows) != expected:
        faults.append(f"{len(next_rows)} next rows of a task that is {state}")
    for parked in next_rows:
        if parked.slot is None and chain and parked.last_slot != chain[-1].until:
            faults.append(f"parked after {parked.last_slot}, and the chain ends at {chain[-1].until}")
    return faults


async def faults(bench: Bench, task: Task) -> list[str]:
    """What is wrong with a task in the state that it now has."""
    (stored,), _ = await bench.store.tasks.definitions([task.id])
    return await chain_faults(bench, task.id, stored.state)
