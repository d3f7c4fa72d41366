"""Rows and tenants for the choice, as a board would hold them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tocsin.common.models import Kind, Priority
from tocsin.common.store.rows import Pending
from tocsin.engine.choose import Candidate, Chosen, choose

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)

Choosing = Callable[[Iterable[Candidate], int, int, Callable[[Pending], bool]], Chosen]


def a_row(tenant: int, priority: int, seconds: float, number: int, task: int = 0) -> Pending:
    return Pending(
        run_id=UUID(int=number),
        fence=0,
        tenant_id=UUID(int=tenant),
        task_id=UUID(int=task),
        priority=Priority(priority),
        due_at=NOW + timedelta(seconds=seconds),
        slot=None,
        last_slot=None,
        lane=0,
        kind=Kind.NOW,
        plan_version=1,
    )


def always(_row: Pending) -> bool:
    return True


@dataclass
class TenantModel:
    """What a board would hold of a tenant: rows by priority, in due order."""

    number: int
    rows: dict[int, list[Pending]]
    usage: float = 0.0
    cost: float = 1.0
    room: int = 10**9
    last_patient: int = 0
    took: list[Pending] = field(default_factory=list)

    def candidate(self) -> Candidate:
        queues = {priority: iter(rows) for priority, rows in self.rows.items() if rows}
        return Candidate(UUID(int=self.number), self.usage, self.cost, self.room, self.last_patient, queues)

    def absorb(self, candidate: Candidate, chosen: list[Pending]) -> None:
        mine = [row for row in chosen if row.tenant_id == UUID(int=self.number)]
        taken = {row.run_id for row in mine}
        self.rows = {priority: [r for r in rows if r.run_id not in taken] for priority, rows in self.rows.items()}
        self.usage, self.last_patient, self.room = candidate.usage, candidate.last_patient, candidate.room
        self.took += mine


def tenants_of(*rows: Pending) -> list[TenantModel]:
    made: dict[int, TenantModel] = {}
    for row in sorted(rows, key=lambda row: (row.due_at, row.run_id)):
        number = row.tenant_id.int
        tenant = made.setdefault(number, TenantModel(number, {}))
        tenant.rows.setdefault(int(row.priority), []).append(row)
    return list(made.values())


def pick(
    tenants: list[TenantModel], limit: int, picks: int = 0, endpoint: Callable[[Pending], bool] = always
) -> Chosen:
    candidates = [tenant.candidate() for tenant in tenants]
    chosen = choose(candidates, limit, picks, endpoint)
    for tenant, candidate in zip(tenants, candidates, strict=True):
        tenant.absorb(candidate, chosen.rows)
    return chosen
