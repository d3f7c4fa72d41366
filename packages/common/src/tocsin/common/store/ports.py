"""The ports of the store: what the engine, the executor and the API may ask of it, whoever answers.

`PostgresStore` and `MemoryStore` satisfy them, and pass one conformance suite. Every method is one statement or
one transaction: it takes effect whole, or not at all. Where nothing else is said, all of them raise

- `StoreUnavailableError`: the store did not answer, and nothing took effect;
- `OutcomeUnknownError`: the answer was lost; it may have taken effect.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

from tocsin.common.errors import FaultyDefinitionError
from tocsin.common.states import RunState
from tocsin.common.store.faulty import FaultyTask
from tocsin.common.store.next_rows import NextRowStore
from tocsin.common.store.rows import (
    Backend,
    BeginItem,
    BeginResult,
    Completion,
    CompletionResult,
    GivenBack,
    Held,
    KeepResult,
    Pending,
    QueuePage,
    Recheck,
    Skip,
    SkipReason,
    Task,
    TaskFault,
    TaskReference,
)
from tocsin.common.store.tenants import (
    ApiKey,
    FairPart,
    LeaseInfo,
    Neighbour,
    OwnedShard,
    OwnedTenant,
    Placement,
    Process,
    Tenant,
)
from tocsin.common.store.views import RunSummary, RunView, TaskView


class LeaseStore(Protocol):
    """Who lives, who is judged, who owns what."""

    async def register(
        self, lease_id: UUID, cell: str, generation: int, process: Process, zone_data: str, ttl: float
    ) -> datetime:
        """Takes a lease for `ttl` seconds; says the store's time."""
        ...

    async def beat(self, lease_id: UUID, *, draining: bool) -> datetime | None:
        """Renews a lease; says the store's time, None where the lease has ended."""
        ...

    async def judge(self, lease_id: UUID) -> list[UUID]:
        """Ends overdue leases on the word of `lease_id`, if that may judge (rule 6), and their server processes with
        them: a frozen client may hold locks. Says which."""
        ...

    async def expire(self, lease_ids: Sequence[UUID]) -> list[UUID]:
        """Ends leases of processes proven gone, or one's own; says which were live. Ends their server processes."""
        ...

    async def leave(self, lease_id: UUID) -> None:
        """Ends one's own lease; one's connections go on."""
        ...

    async def neighbours(self, boot: str, pid_namespace: str) -> list[Neighbour]:
        """Live leases of processes that one with this boot id and pid namespace can look at."""
        ...

    async def remove(self, older_than: float) -> int:
        """Forgets leases that ended over `older_than` seconds ago and hold neither run nor shard; says how many."""
        ...

    async def listing(self, cell: str | None = None) -> list[LeaseInfo]:
        """The leases of a cell, or of all; the live ones first, each group by age."""
        ...

    async def live_executors(self) -> dict[str, int]:
        """By cell, the executors that a Supervisor has placed, that live by their heartbeats, and do not drain."""
        ...

    async def end_backend(self, backend: Backend, wait: float) -> bool:
        """Ends a server process and waits at most `wait` seconds for its end; says whether it is gone."""
        ...

    async def fair_part(self, lease_id: UUID, cell: str) -> FairPart: ...

    async def take_shards(self, lease_id: UUID, cell: str, limit: int) -> list[OwnedShard]:
        """Takes at most `limit` shards that no live lease owns; none while the lease drains or has ended."""
        ...

    async def give_shards(self, lease_id: UUID, shards: Sequence[int]) -> list[int]:
        """Lets go of those of `shards` that the lease owns; says which."""
        ...

    async def owned_shards(self, lease_id: UUID) -> list[OwnedShard]: ...

    async def owned_tenants(self, lease_id: UUID) -> list[OwnedTenant]:
        """The tenants that the lease serves, once per shard that serves them."""
        ...

    async def move_tenants(self, tenant_ids: Sequence[UUID], lease_id: UUID | None) -> list[UUID]:
        """Carries out the moves that were asked for: those of tenants whose every shard `lease_id` owns, or, for
        None (the Supervisor), that no live lease serves. Says which were moved."""
        ...


class RunStore(Protocol):
    """The path of a run. Only `begin` raises a fence."""

    async def heads(self, pages: Sequence[QueuePage], lead: float) -> list[Pending]:
        """The first rows of each queue that are due at most `lead` seconds from now, in queue order."""
        ...

    async def hinted(self, run_ids: Sequence[UUID], lead: float) -> list[Pending]:
        """Those of these runs that are pending and due at most `lead` seconds from now, each once."""
        ...

    async def begin(
        self, lease_id: UUID, items: Sequence[BeginItem], note: Callable[[Backend], None] | None = None
    ) -> BeginResult:
        """Moves pending runs to running, or by verdict to history, and plants what follows.

        Nothing is begun once the lease has ended. `note` is told the server process before anything is sent.

        Raises:
            ValueError: more than `MAX_BEGIN` items, a run twice, or two exclusive runs of one task.
            RowRefusedError: the store cannot hold a value of some row; nothing took effect.
        """
        ...

    async def complete(self, lease_id: UUID, completions: Sequence[Completion]) -> CompletionResult:
        """Ends attempts of runs that this lease holds: into history, and those without a state back into pending.

        Raises:
            ValueError: a pair (run id, fence) twice.
            RowRefusedError: the store cannot hold a value of some row; nothing took effect.
        """
        ...

    async def put_back(self, lease_id: UUID, pairs: Sequence[tuple[UUID, int]]) -> list[UUID]:
        """Returns runs that this lease began and never called; says which it still held."""
        ...

    async def give_back(self, tenant_ids: Sequence[UUID], limit: int = 1000) -> list[GivenBack]:
        """Returns the tenants' runs that no live lease holds, as lost; at most `limit`, in run id order."""
        ...

    async def cancel_of_tasks(self, task_ids: Sequence[UUID]) -> list[UUID]:
        """Cancels what runs of these tasks, or waits for a retry (overlap `cancel_previous`); says what it marked."""
        ...

    async def held(self, lease_id: UUID) -> list[Held]:
        """What a lease holds in running."""
        ...

    async def recheck(self, lease_id: UUID, pairs: Sequence[tuple[UUID, int]]) -> list[Recheck]:
        """Whether begun runs may still be called; one that is missing is no longer this lease's."""
        ...

    async def count_held(self, tenant_ids: Sequence[UUID], lease_id: UUID) -> dict[UUID, int]:
        """Runs of these tenants that live leases other than `lease_id` hold beyond their parts of the cap (rule 1), all
        such leases together; tenants without any are absent. See `part_of_cap`."""
        ...


class TaskTransaction(Protocol):
    """The statements of one write (rule 2). Each sees what was committed when it began, and this write's own work."""

    async def lock(self, tenant_id: UUID, task_id: UUID) -> tuple[Task, datetime] | None:
        """Locks a task that is not deleted until the write ends; the task, and the store's time once it was had.

        Raises:
            FaultyDefinitionError: the stored definition cannot be read.
        """
        ...

    async def now(self) -> datetime: ...

    async def find_next(self, task_id: UUID) -> Pending | None: ...

    async def delete_next(self, run_id: UUID) -> bool:
        """Deletes a next row; False where it is none any more: gone, or begun and back to be tried again."""
        ...

    async def greatest_slot(self, task_id: UUID) -> datetime | None:
        """The greatest slot that the task ever accounted for."""
        ...

    async def plant(self, rows: Sequence[Pending]) -> None:
        """Puts rows into pending, with fence and losses 0; a due_at already past becomes the store's time."""
        ...

    async def record_skip(self, tenant_id: UUID, task_id: UUID, skip: Skip) -> None: ...

    async def withdraw_waiting(self, task_id: UUID, reason: SkipReason) -> list[UUID]:
        """Ends the task's waiting runs as skipped; says which."""
        ...

    async def lock_any(self, tenant_id: UUID, task_id: UUID) -> TaskReference | None:
        """As `lock`, whatever the task's state, and though its definition cannot be read."""
        ...

    async def lock_faulty(self, tenant_id: UUID, task_id: UUID) -> tuple[FaultyTask, datetime] | None:
        """As `lock`, for a task whose definition cannot be read whole: what can be read of it."""
        ...

    async def mark_deleted(self, task_id: UUID) -> None: ...

    async def insert(self, task: Task) -> Task: ...

    async def update(self, task: Task) -> Task: ...

    async def cancel_pending(self, run_id: UUID) -> Pending | None:
        """Ends a pending run as cancelled and returns its row; a parked next row stands for no run yet and stays."""
        ...

    async def cancel_running(self, run_id: UUID) -> bool:
        """Marks a running run; its completion, put back or giving back ends it as cancelled."""
        ...

    async def find_run(self, tenant_id: UUID, run_id: UUID) -> tuple[UUID, RunState] | None:
        """The run's task and where it is, read in one statement."""
        ...

    async def claim_key(self, tenant_id: UUID, key: str, request_hash: bytes, task_id: UUID) -> bool:
        """Claims an idempotency key for this write's task; waits for another write that has just claimed it."""
        ...

    async def key_holder(self, tenant_id: UUID, key: str) -> tuple[bytes, UUID] | None: ...


class TaskStore(Protocol):
    """Tasks and runs as the API sees them, always of one tenant; and definitions, as owners read them."""

    def write(self) -> AbstractAsyncContextManager[TaskTransaction]:
        """One transaction: committed at the end of the block, rolled back by any exception."""
        ...

    async def notify(self, payload: str) -> None: ...

    async def definitions(self, task_ids: Sequence[UUID]) -> tuple[list[Task], list[FaultyDefinitionError]]:
        """The tasks of these ids; one that cannot be read is named, and hides no other."""
        ...

    async def mark_faulty(self, faults: Sequence[TaskFault]) -> None:
        """Marks active tasks as faulty, each with a reason; one of another plan version by now is left alone."""
        ...

    async def get(self, tenant_id: UUID, task_id: UUID) -> TaskView | None: ...

    async def listing(self, tenant_id: UUID, before: UUID | None, limit: int) -> list[TaskView]:
        """A page of the tenant's tasks, newest first, older than `before`."""
        ...

    async def runs(self, tenant_id: UUID, task_id: UUID, before: UUID | None, limit: int) -> list[RunSummary]:
        """A page of the task's runs, newest planting first, planted before `before`."""
        ...

    async def run(self, tenant_id: UUID, run_id: UUID) -> RunView | None: ...


class TenantStore(Protocol):
    """Tenants, their keys and secrets, and the cells that serve them.

    A tenant made or changed, a key made or revoked, and a cell opened or closed leave an `AuditEntry`, in the same
    transaction.
    """

    async def insert(self, tenant: Tenant, signing_secrets: Sequence[str]) -> None:
        """Adds a tenant; its shard is the one of its id.

        Raises:
            ConflictError: the name is taken.
        """
        ...

    async def find(self, *, name: str | None = None, tenant_id: UUID | None = None) -> Tenant | None: ...

    async def set_limits(self, tenant_id: UUID, change: Callable[[Tenant], Tenant]) -> Tenant:
        """Applies `change` to the weight and the caps of the locked tenant; returns it. Its owners read them within
        seconds, or at once when `tenants` is notified.

        Raises:
            NotFoundError; ConflictError: fewer calls in flight than it has shards of its own (rule 1).
        """
        ...

    async def secrets(self, tenant_ids: Sequence[UUID]) -> dict[UUID, tuple[str, ...]]:
        """Signing secrets, the one in use first."""
        ...

    async def insert_key(self, key_id: UUID, tenant_id: UUID, name: str, key_hash: bytes) -> None: ...

    async def find_key(self, key_hash: bytes) -> tuple[UUID, UUID] | None:
        """The key's id and its tenant's, while it is not revoked."""
        ...

    async def revoke_key(self, key_id: UUID) -> bool: ...

    async def keys(self, tenant_id: UUID) -> list[ApiKey]: ...

    async def placements(self) -> list[Placement]: ...

    async def next_generation(self) -> int:
        """Raises the generation of every placement, and says it: what older ones started will drain (rule 12)."""
        ...

    async def generation(self) -> int: ...

    async def open_cell(self, tenant_id: UUID, executors: int) -> str:
        """A cell of a tenant's own, with `executors` shards over equal ranges of lanes.

        Raises:
            NotFoundError; ConflictError: it has one, or may have fewer calls in flight than that (rule 1).
        """
        ...

    async def close_cell(self, cell: str, tenant_id: UUID) -> bool:
        """Closes a tenant's own cell: its move to its shared shard is asked for, and owners let go. False where there
        is no such cell, or it is a shared one."""
        ...

    async def remove_cell(self, cell: str) -> bool:
        """Forgets a closing cell once no executor of it lives and no tenant names its shards."""
        ...

    async def ask_move(self, tenant_id: UUID, shard: int) -> None:
        """Asks for a move, which the shard's owner carries out; not into a cell that closes or is gone."""
        ...

    async def moving(self) -> list[UUID]:
        """Tenants whose move was asked for and not yet carried out."""
        ...

    async def cell_shards(self, cell: str) -> list[tuple[int, UUID | None]]:
        """A cell's shards, each with the live lease that owns it."""
        ...

    async def set_executors(self, cell: str, executors: int) -> None: ...


class HistoryStore(Protocol):
    """What the partition keeper and retention do."""

    async def keep(self, today: date | None, days_ahead: int) -> KeepResult:
        """Makes the partitions of the UTC days from yesterday to `days_ahead` days after `today` (None: the store's
        own day), and of every day of which DEFAULT holds rows: those are moved out of it."""
        ...

    async def expire(self, older_than_days: int) -> list[str]:
        """Drops the partitions of days that ended more than `older_than_days` days ago; says which."""
        ...

    async def default_rows(self) -> int:
        """Rows in DEFAULT: more than none is an alarm."""
        ...

    async def expire_keys(self, seconds: float) -> int:
        """Forgets idempotency keys older than this; says how many."""
        ...


class Store(Protocol):
    """The store as one thing. `name` is what its server processes are called."""

    @property
    def name(self) -> str: ...
    @property
    def leases(self) -> LeaseStore: ...
    @property
    def runs(self) -> RunStore: ...
    @property
    def tasks(self) -> TaskStore: ...
    @property
    def tenants(self) -> TenantStore: ...
    @property
    def history(self) -> HistoryStore: ...
    @property
    def next_rows(self) -> NextRowStore: ...

    async def open(self) -> None:
        """Connects. Raises StoreUnavailableError: it cannot be reached now; open again later."""
        ...

    async def close(self) -> None: ...
