"""Broken twins of what keeps runs: each takes one guard out, and the lifecycle machine must see a promise broken."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from property_tests.lifecycle import LifecycleMachine
from property_tests.machine import Profile
from property_tests.mutant import Mutant
from tocsin.common import tasks
from tocsin.common.ids import Ids
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.rows import Begun
from tocsin.engine import owner, ownership
from tocsin.engine.give_back import GiveBack
from tocsin.executor import pool
from tocsin.executor.classify import classify
from tocsin.executor.completer import Completer

Patch = pytest.MonkeyPatch
USUAL = Profile(20, 60)


async def _nothing(*_: object, **__: object) -> dict[str, int]:
    return {}


def gives_back_at_take_over_alone(patch: Patch) -> None:
    """Giving back is an event, and not a condition."""
    patch.setattr(GiveBack, "run_once", _nothing)
    patch.setattr(ownership, "give_back", _nothing)


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
    Mutant("losses count as attempts", 1, LifecycleMachine, losses_are_attempts, USUAL),
    Mutant("retries have no end", 1, LifecycleMachine, retries_without_end, USUAL),
    Mutant("ids bear a worker's time", 8, LifecycleMachine, ids_are_of_the_workers_clock, USUAL),
    Mutant("an owner forgets what others hold", 10, LifecycleMachine, forgets_what_others_hold, USUAL),
)
