"""Broken twins of what keeps runs: each takes one guard out, and the lifecycle machine must see a promise broken."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from property_tests.lifecycle import LifecycleMachine
from property_tests.machine import Profile
from property_tests.mutant import Mutant
from property_tests.mutants import statements
from tocsin.common import tasks
from tocsin.common.ids import Ids
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.rows import BeginItem, Begun, Held
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


MUTANTS: Sequence[Mutant] = (
    Mutant("giving back is an event", 1, LifecycleMachine, gives_back_at_take_over_alone, USUAL),
    Mutant("results are not kept in an outage", 3, LifecycleMachine, results_are_not_kept, USUAL),
    Mutant("an edit does not look at its delete", 1, LifecycleMachine, deletes_without_a_look, USUAL),
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
    *statements.MUTANTS,
)
