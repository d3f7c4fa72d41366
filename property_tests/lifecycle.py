"""The lifecycle machine: tasks and runs from their creation to their end, whatever fails in between.

Several processes with the real owner and the real pool of calls work over one database; rules step their services one
by one, move time, lose answers, kill, freeze, edit, promote. After each step all promises that hold at all times are
checked on the database and on the endpoint's ledger; at the end everything is healed, given time, and checked at rest.
"""

import sys
from collections.abc import Sequence
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from property_tests.lifecycle_points import Blow, PointRules, some_blows
from property_tests.lifecycle_stories import OPENINGS
from property_tests.world import promises
from property_tests.world.backends import PostgresBackend
from property_tests.world.indexes import INDEXES
from tocsin.common.models import OnLeaseLost

LAG = timedelta(seconds=8)
"""How late a run may be at rest: of a task's run that ended elsewhere its owner hears within 5 s."""
AMPLE = 100
REST = 60.0
"""Seconds until all is at rest: two lives of a lease, the net under lost answers twice, the longest back-off."""


class LifecycleMachine(PointRules):
    """On the store in memory. A `pick` chooses among what there is, so that programs shrink well."""

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else what has failed already is what is told
                self.come_to_rest()
        finally:
            self.world.close()

    @initialize(
        caps=st.lists(st.sampled_from([1, 2, 5]), min_size=1, max_size=2),
        periods=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=2),
        indexes=st.lists(st.sampled_from(sorted(INDEXES)), min_size=1, max_size=2),
        fails=st.booleans(),
        opening=st.sampled_from(["", "somebody_fails", *OPENINGS]),
        blows=some_blows,
    )
    def begin_world(
        self,
        caps: list[int],
        periods: list[int],
        indexes: list[str],
        fails: bool,
        opening: str,
        blows: Sequence[Blow],
    ) -> None:
        """With a process for each of the hint indexes. `blows`: of the opening in which somebody fails."""
        self.tenants = [self.world.a_tenant(cap) for cap in caps]
        for index in indexes:
            self.world.a_process(index=index)
        for number, period in enumerate(periods):
            self.create_task(number, period, 3, fails, OnLeaseLost.RETRY)
        self.world.go_on(3.0, every=0.25)
        if opening:
            getattr(self, opening)(pick=0, **OPENINGS.get(opening, {"blows": blows}))

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
        self.the_database(down=False)
        world.wire.faults.clear()
        world.armed.clear()
        for process in world.processes:
            process.frozen = False
            process.heal()
            process.late_commit()
            process.turn()
        for tenant in self.tenants:
            world.set_cap(tenant.id, AMPLE)  # a backlog in a tenant that has no room to spare would never end
        if not any(each.cell == "shared" for each in self.staying):
            world.a_process()
        world.go_on(REST, every=1.25)
        tables = world.look()
        promises.promise_1_at_rest_nothing_due_is_left(tables, tables.now - LAG)
        for task_id, task in tables.tasks.items():  # some of them their makers were never told of
            world.write(world.tasks.pause(task["tenant_id"], task_id))
        world.go_on(15.0, every=1.25)
        tables = world.look(at_rest=True)
        promises.promise_1_at_rest_nothing_due_is_left(tables, tables.now)


class PostgresLifecycleMachine(LifecycleMachine):
    """The same on a real PostgreSQL: every statement of the product as it is shipped."""

    backend = PostgresBackend
