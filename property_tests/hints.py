"""The hint machine: one program in several worlds, each with another hint index, beside one without (promise 11).

`HintMachine` reads everything in each round, so that no index can make a run earlier: what is begun, what waits and
what has ended must be the same after every step. In `EarlyHintMachine` executors read as they do in production, and an
index may make a run earlier: what became of all runs must be the same once nothing is due any more.
"""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from property_tests.hint_worlds import INDEXES, HintWorld
from property_tests.machine import Machine
from property_tests.plan_drafts import Draft
from property_tests.stepping import Steps
from tocsin.common.errors import ConflictError
from tocsin.common.hints.null import NullHints
from tocsin.common.models import Misfire, Overlap, Priority
from tocsin.common.store.rows import Task

MOST_TASKS = 4
PERIODS = (2, 7, 60)
SECONDS = st.sampled_from([0.0, 0.05, 0.5, 1.0, 1.9, 3.0, 8.0, 30.0])
SETTLED = 60
"""Rounds of a second within which everything due has been begun and has ended."""


def _drafts() -> st.SearchStrategy[Draft]:
    policies = st.fixed_dictionaries(
        {},
        optional={
            "misfire": st.sampled_from(Misfire),
            "grace_seconds": st.sampled_from([1, 60]),
            "max_catchup": st.sampled_from([1, 3]),
            "overlap": st.sampled_from(Overlap),
            "priority": st.sampled_from(Priority),
        },
    )
    return st.builds(Draft, st.sampled_from(PERIODS), offset=st.integers(0, 6), rest=policies)


class _HintMachine(Machine):
    """What both have: worlds, and what is done to all of them alike."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Steps()
        self.worlds: list[HintWorld] = []

    def teardown(self) -> None:
        self.loop.close()

    @initialize(indexes=st.lists(st.sampled_from(sorted(INDEXES)), min_size=3, max_size=4, unique=True))
    def start(self, indexes: list[str]) -> None:
        self.worlds = [HintWorld("none", lambda _: NullHints()), *(HintWorld(name, INDEXES[name]) for name in indexes)]
        for world in self.worlds:
            self.loop.run(world.start())

    @property
    def plain(self) -> HintWorld:
        """The world without an index."""
        return self.worlds[0]

    @property
    def tasks(self) -> list[Task]:
        return self.plain.tasks

    def task(self, world: HintWorld, which: int) -> Task:
        return world.tasks[which % len(world.tasks)]

    def _everywhere(self, does: Callable[[HintWorld], Coroutine[Any, Any, None]]) -> None:
        for world in self.worlds:
            self.loop.run(does(world))

    @precondition(lambda self: self.tasks)
    @rule(which=st.integers(0, 3), force=st.booleans())
    def run_now(self, which: int, force: bool) -> None:
        for world in self.worlds:
            task = self.task(world, which)
            try:
                self.loop.run(world.world.tasks.run_now(task.tenant_id, task.id, force=force))
            except ConflictError:  # it is paused, in every world
                continue

    @rule(seconds=SECONDS, told=st.sampled_from([True, True, False]))
    def time_goes_by(self, seconds: float, told: bool) -> None:
        """`told`: the indexes are, of what is pending and what no longer is."""
        for world in self.worlds:
            world.world.clock.advance(seconds)
            if told:
                self.loop.run(world.tell())


class HintMachine(_HintMachine):
    """Everything is read in each round: no index can make a difference."""

    @precondition(lambda self: len(self.tasks) < MOST_TASKS)
    @rule(tenant=st.sampled_from([0, 1, 2, 2]), draft=_drafts())
    def create(self, tenant: int, draft: Draft) -> None:
        self._everywhere(lambda world: world.create(tenant, draft.plan(world.world.now)))

    @precondition(lambda self: self.tasks)
    @rule(which=st.integers(0, 3), draft=_drafts())
    def edit(self, which: int, draft: Draft) -> None:
        def change(task: Task, now: datetime) -> Task:
            return replace(task, plan=draft.plan(now))

        for world in self.worlds:
            task = self.task(world, which)
            self.loop.run(world.world.tasks.edit(task.tenant_id, task.id, change))

    @precondition(lambda self: self.tasks)
    @rule(which=st.integers(0, 3))
    def pause(self, which: int) -> None:
        for world in self.worlds:
            task = self.task(world, which)
            self.loop.run(world.world.tasks.pause(task.tenant_id, task.id))

    @precondition(lambda self: self.tasks)
    @rule(which=st.integers(0, 3))
    def resume(self, which: int) -> None:
        for world in self.worlds:
            task = self.task(world, which)
            self.loop.run(world.world.tasks.resume(task.tenant_id, task.id))

    @precondition(lambda self: self.tasks)
    @rule(which=st.integers(0, 3), cancel=st.booleans())
    def skip_or_cancel(self, which: int, cancel: bool) -> None:
        """The next slot gets no run: skipped, or its run cancelled before it begins."""
        for world in self.worlds:
            task = self.task(world, which)
            row = world.next_row(task)
            if row is not None and row.slot is not None:
                tasks = world.world.tasks
                does: Coroutine[Any, Any, object] = (
                    tasks.cancel(task.tenant_id, row.run_id) if cancel else tasks.skip_next(task.tenant_id, task.id)
                )
                self.loop.run(does)

    @rule(seconds=SECONDS, told=st.sampled_from([True, True, False]))
    def serve(self, seconds: float, told: bool) -> None:
        self.time_goes_by(seconds, told)
        self._everywhere(lambda world: world.round(everything=True))

    @precondition(lambda self: self.plain.open_calls())
    @rule(which=st.integers(0, 9), retry_in=st.sampled_from([None, None, 0.0, 4.0]))
    def a_call_ends(self, which: int, retry_in: float | None) -> None:
        for world in self.worlds:
            calls = world.open_calls()
            self.loop.run(world.end(calls[which % len(calls)], retry_in))

    @invariant()
    def promise_11_the_same_in_every_world(self) -> None:
        if not self.worlds:
            return
        begun, outcomes, waiting = self.plain.begun, self.plain.outcomes(), self.plain.waiting()
        for world in self.worlds[1:]:
            assert world.begun == begun, f"promise 11: with the index {world.name}, other runs are begun"
            assert world.outcomes() == outcomes, f"promise 11: with the index {world.name}, history is another"
            assert world.waiting() == waiting, f"promise 11: with the index {world.name}, other runs wait"


class EarlyHintMachine(_HintMachine):
    """Executors read as they do in production. No task here has a policy by which being late makes a difference."""

    @precondition(lambda self: len(self.tasks) < MOST_TASKS)
    @rule(tenant=st.integers(0, 2), every=st.sampled_from(PERIODS), offset=st.integers(0, 6))
    def create(self, tenant: int, every: int, offset: int) -> None:
        draft = Draft(every, offset=offset, rest={"grace_seconds": 30 * 86_400})
        self._everywhere(lambda world: world.create(tenant, draft.plan(world.world.now)))

    @rule(seconds=SECONDS, told=st.sampled_from([True, True, False]))
    def serve(self, seconds: float, told: bool) -> None:
        self.time_goes_by(seconds, told)
        self._everywhere(lambda world: world.round(everything=False))

    @rule()
    def all_calls_end(self) -> None:
        for world in self.worlds:
            for call in world.open_calls():
                self.loop.run(world.end(call))

    def teardown(self) -> None:
        try:
            self.promise_11_the_same_once_all_is_done()
        finally:
            super().teardown()

    def promise_11_the_same_once_all_is_done(self) -> None:
        """Seconds go by until nothing is due in any world; then all of them must have come to the same."""
        for _ in range(SETTLED):
            self.serve(1.0, told=True)
            for _ in range(8):
                self.all_calls_end()
                if not any(world.is_due() for world in self.worlds):
                    break
                self.serve(0.0, told=False)
            if not any(world.is_due() for world in self.worlds):
                break
        else:
            late = [world.name for world in self.worlds if world.is_due()]
            raise AssertionError(f"promise 11: with the indexes {late}, what is due is not begun")
        for world in self.worlds[1:]:
            assert world.outcomes() == self.plain.outcomes(), f"promise 11: with the index {world.name}, another end"
            assert world.waiting() == self.plain.waiting(), f"promise 11: with the index {world.name}, others wait"
