"""Broken twins of what keeps runs: each takes one guard out, and the lifecycle machine must see a promise broken."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from property_tests.lifecycle import LifecycleMachine
from property_tests.machine import Profile
from property_tests.mutant import Instead, Mutant
from property_tests.mutants import statements
from tocsin.common import tasks
from tocsin.common.clock import DatabaseClock
from tocsin.common.ids import Ids
from tocsin.common.store.memory.database import Running
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.memory.tasks import MemoryTaskTransaction
from tocsin.common.store.rows import BeginItem, Begun, GivenBack, Held, Task
from tocsin.engine import owner, ownership
from tocsin.engine.begin import Beginner
from tocsin.engine.give_back import GiveBack
from tocsin.executor import pool
from tocsin.executor.classify import classify
from tocsin.executor.completer import Completer
from tocsin.executor.transport.port import NotStartedError

Patch = pytest.MonkeyPatch
USUAL = Profile(20, 60)


async def _nothing(*_: object, **__: object) -> dict[str, int]:
    return {}


def gives_back_at_take_over_alone(patch: Patch) -> None:
    """Giving back is an event, and not a condition."""
    patch.setattr(GiveBack, "run_once", _nothing)
    patch.setattr(ownership, "give_back", _nothing)


def a_lost_begin_is_left_alone(patch: Patch) -> None:
    """Its rows are taken for begun by nobody. The net under lost answers finds them, half a minute late."""

    async def resolve(beginner: Beginner, items: Sequence[BeginItem], *_: object) -> None:
        beginner._readmit([item.row for item in items])

    patch.setattr(Beginner, "_resolve", resolve)


def a_lost_begin_is_read_while_it_is_under_way(patch: Patch) -> None:
    async def closed(beginner: Beginner, _backends: object) -> list[Held]:
        return list(await beginner._store.runs.held(beginner._lease.id))

    patch.setattr(Beginner, "_closed", closed)


def trust_is_checked_before_connecting(patch: Patch) -> None:
    """And not in the step in which the first byte leaves."""
    real = pool.CallPool._call

    async def call(calls: pool.CallPool, each: pool._Call) -> Any:
        if not calls.trust.trusted:
            raise NotStartedError("the lease's trust window has passed")
        return await real(calls, each)

    def check(gate: pool._Gate) -> None:
        gate._call.refuse_aborted()
        gate._call.started = gate._pool.clock.monotonic()
        gate._pool.note_start(gate._call.order.run)

    patch.setattr(pool.CallPool, "_call", call)
    patch.setattr(pool._Gate, "check", check)


def losses_are_attempts(patch: Patch) -> None:
    patch.setattr(Begun, "attempt", property(lambda run: run.fence))


def retries_without_end(patch: Patch) -> None:
    def endless(*args: Any, attempt: int, **named: Any) -> Any:
        return classify(*args, attempt=1, **named)

    patch.setattr(pool, "classify", endless)


def results_are_not_kept(patch: Patch) -> None:
    """A batch that the database does not take is dropped."""
    real = Completer._insist

    async def once(completer: Completer, write: Callable[[], Any]) -> Any:
        async def given_up() -> Any:
            try:
                return await write()
            except Exception:
                return []

        return await real(completer, given_up)

    patch.setattr(Completer, "_insist", once)


def deletes_without_a_look(patch: Patch) -> None:
    """An API write takes the row that it has seen for the row that it has deleted."""

    async def take_next(tx: Any, task_id: Any) -> Any:
        row = await tx.find_next(task_id)
        if row is not None:
            await tx.delete_next(row.run_id)
        return row

    patch.setattr(tasks, "take_next", take_next)


def plants_without_a_delete(patch: Patch) -> None:
    async def take_next(tx: Any, task_id: Any) -> Any:
        return await tx.find_next(task_id)

    patch.setattr(tasks, "take_next", take_next)


def forgets_what_others_hold(patch: Patch) -> None:
    """A new owner counts its own runs against the cap, and no others."""
    patch.setattr(MemoryRuns, "count_held", _nothing)


def ids_are_of_the_workers_clock(patch: Patch) -> None:
    class OfTheWorker(Ids):
        def __init__(self, clock: Any, rng: Any) -> None:
            super().__init__(getattr(clock, "_clock", clock), rng)

    patch.setattr(owner, "Ids", OfTheWorker)


def ids_are_an_hour_old(patch: Patch) -> None:
    class OfThePast(Ids):
        def new(self, at: datetime | None = None) -> UUID:
            return super().new((at or self._clock.now()) - timedelta(hours=1))

    patch.setattr(owner, "Ids", OfThePast)


def gives_back_slots_alone(patch: Patch) -> None:
    """What runs for no slot is gone when its process is."""
    give_back = MemoryRuns._give_back

    def slots_alone(runs: MemoryRuns, row: Running) -> GivenBack:
        given = give_back(runs, row)
        if row.run.slot is None and given.state is None:
            runs._db.pending.remove(row.run.run_id)
        return given

    patch.setattr(MemoryRuns, "_give_back", slots_alone)


def a_clock_is_never_set_back(patch: Patch) -> None:
    """What a process once took the database's time to be, it holds to."""

    def sample(clock: DatabaseClock, t_db: datetime, _sent: float, received: float) -> None:
        offset = t_db.timestamp() - received
        clock._best = offset if clock._best is None else max(clock._best, offset)

    patch.setattr(DatabaseClock, "sample", sample)


def a_set_back_clock_is_believed_for_a_while(patch: Patch) -> None:
    """A sample contradicts no other, as if its heartbeat had been sent ages before: the greatest counts until it is too
    old."""
    real = DatabaseClock.sample

    def sample(clock: DatabaseClock, t_db: datetime, _sent: float, received: float) -> None:
        real(clock, t_db, -math.inf, received)

    patch.setattr(DatabaseClock, "sample", sample)


def a_task_is_found_without_its_tenant(patch: Patch) -> None:
    lock = MemoryTaskTransaction.lock

    async def of_anybody(tx: MemoryTaskTransaction, _tenant_id: UUID, task_id: UUID) -> tuple[Task, datetime] | None:
        task = tx._db.tasks.get(task_id)
        return None if task is None else await lock(tx, task.tenant_id, task_id)

    patch.setattr(MemoryTaskTransaction, "lock", of_anybody)


MUTANTS: Sequence[Mutant] = (
    Mutant("giving back is an event", 1, LifecycleMachine, gives_back_at_take_over_alone, USUAL),
    Mutant(
        "results are not kept in an outage",
        3,
        LifecycleMachine,
        results_are_not_kept,
        USUAL,
        instead=Instead(10, "for what is dropped is still held, and another run is begun in its place"),
    ),
    Mutant(
        "an edit does not look at its delete",
        1,
        LifecycleMachine,
        deletes_without_a_look,
        USUAL,
        instead=Instead(2, "for what an edit plants beside a run that was begun meanwhile is a second run of its slot"),
    ),
    Mutant("a write plants what it has not deleted", 1, LifecycleMachine, plants_without_a_delete, USUAL),
    Mutant("a lost begin is not adopted", 1, LifecycleMachine, a_lost_begin_is_left_alone, USUAL),
    Mutant(
        "a begin is read before it is closed", 1, LifecycleMachine, a_lost_begin_is_read_while_it_is_under_way, USUAL
    ),
    Mutant(
        "trust is checked before connecting", 6, LifecycleMachine, trust_is_checked_before_connecting, USUAL, seed=5
    ),
    Mutant("losses count as attempts", 1, LifecycleMachine, losses_are_attempts, USUAL),
    Mutant("retries have no end", 1, LifecycleMachine, retries_without_end, USUAL),
    Mutant("ids bear a worker's time", 8, LifecycleMachine, ids_are_of_the_workers_clock, USUAL),
    Mutant("an owner forgets what others hold", 10, LifecycleMachine, forgets_what_others_hold, USUAL),
    Mutant("ids are an hour old", 8, LifecycleMachine, ids_are_an_hour_old, USUAL),
    Mutant("giving back drops runs without a slot", 1, LifecycleMachine, gives_back_slots_alone, USUAL),
    Mutant("a clock is never set back", 8, LifecycleMachine, a_clock_is_never_set_back, USUAL),
    Mutant(
        "a set-back clock is believed for a while", 8, LifecycleMachine, a_set_back_clock_is_believed_for_a_while, USUAL
    ),
    Mutant("a task is found without its tenant", 12, LifecycleMachine, a_task_is_found_without_its_tenant, USUAL),
    *statements.MUTANTS,
)
