"""The lifecycle machine: tasks and runs from their creation to their end, whatever fails in between.

Several processes with the real owner and the real pool of calls work over one database; rules step their services one
by one, move time, lose answers, kill, freeze, edit. After each step all promises that hold at all times are checked on
the database and on the endpoint's ledger; at the end everything is healed, given time, and checked at rest.
"""

import sys
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from property_tests.machine import Machine
from property_tests.world import promises
from property_tests.world.backends import MemoryBackend, PostgresBackend
from property_tests.world.endpoint import Answer
from property_tests.world.process import SERVICES, Died, Injected, Process
from property_tests.world.wire import Fault
from property_tests.world.world import World
from tocsin.common.models import Misfire, OnLeaseLost, Overlap
from tocsin.common.store.tenants import Tenant

OWN_POINTS = (
    *("begin.before", "begin.after", "call.before", "call.after", "complete.before", "complete.after"),
    *("put_back.before", "put_back.after", "give_back.before", "give_back.after", "beat.before", "beat.after"),
    *("judge.before", "judge.after", "take_shards.before", "take_shards.after", "give_shards.before"),
    *("give_shards.after", "cancel_of_tasks.before", "cancel_of_tasks.after", "leave.before", "leave.after"),
)
"""The crash points that an executor can come to here."""

STATEMENTS = ("begin", "complete", "put_back", "give_back", "beat", "judge", "take_shards", "give_shards", "heads")

MOST_PROCESSES = 4
MOST_TASKS = 5
LAG = timedelta(seconds=8)
"""How late a run may be at rest: of a task's run that ended elsewhere its owner hears within 5 s."""
MOST_SET_BACK = timedelta(seconds=10)
AMPLE = 100
REST = 60.0
"""Seconds until all is at rest: two lives of a lease, the net under lost answers twice, the longest back-off."""

picks = st.integers(0, 99)


class LifecycleMachine(Machine):
    """On the store in memory. A `pick` chooses among what there is, so that programs shrink well."""

    backend: ClassVar[Any] = MemoryBackend

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.backend)
        self.tenants: list[Tenant] = []
        self.tasks: list[tuple[Tenant, UUID]] = []
        self.undisturbed: dict[UUID, int] = {}
        """The period of each task whose schedule was never edited."""
        self.attempts: dict[UUID, int] = {}

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else what has failed already is what is told
                self.come_to_rest()
        finally:
            self.world.close()

    @initialize(
        caps=st.lists(st.sampled_from([1, 2, 5]), min_size=1, max_size=2),
        periods=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=2),
        processes=st.integers(1, 2),
        fails=st.booleans(),
    )
    def begin_world(self, caps: list[int], periods: list[int], processes: int, fails: bool) -> None:
        self.tenants = [self.world.a_tenant(cap) for cap in caps]
        for _ in range(processes):
            self.world.a_process()
        for number, period in enumerate(periods):
            self._create(number, period, 3, fails, OnLeaseLost.RETRY)
        self.world.go_on(3.0, every=0.25)

    # tenants

    @precondition(lambda self: len(self.tasks) < MOST_TASKS)
    @rule(
        pick=picks,
        period=st.sampled_from([1, 2, 7, 60]),
        attempts=st.integers(1, 3),
        fails=st.booleans(),
        on_lease_lost=st.sampled_from(OnLeaseLost),
        overlap=st.sampled_from(Overlap),
        misfire=st.sampled_from(Misfire),
    )
    def create(
        self, pick: int, period: int, attempts: int, fails: bool, on_lease_lost: OnLeaseLost, **plan: Any
    ) -> None:
        self._create(pick, period, attempts, fails, on_lease_lost, **plan)

    def _create(
        self, pick: int, period: int, attempts: int, fails: bool, on_lease_lost: OnLeaseLost, **plan: Any
    ) -> None:
        """`fails`: its endpoint never answers but with an error."""
        tenant = self.tenants[pick % len(self.tenants)]
        task_id = self.world.a_task(tenant, period, attempts, fails, on_lease_lost, **plan)
        if task_id is not None:
            self.tasks.append((tenant, task_id))
            self.undisturbed[task_id] = period
            self.attempts[task_id] = attempts

    def _task(self, pick: int) -> tuple[UUID, UUID]:
        tenant, task_id = self.tasks[pick % len(self.tasks)]
        return tenant.id, task_id

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, period=st.sampled_from([1, 3, 60]))
    def edit_period(self, pick: int, period: int) -> None:
        tenant_id, task_id = self._task(pick)
        self.undisturbed.pop(task_id, None)
        self.world.edit_period(tenant_id, task_id, period)

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, path=st.sampled_from(["ok", "fails"]))
    def edit_url(self, pick: int, path: str) -> None:
        self.world.edit_url(*self._task(pick), path)

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, what=st.sampled_from(["pause", "resume", "delete", "skip_next"]))
    def change(self, pick: int, what: str) -> None:
        action = getattr(self.world.tasks, what)
        self.world.write(action(*self._task(pick)))

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, force=st.booleans())
    def run_now(self, pick: int, force: bool) -> None:
        tenant_id, task_id = self._task(pick)
        self.world.write(self.world.tasks.run_now(tenant_id, task_id, force=force))

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, running=st.booleans(), heard=st.booleans())
    def cancel(self, pick: int, running: bool, heard: bool) -> None:
        """`heard`: the owners are told, else they find out by themselves, or too late."""
        tables = self.world.backend.tables()
        rows = tables.running if running else tables.pending
        if not rows:
            return
        row = sorted(rows, key=lambda each: each["run_id"])[pick % len(rows)]
        self.world.write(self.world.tasks.cancel(row["tenant_id"], row["run_id"]))
        for process in self.world.able if heard else []:
            if process.owner is not None:
                process.owner._cancels_heard([row["run_id"]])

    @rule(point=st.sampled_from(["api.write.before", "api.write.after"]))
    def the_next_write_crashes(self, point: str) -> None:
        self.world.api_point = point

    @rule(fault=st.sampled_from([Fault.REFUSED, Fault.LOST, Fault.UNANSWERED]))
    def the_next_write_fails(self, fault: Fault) -> None:
        self.world.wire.faults["write"] = fault

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, what=st.sampled_from(["pause", "resume", "delete", "skip_next"]), rounds=st.integers(1, 5))
    def change_while_others_work(self, pick: int, what: str, rounds: int) -> None:
        """The write waits between its look at the next row and its delete: what happens meanwhile, happens."""
        self.world.wire.hold_before = "delete_next"
        self.change(pick, what)
        self.work(rounds, 0.25, answered=True)
        self.world.wire.hold_before = None
        self.world.resume_write()

    @rule()
    def wake_ups_come_and_go(self) -> None:
        self.world.deaf = not self.world.deaf

    # processes

    def _process(self, pick: int) -> Process | None:
        able = self.world.able
        return able[pick % len(able)] if able else None

    @precondition(lambda self: len([p for p in self.world.processes if not p.dead]) < MOST_PROCESSES)
    @rule(skew=st.sampled_from([0.0, -3600.0, 3600.0]))
    def start_a_process(self, skew: float) -> None:
        self.world.a_process(skew)

    @rule(pick=picks, service=st.sampled_from(SERVICES))
    def step(self, pick: int, service: str) -> None:
        process = self._process(pick)
        if process is not None:
            process.live()
            process.step(service)

    @rule(pick=picks)
    def serve(self, pick: int) -> None:
        """The usual order: shares, reads, begins."""
        process = self._process(pick)
        if process is not None:
            process.live()
            for service in ("beat", "ownership", "read", "begin"):
                process.step(service)

    @rule(pick=picks)
    def kill(self, pick: int) -> None:
        process = self._process(pick)
        if process is not None:
            process.die()

    @rule(pick=picks, rounds=st.integers(1, 20), every=st.sampled_from([0.25, 1.25]), idle=st.booleans())
    def freeze_for(self, pick: int, rounds: int, every: float, idle: bool) -> None:
        """`idle`: the others do no more than beat and judge meanwhile."""
        process = self._process(pick)
        if process is not None:
            process.frozen = True
            if idle:
                self._judge_alone(rounds, every)
            else:
                self.work(rounds, every, answered=False)
            process.frozen = False
            process.turn()

    def _judge_alone(self, rounds: int, every: float) -> None:
        for _ in range(rounds):
            self.world.advance(every)
            for process in self.world.able:
                process.step("beat")
                process.step("judge")

    @rule(pick=picks, grace=st.sampled_from([0.0, 5.0]))
    def drain(self, pick: int, grace: float) -> None:
        process = self._process(pick)
        if process is not None:
            process.drain(grace)

    @rule(pick=picks, point=st.sampled_from(OWN_POINTS), error=st.sampled_from([Died, Injected]))
    def arm(self, pick: int, point: str, error: type[BaseException]) -> None:
        process = self._process(pick)
        if process is not None:
            process.armed[point] = error

    # the database

    @rule(pick=picks, statement=st.sampled_from(STATEMENTS), fault=st.sampled_from(Fault))
    def lose_a_statement(self, pick: int, statement: str, fault: Fault) -> None:
        process = self._process(pick)
        if process is not None and (fault is not Fault.LATE or statement == "begin"):
            process.wire.faults[statement] = fault

    @rule(pick=picks, rounds=st.integers(1, 20), every=st.sampled_from([0.25, 1.25]))
    def cut_off(self, pick: int, rounds: int, every: float) -> None:
        """One process loses the database for a while."""
        process = self._process(pick)
        if process is not None:
            process.wire.down = True
            self.work(rounds, every, answered=True)
            process.wire.down = False

    @rule(rounds=st.integers(1, 20), every=st.sampled_from([0.25, 1.25]))
    def the_database_is_away(self, rounds: int, every: float) -> None:
        self._the_database(down=True)
        self.work(rounds, every, answered=True)
        self._the_database(down=False)

    def _the_database(self, *, down: bool) -> None:
        for process in self.world.processes:
            process.wire.down = down
        self.world.wire.down = down

    @rule()
    def late_commits(self) -> None:
        for process in self.world.processes:
            if process.dead:
                process.late_commit()

    # time and the endpoint

    @rule(seconds=st.sampled_from([0.05, 0.25, 1.0, 1.25, 3.0, 9.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @precondition(lambda self: self.world.time.step > -MOST_SET_BACK)
    @rule(seconds=st.sampled_from([0.5, 5.0, 10.0]))
    def set_the_database_back(self, seconds: float) -> None:
        """A lease whose heartbeat is from the future is not judged, so rest comes later by as much."""
        self.world.step_database(-seconds)

    @rule(rounds=st.integers(1, 8), every=st.sampled_from([0.25, 0.3, 1.25]), answered=st.booleans())
    def work(self, rounds: int, every: float, answered: bool) -> None:
        """Everybody does what he does all day."""
        for _ in range(rounds):
            self.world.advance(every)
            self.world.round()
            if answered:
                self.world.answer_all()

    @rule(rounds=st.integers(1, 8), every=st.sampled_from([0.05, 0.25]))
    def work_on(self, rounds: int, every: float) -> None:
        """As `work`: a rule that is there twice is played twice as often."""
        self.work(rounds, every, answered=True)

    @rule(pick=picks, answer=st.sampled_from(Answer))
    def answer(self, pick: int, answer: Answer) -> None:
        calls = self.world.endpoint.open_calls()
        if calls:
            self.world.answer(calls[pick % len(calls)], answer)

    @rule(pick=picks, slow=st.booleans())
    def connections_are_slow(self, pick: int, slow: bool) -> None:
        process = self._process(pick)
        if process is not None and process.transport is not None:
            process.transport.connecting = slow
            (process.transport.hold if slow else process.transport.connect)()
            process.turn()

    # what must hold

    @invariant()
    def the_promises_hold(self) -> None:
        tables = self.world.look()
        promises.promise_1_a_run_has_its_attempts(tables, self.attempts)
        for task_id, period in self.undisturbed.items():
            rows = tables.of_task(task_id)
            promises.promise_1_an_undisturbed_schedule_is_walked(rows, period)

    def come_to_rest(self) -> None:
        """Everything is healed, and everybody has time."""
        world = self.world
        self._the_database(down=False)
        world.wire.faults.clear()
        world.api_point = None
        for process in world.processes:
            process.frozen = False
            process.armed.clear()
            process.wire.faults.clear()
            process.late_commit()
            if process.able and process.transport is not None:
                process.transport.connecting = False
                process.transport.connect()
            process.turn()
        for tenant in self.tenants:
            world.set_cap(tenant.id, AMPLE)  # a backlog in a tenant that has no room to spare would never end
        if not [each for each in world.able if each.draining is None]:
            world.a_process()
        world.go_on(REST, every=1.25)
        tables = world.look()
        promises.at_rest_nothing_due_is_left(tables, tables.now - LAG)
        for task_id, task in tables.tasks.items():  # some of them their makers were never told of
            world.write(world.tasks.pause(task["tenant_id"], task_id))
        world.go_on(15.0, every=1.25)
        tables = world.look(at_rest=True)
        promises.at_rest_nothing_due_is_left(tables, tables.now)


class PostgresLifecycleMachine(LifecycleMachine):
    """The same on a real PostgreSQL: every statement of the product as it is shipped."""

    backend = PostgresBackend
