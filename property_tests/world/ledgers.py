"""A look at both ledgers of the world, the database and the endpoints, and what is remembered from look to look."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from property_tests.world import promises
from property_tests.world.clocks import START
from property_tests.world.tables import Tables

if TYPE_CHECKING:
    from property_tests.world.world import World

ID_STEP = timedelta(milliseconds=50)
"""Ids made within a millisecond count on into the next ones."""
MILLISECOND = timedelta(milliseconds=1)
"""To which an id says its time."""


class Ledgers:
    """`beats`: of each lease, when its heartbeats took effect. `runs`: whatever was seen to have become a run, until it
    has ended. `spoilt`: calls after whose answer their process failed inside."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.beats: defaultdict[UUID, list[promises.Beaten]] = defaultdict(list)
        self.runs: set[UUID] = set()
        self.spoilt: set[promises.Pair] = set()
        self._broken: list[str] = []
        self._before: Tables | None = None
        self._looked_at = 0.0
        self._latest = START
        self._begins_since: dict[str, float] = {}
        """By process: the look after which the begin was sent that is still under way."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """What is broken in the middle of the product's own work, where an exception would be taken for a fault of the
        call, is told at the next look."""
        try:
            yield
        except AssertionError as error:
            self._broken.append(str(error))

    # while something happens

    def call_asked(self, lease_id: UUID, run_id: UUID) -> None:
        """A call is to be made at once: promise 8 holds at this instant. Its connection may take its time, and the
        database's clock may meanwhile be set back."""
        _, due_at = self._world.backend.at_start(lease_id, run_id)
        with self.noted():
            now = promises.believed_now(self.beats[lease_id], self._world.time.seconds)
            promises.promise_8_a_call_is_not_early(run_id, due_at, now)

    def call_started(self, lease_id: UUID, run_id: UUID) -> None:
        """The first byte leaves: promise 6 holds at this instant, by what the database says."""
        lives, _ = self._world.backend.at_start(lease_id, run_id)
        with self.noted():
            promises.promise_6_a_call_starts_within_the_trust_window(
                self.beats[lease_id], self._world.time.seconds, lives=lives
            )

    def saw(self, statement: str, arguments: Sequence[Any], result: Any, answered: bool) -> None:
        """A statement of a process has taken effect."""
        world = self._world
        if statement in ("beat", "begin"):
            self._note_belief(arguments[0])
        if statement in ("register", "beat") and result is not None:
            fails_next = statement == "beat" and world.active is not None and "beat.after" in world.active.armed
            heard = answered and not fails_next
            self.beats[arguments[0]].append(promises.Beaten(world.time.seconds, result, heard))
        if statement == "judge":
            for lease_id in result:
                with self.noted():
                    promises.promise_7_only_the_silent_are_ended(
                        self.beats[lease_id], self.beats[arguments[0]], world.time.database_now()
                    )
        if statement == "begin" and result.begun:
            self.runs.update(run.run_id for run in result.begun)
            with self.noted():
                served = world.backend.served(arguments[0])
                promises.promise_11_only_owned_tenants_are_begun(result.begun, served)

    def _note_belief(self, lease_id: UUID) -> None:
        """Nobody has given an id of a later time than this, as far as this lease is concerned."""
        beats = self.beats[lease_id]
        if any(beat.answered for beat in beats):
            self._latest = max(self._latest, promises.believed_now(beats, self._world.time.seconds))

    def note_time(self) -> None:
        """What the database's clock shows now it has shown."""
        self._latest = max(self._latest, self._world.time.database_now())

    # at a look

    def look(self, *, at_rest: bool) -> Tables:
        """Every promise that holds at all times."""
        assert not self._broken, self._broken[0]
        tables = self._world.backend.tables()
        self._compare(tables)
        _hold_alone(tables)
        calls = self._world.endpoint.calls
        called = {(call.run_id, call.fence) for call in calls}
        promises.promise_3_every_call_is_a_recorded_attempt(tables, called, at_rest=at_rest)
        promises.promise_3_a_fence_is_called_once(calls)
        promises.promise_4_a_result_is_of_the_call_that_it_names(tables, calls, self.spoilt)
        self._remember(tables)
        return tables

    def _compare(self, tables: Tables) -> None:
        """With the last look."""
        self.note_time()
        for lease_id, expired_at in tables.leases.items():
            if expired_at is None:
                self._note_belief(lease_id)
        before = self._before
        if before is not None:
            promises.promise_3_an_ended_lease_begins_nothing(before, tables)
            promises.promise_4_fences_only_grow(before, tables)
            promises.promise_5_terminal_is_final(before, tables)
        known = set() if before is None else promises.ids_of(before)
        since = min([self._looked_at, *self._begins_since.values()])
        earliest = START + timedelta(seconds=since) + self._world.time.step - MILLISECOND
        promises.promise_8_runs_bear_the_databases_time(tables, known, earliest, self._latest + ID_STEP)
        promises.promise_1_no_run_vanishes(tables, self.runs)

    def _remember(self, tables: Tables) -> None:
        late = [process.name for process in self._world.processes if process.wire.late is not None]
        self._begins_since = {name: self._begins_since.get(name, self._looked_at) for name in late}
        self._before, self._looked_at = tables, self._world.time.seconds
        self.runs = promises.runs_of(tables)  # what had ended is promise 5's from now on


def _hold_alone(tables: Tables) -> None:
    """What holds of the database at any time, whatever was before."""
    promises.promise_2_a_run_is_in_one_place(tables)
    promises.promise_3_only_ended_leases_lose_runs(tables)
    promises.promise_10_no_tenant_exceeds_its_cap(tables)
    promises.promise_12_rows_stay_with_their_tenant(tables)
    for task_id, task in tables.tasks.items():
        rows = tables.of_task(task_id)
        promises.promise_2_one_run_per_slot(rows)
        promises.promise_1_every_slot_is_accounted_for(rows, task["state"])
