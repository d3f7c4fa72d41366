"""What tenants ask for, and what is done about a tenant: writes on tasks and runs, cells of its own."""

from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from property_tests.lifecycle_base import MOST_PROCESSES, MOST_TASKS, LifecycleBase, picks
from property_tests.world import promises
from property_tests.world.process import Died, Injected
from property_tests.world.wire import Fault
from property_tests.world.world import READS
from tocsin.common.models import Misfire, OnLeaseLost, Overlap, Priority

MOST_WITH_OWN = MOST_PROCESSES + 2
"""Processes, those of tenants' own cells included, up to which the Supervisor acts; at rest it always does."""

MOVE_ROUNDS = 6
"""Rounds in which a move is carried out where nobody hinders it."""

API_POINTS = (
    *("api.write.before", "api.write.after"),
    *("ask_move.before", "ask_move.after", "move_unowned.before", "move_unowned.after"),
)
"""Crash points of those that own nothing: the API, and the Supervisor."""


OF_A_TENANT = ("edit", "pause", "resume", "delete", "skip_next", "run_now", "cancel", *READS)
"""What a tenant does with a task or a run, and reads of it."""


class TenantRules(LifecycleBase):
    @precondition(lambda self: len(self.tasks) < MOST_TASKS)
    @rule(
        pick=picks,
        period=st.sampled_from([1, 2, 7, 60]),
        attempts=st.integers(1, 3),
        fails=st.booleans(),
        on_lease_lost=st.sampled_from(OnLeaseLost),
        overlap=st.sampled_from(Overlap),
        misfire=st.sampled_from(Misfire),
        priority=st.sampled_from(Priority),
    )
    def create(
        self, pick: int, period: int, attempts: int, fails: bool, on_lease_lost: OnLeaseLost, **plan: Any
    ) -> None:
        self.create_task(pick, period, attempts, fails, on_lease_lost, **plan)

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, period=st.sampled_from([1, 3, 60]))
    def edit_period(self, pick: int, period: int) -> None:
        tenant_id, task_id = self.task(pick)
        self.undisturbed.pop(task_id, None)
        self.world.edit_period(tenant_id, task_id, period)

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, path=st.sampled_from(["ok", "fails"]))
    def edit_url(self, pick: int, path: str) -> None:
        self.world.edit_url(*self.task(pick), path)

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, what=st.sampled_from(["pause", "resume", "delete", "skip_next"]))
    def change(self, pick: int, what: str) -> None:
        action = getattr(self.world.tasks, what)
        self.world.write(action(*self.task(pick)))

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, force=st.booleans())
    def run_now(self, pick: int, force: bool) -> None:
        tenant_id, task_id = self.task(pick)
        self.world.run_now(tenant_id, task_id, force=force)

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

    @precondition(lambda self: self.tasks)
    @rule(pick=picks, what=st.sampled_from(OF_A_TENANT))
    def another_tenant_asks(self, pick: int, what: str) -> None:
        """For a task, or for one of its runs: it is told that there is none, and nothing changes."""
        owner, task_id = self.task(pick)
        others = [tenant.id for tenant in self.tenants if tenant.id != owner]
        self.world.resume_write()
        self.world.wire.faults.clear()
        stranger = others[pick % len(others)] if others else self._stranger()
        before = self.world.look()
        rows = (*before.pending, *before.running, *before.history)
        runs = sorted({row["run_id"] for row in rows if row["tenant_id"] == owner}) or [UUID(int=1)]
        found = self.world.ask_as(stranger, what, task_id, runs[-1 - pick % len(runs)])
        promises.promise_12_another_tenant_finds_nothing(what, found)
        promises.promise_12_and_changes_nothing(what, before, self.world.look())

    def _stranger(self) -> UUID:
        """A tenant without a task."""
        if self.stranger is None:
            self.stranger = self.world.a_tenant(1).id
        return self.stranger

    @rule(point=st.sampled_from(API_POINTS), error=st.sampled_from([Died, Injected]))
    def the_next_write_crashes(self, point: str, error: type[BaseException]) -> None:
        self.world.armed[point] = error

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

    # cells

    @rule(pick=picks, k=st.sampled_from([1, 2]), at_once=st.booleans(), answered=st.booleans())
    def promote(self, pick: int, k: int, at_once: bool, answered: bool) -> None:
        """To k shards of its own; `at_once`: and it is carried through."""
        self.world.promote(self.tenants[pick % len(self.tenants)].id, k)
        self.carry_moves(at_once, answered)

    @precondition(lambda self: self.world.supervised)
    @rule(pick=picks, at_once=st.booleans(), answered=st.booleans())
    def demote(self, pick: int, at_once: bool, answered: bool) -> None:
        self.world.demote(self.tenants[pick % len(self.tenants)].id)
        self.carry_moves(at_once, answered)

    def carry_moves(self, at_once: bool, answered: bool) -> None:
        for _ in range(MOVE_ROUNDS if at_once else 1):
            self.supervise()
            self.work(1, 1.25, answered=answered)

    @precondition(lambda self: self.world.supervised)
    @rule()
    def supervise(self) -> None:
        if len(self.staying) < MOST_WITH_OWN:
            self.world.supervise()
