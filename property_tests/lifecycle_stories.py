"""What rules drawn one by one come to too seldom: faults that are told in several sentences, and in this order.

Each begins with a run that is due at once, so that something is under way when it strikes.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from property_tests.lifecycle_base import picks
from property_tests.lifecycle_faults import FaultRules
from property_tests.world import promises
from property_tests.world.endpoint import Answer, Call
from property_tests.world.process import Process
from property_tests.world.wire import Fault
from tocsin.common.models import Priority

SILENT_ROUNDS = 9
"""Of 1.25 s: more than a ttl."""

OPENINGS: Mapping[str, Mapping[str, Any]] = {
    "a_begin_loses_its_answer": {"fault": Fault.UNANSWERED},
    "a_begin_arrives_after_its_lease_has_ended": {"dead": True},
    "a_call_ends_after_another_life_has_begun_it": {"answer": Answer.OK},
    "a_result_is_sent_again_after_the_next_begin": {},
    "a_connection_opens_late": {"rounds": SILENT_ROUNDS - 2},
    "the_database_is_away_from_several": {"rounds": SILENT_ROUNDS},
}
"""Stories that a program may open with."""


class StoryRules(FaultRules):
    def _something_due(self, pick: int) -> Process | None:
        """A run that is due at once, and a process that may begin it and that nothing hinders; None: there is none."""
        for number in range(len(self.tasks)):
            tenant_id, task_id = self.task(pick + number)
            serving = [each for each in self.world.able if each.serves(tenant_id)]
            if not serving:
                continue
            if isinstance(self.world.run_now(tenant_id, task_id, force=True), BaseException):
                continue
            self.due = (tenant_id, task_id)
            process = serving[pick % len(serving)]
            process.heal()
            if process.owner is not None:  # it may have found its lease ended
                process.owner._queues_changed([(tenant_id, int(priority)) for priority in Priority])
                return process
        return None

    def _begins(self, process: Process) -> None:
        process.step("beat")
        process.step("read")
        process.step("begin")

    def _calls(self, process: Process) -> list[Call]:
        """What it has in flight once it has begun."""
        self._begins(process)
        self.world.advance(0.05)
        return list(process.transport.in_flight) if process.able and process.transport is not None else []

    def _somebody_else(self, process: Process) -> None:
        """Who is there to judge, and to take over."""
        if not any(each.able and each.cell == "shared" for each in self.staying if each is not process):
            self.world.a_process()

    def _runs_out(self, lease_id: UUID | None) -> None:
        """Nobody does more than judge, until this lease has ended, or for long enough."""
        self.judge_alone(SILENT_ROUNDS, 1.25)
        for _ in range(4):
            leases = self.world.look().leases
            if lease_id is None or lease_id not in leases or leases[lease_id] is not None:
                return
            self.judge_alone(3, 1.25)

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, fault=st.sampled_from([Fault.UNANSWERED, Fault.LATE]))
    def a_begin_loses_its_answer(self, pick: int, fault: Fault) -> None:
        """Its process lives, and nothing else happens: what the begin took must be called, or pending again."""
        process = self._something_due(pick)
        if process is None:
            return
        had = promises.pairs_of(self.world.look().running)
        process.wire.faults["begin"] = fault
        self._begins(process)
        lease_id = process.lease_id
        if process.wire.faults.pop("begin", None) is not None or lease_id is None:
            return
        process.late_commit()  # at the latest
        begun = promises.pairs_of(self.world.look().running) - had
        self.work(20, 0.25, answered=True)
        promises.promise_1_a_lost_begin_is_found_again(self.world.look(), lease_id, begun)

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, dead=st.booleans())
    def a_begin_arrives_after_its_lease_has_ended(self, pick: int, dead: bool) -> None:
        """Its process has died, or cannot reach the database, while the begin was on its way."""
        process = self._something_due(pick)
        if process is None:
            return
        self._somebody_else(process)
        process.wire.faults |= {"begin": Fault.LATE, "end_backend": Fault.REFUSED}
        self._begins(process)
        process.wire.faults.clear()
        if process.wire.late is None:
            return
        lease_id = process.lease_id
        if dead:
            process.die()
        process.wire.down = True
        self._runs_out(lease_id)
        process.late_commit()
        self.world.look()
        process.wire.down = False
        process.turn()

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, answer=st.sampled_from(Answer))
    def a_call_ends_after_another_life_has_begun_it(self, pick: int, answer: Answer) -> None:
        """Its process is frozen until its lease has ended, and another has begun the run anew; then it comes back."""
        process = self._something_due(pick)
        if process is None:
            return
        self._somebody_else(process)
        calls = self._calls(process)
        if not calls:
            return
        process.frozen = True
        self._runs_out(process.lease_id)
        self.work(4, 0.25, answered=False)
        process.frozen = False
        for call in calls:
            self.world.answer(call, answer)
        for _ in range(2):
            self.world.advance(0.25)  # its connections may have been ended: it sends the result anew

    @precondition(lambda self: self.tasks)
    @rule(pick=picks)
    def a_result_is_sent_again_after_the_next_begin(self, pick: int) -> None:
        """The database has it, and its sender cannot know; meanwhile the run is due again, and is begun."""
        process = self._something_due(pick)
        if process is None:
            return
        calls = self._calls(process)
        process.wire.faults["complete"] = Fault.UNANSWERED
        for call in calls:
            self.world.answer(call, Answer.ERROR)
        process.wire.faults.pop("complete", None)
        process.wire.refusing.add("complete")
        self.work(20, 0.25, answered=False)
        process.wire.refusing.clear()
        self.world.advance(1.0)

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, rounds=st.integers(1, SILENT_ROUNDS))
    def a_connection_opens_late(self, pick: int, rounds: int) -> None:
        """While its process is frozen, and perhaps judged: nobody has touched its run yet."""
        process = self._something_due(pick)
        if process is None:
            return
        self._somebody_else(process)
        process.connect(slow=True)
        self._calls(process)
        process.frozen = True
        self.judge_alone(rounds, 1.25)
        process.frozen = False
        process.connect(slow=False)

    @rule(pick=picks, rounds=st.integers(1, 2 * SILENT_ROUNDS))
    def the_database_is_away_from_several(self, pick: int, rounds: int) -> None:
        """Nobody can beat; then all can again, one after the other, and who is first judges the others."""
        process = self.process(pick)
        if process is not None:
            self._somebody_else(process)
            self.judge_alone(1, 1.25)
        self.the_database_is_away(rounds, 1.25)
        self.judge_alone(1, 0.25)
