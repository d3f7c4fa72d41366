"""Processes that come, die, freeze and drain; the database, and the ways to it; time and the endpoints."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from property_tests.lifecycle_base import MOST_PROCESSES, LifecycleBase, picks
from property_tests.world.endpoint import Answer
from property_tests.world.indexes import INDEXES
from property_tests.world.process import SERVICES, Died, Injected
from property_tests.world.wire import Fault

OWN_POINTS = (
    *("begin.before", "begin.after", "call.before", "call.after", "complete.before", "complete.after"),
    *("put_back.before", "put_back.after", "give_back.before", "give_back.after", "beat.before", "beat.after"),
    *("judge.before", "judge.after", "take_shards.before", "take_shards.after", "give_shards.before"),
    *("give_shards.after", "move_tenant.before", "move_tenant.after"),
    *("cancel_of_tasks.before", "cancel_of_tasks.after", "leave.before", "leave.after"),
)
"""The crash points that an executor can come to here."""

STATEMENTS = (
    *("begin", "complete", "put_back", "give_back", "beat", "judge", "take_shards", "give_shards", "heads"),
    *("held", "end_backend", "recheck", "count_held", "owned_tenants", "move_tenants", "definitions"),
    *("cancel_of_tasks", "fair_part", "leave", "neighbours", "notify", "owned_shards", "register", "remove", "secrets"),
)

MOST_SET_BACK = 10.0


class FaultRules(LifecycleBase):
    @precondition(lambda self: sum(each.cell == "shared" for each in self.staying) < MOST_PROCESSES)
    @rule(skew=st.sampled_from([0.0, -3600.0, 3600.0]), index=st.sampled_from(sorted(INDEXES)))
    def start_a_process(self, skew: float, index: str) -> None:
        self.world.a_process(skew, index)

    @rule(pick=picks, service=st.sampled_from(SERVICES))
    def step(self, pick: int, service: str) -> None:
        process = self.process(pick)
        if process is not None:
            process.live()
            process.step(service)

    @rule(pick=picks)
    def serve(self, pick: int) -> None:
        """The usual order: shares, reads, begins."""
        process = self.process(pick)
        if process is not None:
            process.live()
            for service in ("beat", "ownership", "read", "begin"):
                process.step(service)

    @rule(pick=picks)
    def kill(self, pick: int) -> None:
        process = self.process(pick)
        if process is not None:
            process.die()

    @rule(pick=picks, rounds=st.integers(1, 20), every=st.sampled_from([0.25, 1.25]), idle=st.booleans())
    def freeze_for(self, pick: int, rounds: int, every: float, idle: bool) -> None:
        """`idle`: the others do no more than beat and judge meanwhile."""
        process = self.process(pick)
        if process is not None:
            process.frozen = True
            if idle:
                self.judge_alone(rounds, every)
            else:
                self.work(rounds, every, answered=False)
            process.frozen = False
            process.turn()

    @rule(pick=picks, grace=st.sampled_from([0.0, 5.0]))
    def drain(self, pick: int, grace: float) -> None:
        process = self.process(pick)
        if process is not None:
            process.drain(grace)

    @rule(pick=picks, point=st.sampled_from(OWN_POINTS), error=st.sampled_from([Died, Injected]))
    def arm(self, pick: int, point: str, error: type[BaseException]) -> None:
        process = self.process(pick)
        if process is not None:
            process.armed[point] = error

    # the database

    @rule(pick=picks, statement=st.sampled_from(STATEMENTS), fault=st.sampled_from(Fault))
    def lose_a_statement(self, pick: int, statement: str, fault: Fault) -> None:
        process = self.process(pick)
        if process is not None and (fault is not Fault.LATE or statement == "begin"):
            process.wire.faults[statement] = fault

    @rule(pick=picks, rounds=st.integers(1, 20), every=st.sampled_from([0.25, 1.25]))
    def cut_off(self, pick: int, rounds: int, every: float) -> None:
        """One process loses the database for a while."""
        process = self.process(pick)
        if process is not None:
            process.wire.down = True
            self.work(rounds, every, answered=True)
            process.wire.down = False

    @rule(rounds=st.integers(1, 20), every=st.sampled_from([0.25, 1.25]))
    def the_database_is_away(self, rounds: int, every: float) -> None:
        self.the_database(down=True)
        self.work(rounds, every, answered=True)
        self.the_database(down=False)

    @rule()
    def late_commits(self) -> None:
        for process in self.world.processes:
            if process.dead:
                process.late_commit()

    # time and the endpoint

    @rule(seconds=st.sampled_from([0.05, 0.25, 1.0, 1.25, 3.0, 9.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @precondition(lambda self: self.world.time.step.total_seconds() > -MOST_SET_BACK)
    @rule(seconds=st.sampled_from([0.5, 5.0, 10.0]))
    def set_the_database_back(self, seconds: float) -> None:
        """A lease whose heartbeat is from the future is not judged, so rest comes later by as much."""
        self.world.step_database(-seconds)

    @rule(pick=picks, answer=st.sampled_from(Answer))
    def answer(self, pick: int, answer: Answer) -> None:
        calls = self.world.endpoint.open_calls()
        if calls:
            self.world.answer(calls[pick % len(calls)], answer)

    @rule(pick=picks, slow=st.booleans())
    def connections_are_slow(self, pick: int, slow: bool) -> None:
        process = self.process(pick)
        if process is not None:
            process.connect(slow=slow)
