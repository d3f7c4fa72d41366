"""Ways to each crash point and each statement: drawn one by one, rules come to most of them too seldom to be cut there.

A way goes as far as its process can be told to fail, says which processes may be the one, and then goes on to where
one of them does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from property_tests.lifecycle_base import MOST_PROCESSES, picks
from property_tests.lifecycle_faults import OWN_POINTS, STATEMENTS
from property_tests.lifecycle_stories import SILENT_ROUNDS, StoryRules
from property_tests.lifecycle_tenants import API_POINTS, TenantRules
from property_tests.world.endpoint import Answer
from property_tests.world.process import Died, Injected, Process
from property_tests.world.wire import Fault
from property_tests.world.world import World
from tocsin.common.models import Overlap

Way = Iterator[Sequence[Process | World]]

Blow = tuple[str, type[BaseException] | Fault]

BLOWS: Sequence[Blow] = (
    *((point, error) for point in (*OWN_POINTS, *API_POINTS) for error in (Died, Injected)),
    *((name, fault) for name in (*STATEMENTS, "write") for fault in (Fault.REFUSED, Fault.LOST, Fault.UNANSWERED)),
    ("begin", Fault.LATE),
)
"""Where a process, the API or the Supervisor may fail, and how."""

some_blows = st.lists(st.sampled_from(BLOWS), min_size=3, max_size=6)

WAYS: Mapping[str, str] = {
    "api.write": "to_a_write",
    "ask_move": "to_a_move",
    "beat": "to_a_round",
    "begin": "to_a_begin",
    "call": "to_a_call",
    "cancel_of_tasks": "to_the_cancel_of_a_previous_run",
    "complete": "to_an_answer",
    "count_held": "to_a_take_over",
    "definitions": "to_an_edited_task",
    "end_backend": "to_a_lost_begin",
    "fair_part": "to_a_round",
    "give_back": "to_a_take_over",
    "give_shards": "to_a_departure",
    "heads": "to_a_begin",
    "held": "to_a_lost_begin",
    "judge": "to_a_judgement",
    "leave": "to_a_departure",
    "neighbours": "to_a_round",
    "move_tenant": "to_a_move",
    "move_tenants": "to_a_move",
    "move_unowned": "to_a_move",
    "notify": "to_a_departure",
    "owned_shards": "to_a_round",
    "owned_tenants": "to_a_round",
    "put_back": "to_a_late_connection",
    "recheck": "to_a_late_connection",
    "register": "to_a_new_life",
    "remove": "to_a_round",
    "secrets": "to_a_take_over",
    "take_shards": "to_a_take_over",
    "write": "to_a_write",
}
"""By the crash point without its `before` or `after`, or by the statement."""

NO_WAYS: Mapping[str, str] = {
    "expire": "each process has a machine of its own, so none can prove another's death; the lease machine does",
    "mark_faulty": "only intervals are planned here, and no plan of one can raise; the engine's tests see to it",
}
"""Crash points that no process of this world can come to, and why."""


class PointRules(TenantRules, StoryRules):
    @precondition(lambda self: self.tasks)
    @rule(pick=picks, blows=some_blows)
    def somebody_fails(self, pick: int, blows: Sequence[Blow]) -> None:
        """One after the other."""
        for place, how in blows:
            self.strike(pick, place, how)

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, blows=some_blows)
    def somebody_else_fails(self, pick: int, blows: Sequence[Blow]) -> None:
        """As `somebody_fails`: a rule that is there twice is played twice as often."""
        self.somebody_fails(pick, blows)

    def strike(self, pick: int, place: str, how: type[BaseException] | Fault) -> None:
        way: Callable[[int], Way] = getattr(self, WAYS[place.removesuffix(".before").removesuffix(".after")])
        for threatened in way(pick):
            for each in threatened:
                arms: dict[str, Any] = each.wire.faults if isinstance(how, Fault) else each.armed
                arms[place] = how
        everybody: list[Process | World] = [*self.world.processes, self.world]
        for each in everybody:
            each.armed.pop(place, None)
            each.wire.faults.pop(place, None)
        if not any(each.cell == "shared" for each in self.staying):
            self.world.a_process()
        self.world.advance(0.25)

    def to_a_round(self, pick: int) -> Way:
        process = self.process(pick)
        if process is not None:
            process.live()
            self._somebody_else(process)
            yield [process]
            for service in ("beat", "judge", "ownership"):
                process.step(service)

    def to_a_new_life(self, pick: int) -> Way:
        if len(self.staying) >= MOST_PROCESSES:
            self.staying[pick % len(self.staying)].die()
        process = self.world.add_process()
        yield [process]
        process.live()

    def to_a_write(self, pick: int) -> Way:
        yield [self.world]
        self.world.run_now(*self.task(pick))

    def to_a_begin(self, pick: int) -> Way:
        process = self._one_with_something_due(pick)
        if process is not None:
            yield [process]
            self._begins(process)
            self.world.advance(0.05)

    def to_a_call(self, pick: int) -> Way:
        """And to its answer."""
        process = self._one_with_something_due(pick)
        if process is not None:
            yield [process]
            self._are_answered(process, pick)

    def to_an_answer(self, pick: int) -> Way:
        process = self._one_with_something_due(pick)
        if process is not None and self._calls(process):
            yield [process]
            self._are_answered(process, pick)

    def _are_answered(self, process: Process, pick: int) -> None:
        for call in self._calls(process):
            self.world.answer(call, list(Answer)[pick % len(Answer)])
        self.world.advance(0.25)

    def to_a_late_connection(self, pick: int) -> Way:
        """Its task was edited meanwhile, so that the run is put back."""
        process = self._one_with_something_due(pick)
        if process is None:
            return
        process.connect(slow=True)
        self._begins(process)
        self.world.advance(0.05)
        for path in ("fails", "ok"):
            self.world.edit_url(*self.due, path)
        self.world.advance(0.3)
        yield [process]
        process.connect(slow=False)
        self.world.advance(0.25)

    def to_a_lost_begin(self, pick: int) -> Way:
        process = self._one_with_something_due(pick)
        if process is not None:
            process.wire.faults["begin"] = Fault.UNANSWERED
            yield [process]
            self._begins(process)
            for _ in range(4):
                self.world.advance(0.25)
            process.wire.faults.pop("begin", None)

    def to_an_edited_task(self, pick: int) -> Way:
        """Its definition is to be read again."""
        process = self._one_with_something_due(pick)
        if process is not None:
            self.undisturbed.pop(self.due[1], None)
            for period in (3, 1):
                self.world.edit_period(*self.due, period)
            yield self.world.able  # the newcomer may have taken its tenant
            self.work(6, 0.25, answered=True)

    def to_the_cancel_of_a_previous_run(self, pick: int) -> Way:
        """One is in flight when the next is due."""
        process = self._one_with_something_due(pick)
        if process is None:
            return
        self.undisturbed.pop(self.due[1], None)
        self.world.edit_overlap(*self.due, Overlap.CANCEL_PREVIOUS)
        self.world.edit_period(*self.due, 1)
        self.world.set_cap(self.due[0], 5)
        self._calls(process)
        yield self.world.able
        self.work(8, 0.25, answered=False)

    def to_a_take_over(self, pick: int) -> Way:
        """With a run to give back: a process dies with a call in flight, and others find out."""
        victim = self._one_with_something_due(pick)
        if victim is None:
            return
        self._calls(victim)
        lease_id = victim.lease_id
        victim.die()
        self._runs_out(lease_id)
        yield self.world.able
        for service in ("beat", "ownership", "give back", "read"):
            for process in self.world.able:
                process.step(service)

    def to_a_judgement(self, pick: int) -> Way:
        """With a lease to end: a process dies with a call in flight, and its silence is long enough when the first
        looks."""
        victim = self._one_with_something_due(pick)
        if victim is None:
            return
        self._calls(victim)
        victim.die()
        judges = [each for each in self.staying if each.able and each.owner is not None]
        if not judges:
            return
        judge = judges[pick % len(judges)]
        judge.heal()
        for _ in range(2 * SILENT_ROUNDS):  # where more than half are silent, a judge waits for a second ttl
            self.beat_alone(1.25)
        yield [judge]
        judge.step("judge")

    def to_a_departure(self, pick: int) -> Way:
        process = self._one_with_something_due(pick)
        if process is not None:
            yield [process]
            process.drain(5.0)
            if process.transport is not None:
                for call in list(process.transport.in_flight):
                    self.world.answer(call, Answer.OK)
            self.world.advance(5.25)

    def to_a_move(self, pick: int) -> Way:
        tenant = self.tenants[pick % len(self.tenants)]
        if self.world.supervised:
            self.world.demote(tenant.id)
            self.carry_moves(at_once=True, answered=True)
        self.work(2, 1.25, answered=True)
        self.world.promote(tenant.id, 1 + pick % 2)
        yield [self.world, *(each for each in self.world.able if each.cell == "shared")]
        self.carry_moves(at_once=True, answered=True)

    def _one_with_something_due(self, pick: int) -> Process | None:
        """As `_something_due`, beside somebody who lives on."""
        process = self._something_due(pick)
        if process is not None:
            self._somebody_else(process)
        return process
