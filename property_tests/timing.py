"""The timing machine: promises 1, 2 and 8 over schedules, zones, misfires and overlaps.

One executor, up to three tasks, a clock that stands, creeps or leaps. Between two rounds of the executor anything may
happen to a task, or nothing for years. What the slots are is worked out by `wall_clock.py`.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, invariant, multiple, precondition, rule

from property_tests.machine import Machine
from property_tests.plan_drafts import NIGHTS, Draft, Night, drafts
from property_tests.slot_chain import Link, check_chain, check_places, links_of, seconds
from property_tests.stepping import LEAD, SmallWorld, StepOwner, Steps
from property_tests.timing_rules import Judge, Round
from property_tests.wall_clock import Slots, Timeline
from tocsin.common.errors import ConflictError, FieldError
from tocsin.common.models import EARLIEST, Kind, Overlap, PlanSpec, TaskState
from tocsin.common.store.memory.database import parked
from tocsin.common.store.rows import Pending, Task
from tocsin.common.time import schedule

MOST_TASKS = 3
ROUNDS = 60
"""Rounds within which an executor has done all there is to do: two for each slot within the longest grace, and more."""

LEAPS = (0.95, 3_600, 30 * 3_600, 40 * 86_400, 366 * 86_400, 11 * 366 * 86_400)

MOST_STATEMENTS = 12
"""Statements of one round, however old what is due."""


@dataclass
class Subject:
    """A task and what the machine knows of it. `plans` by plan version, `runs` that were begun, by their slot.

    `seen`: skips that were looked at. `blocked`: slots whose run waited for another of the task.
    """

    id: UUID
    tenant_id: UUID
    timeline: Timeline
    plans: dict[int, PlanSpec]
    paused: bool = False
    seen: set[UUID] = field(default_factory=set)
    blocked: set[datetime] = field(default_factory=set)
    runs: dict[datetime, UUID] = field(default_factory=dict)

    def may_wait(self, row: Pending) -> bool:
        """Whether a row may be held or skipped since another run of the task has not ended."""
        plans = [plan for version, plan in self.plans.items() if version >= row.plan_version]
        return any(plan.overlap is not Overlap.ALLOW for plan in plans)


class TimingMachine(Machine):
    subjects = Bundle("subjects")

    def __init__(self) -> None:
        super().__init__()
        self.loop = Steps()
        self.tasks: list[Subject] = []

    def teardown(self) -> None:
        self.loop.close()

    @initialize(night=st.sampled_from(NIGHTS), later=st.integers(0, 10_000))
    def wake(self, night: Night, later: int) -> None:
        self.world = SmallWorld(night.at + timedelta(seconds=later))
        self.owner = StepOwner(self.world, 1)
        self.tenant = self.loop.run(self.world.a_tenant("a"))
        self.loop.run(self.owner.start())
        self.loop.run(self.owner.own())

    # --- what a tenant does

    @precondition(lambda self: len(self.tasks) < MOST_TASKS)
    @rule(target=subjects, draft=drafts())
    def create(self, draft: Draft) -> Subject | object:
        now = self.world.now
        plan = draft.plan(now)
        first = Slots(plan).first_after(seconds(now))
        try:
            task = self.loop.run(self.world.a_task(self.tenant.id, "task", plan))
        except FieldError:
            assert first is None, "promise 1: a plan that has slots is refused"
            return multiple()
        assert first is not None, "promise 8: a plan without a slot to come is taken"
        made = Subject(task.id, task.tenant_id, Timeline(plan, seconds(now)), {1: plan})
        self.tasks.append(made)
        return made

    @rule(subject=subjects, draft=drafts(), keep=st.booleans())
    def edit(self, subject: Subject, draft: Draft, keep: bool) -> None:
        """Another plan; `keep`: the schedule and its zone stay, the policies change."""
        now = self.world.now
        old = self._task(subject).plan
        plan = draft.plan(now)
        if keep:
            plan = old.model_copy(update=draft.rest)

        def change(task: Task, _now: datetime) -> Task:
            return replace(task, plan=plan)

        try:
            self.loop.run(self.world.tasks.edit(subject.tenant_id, subject.id, change))
        except FieldError:
            assert Slots(plan).first_after(seconds(EARLIEST) - 1) is None, "promise 1: a plan that has slots is refused"
            return
        if plan != old:
            self._plan_changed(subject, plan)
        self._look_for(subject, "edit")

    def _plan_changed(self, subject: Subject, plan: PlanSpec) -> None:
        """The old plan's slots end with now, or with a later one that is accounted for already."""
        subject.plans[self._task(subject).plan_version] = plan
        accounted = max((link.until for link in self._links(subject)), default=EARLIEST)
        subject.timeline.change(plan, seconds(max(self.world.now, accounted)))

    @rule(subject=subjects)
    def pause_or_resume(self, subject: Subject) -> None:
        if subject.paused:
            self.loop.run(self.world.tasks.resume(subject.tenant_id, subject.id))
        else:
            self.loop.run(self.world.tasks.pause(subject.tenant_id, subject.id))
        subject.paused = not subject.paused
        self._look_for(subject, "pause" if subject.paused else "resume")

    @rule(subject=subjects)
    def skip_a_slot(self, subject: Subject) -> None:
        row = self._next_row(subject)
        try:
            skipped = self.loop.run(self.world.tasks.skip_next(subject.tenant_id, subject.id))
        except ConflictError:
            assert row is None or parked(row), "a slot that is there cannot be skipped"
            return
        assert row is not None
        assert skipped == row.slot
        self._look_for(subject, "skip")

    @precondition(lambda self: any(not subject.paused for subject in self.tasks))
    @rule(subject=subjects, force=st.booleans())
    def run_now(self, subject: Subject, force: bool) -> None:
        if not subject.paused:
            self.loop.run(self.world.tasks.run_now(subject.tenant_id, subject.id, force=force))

    # --- what time does

    @rule(seconds=st.one_of(st.integers(0, 200), st.sampled_from(LEAPS)))
    def time_goes_by(self, seconds: float) -> None:
        """Moments, or years in which nobody begins anything."""
        self.world.clock.advance(seconds)

    # --- what the executor does

    @rule()
    def serve(self) -> None:
        """Rounds of reading and beginning until nothing is left to do."""
        idle = 0
        for _ in range(ROUNDS):
            idle = 0 if self._serve_once() else idle + 1
            if idle == 2:  # in the first one it may have found out that a task is busy
                return
        raise AssertionError(f"promise 1: an executor does not come to an end within {ROUNDS} rounds")

    @rule(
        subject=subjects,
        late=st.sampled_from([0.0, -0.05, -0.2, 1.0, 50.0, 70.0]),
        brief=st.booleans(),
        times=st.integers(1, 4),
    )
    def serve_its_next_slots(self, subject: Subject, late: float, brief: bool, times: int) -> None:
        """One after the other, at, before or after the due instant of each; `brief`: in one round."""
        for _ in range(times):
            row = self._next_row(subject)
            if row is not None and not parked(row):
                self.world.clock.advance(max(0.0, (row.due_at - self.world.now).total_seconds() + late))
            if brief:
                self._serve_once()
            else:
                self.serve()

    @precondition(lambda self: self.owner.calls.orders)
    @rule(which=st.one_of(st.none(), st.integers(0, 5)), retry_in=st.sampled_from([None, None, 0.0, 30.0]))
    def calls_end(self, which: int | None, retry_in: float | None) -> None:
        """One of them, or all."""
        orders = list(self.owner.calls.orders.values())
        for order in orders if which is None else [orders[which % len(orders)]]:
            self.loop.run(self.owner.end(order.run, retry_in))

    # --- what is asked of the schedule

    @rule(
        draft=drafts(ends=False),
        night=st.sampled_from(NIGHTS),
        after=st.integers(-10_000, 15_000),
        span=st.integers(3_600, 90_000),
    )
    def ask(self, draft: Draft, night: Night, after: int, span: int) -> None:
        """The calendar against the walk over minutes, on a night when clocks change."""
        plan = replace(draft, zone=night.zone).plan(night.at)
        asked = night.at + timedelta(seconds=after)
        until = asked + timedelta(seconds=span)
        slots = Slots(plan)
        found = schedule.next_slot(plan, asked)
        assert found is None or found > asked, f"promise 8: the next slot after {asked} is {found}"
        assert (found and seconds(found)) == slots.first_after(seconds(asked)), "promise 8: another next slot"
        last = slots.last_until(seconds(until), seconds(asked))
        some = schedule.last_slots(plan, asked, until, 3)
        assert [seconds(slot) for slot in some][-1:] == ([] if last is None else [last]), "promise 8: another last slot"
        assert some == sorted(set(some)), "promise 8: slots do not rise"
        count = schedule.count_slots(plan, asked, until)
        assert count.count == slots.count(seconds(asked), seconds(until)), "promise 1: slots are counted wrong"

    # --- what must hold

    @invariant()
    def promise_1_every_slot_is_in_one_place(self) -> None:
        for subject in self.tasks:
            found = self.world.links(subject.id)
            check_places(found)
            timeline = subject.timeline
            last = check_chain(links_of(found), timeline, None)
            expected = timeline.first_after(timeline.eras[0].since if last is None else seconds(last))
            row = self._next_row(subject)
            if subject.paused:
                assert row is not None or expected is None, "promise 1: a paused task has lost its next row"
                assert row is None or parked(row), "promise 1: a paused task has a slot to come"
                assert row is None or row.last_slot == last, "promise 1: a parked row forgot the slot before it"
                continue
            assert (row and row.slot and seconds(row.slot)) == expected, (
                f"promise 1: the next slot is {row and row.slot}"
            )
            assert row is None or row.last_slot == last, "promise 1: a next row forgot the slot before it"

    @invariant()
    def promise_1_no_planning_fails(self) -> None:
        for subject in self.tasks:
            state = TaskState.PAUSED if subject.paused else TaskState.ACTIVE
            assert self._task(subject).state is state, f"promise 1: planning failed: {self._task(subject).fault}"
        assert not self.tasks or not self.owner.calls.back, "a run is put back though nothing has failed"

    # --- below

    def _serve_once(self) -> bool:
        """One round; whether it did anything."""
        self.loop.run(self.owner.look())
        before = self._round()
        self.loop.run(self.owner.begin())
        return self._judged(before)

    def _round(self) -> Round:
        now, database = self.world.now, self.world.database
        for subject in self.tasks:
            rows = database.pending.of_task(subject.id)
            due = [row for row in rows if row.due_at <= now + LEAD]
            busy = bool(database.of_task(subject.id)) or any(row.fence > 0 for row in rows)
            if busy or len(due) > 1:
                subject.blocked |= {row.slot for row in due if row.slot is not None and subject.may_wait(row)}
        return Round(
            now,
            {row.run_id: row for row in database.pending},
            set(database.running),
            database.statements,
        )

    def _judged(self, before: Round) -> bool:
        """Whether the round did anything; all that it did is looked at."""
        database = self.world.database
        assert database.statements - before.statements <= MOST_STATEMENTS, "promise 1: a round's work has no bound"
        for subject in self.tasks:
            judge = self._judge(subject, before)
            running = [row.run for row in database.of_task(subject.id)]
            for run in running:
                if run.run_id not in before.running:
                    first = run.run_id if run.slot is None else subject.runs.setdefault(run.slot, run.run_id)
                    assert first == run.run_id, f"promises 2 and 8: the slot {run.slot} has a second run"
                    judge.begun(run, running, database.pending.of_task(subject.id))
            self._look_at(subject, "begin", judge)
        return {row.run_id for row in database.pending} != set(before.pending)

    def _look_for(self, subject: Subject, doing: str) -> None:
        """Looks at what a tenant's write has recorded."""
        self._look_at(subject, doing, self._judge(subject, Round(self.world.now, {}, set(), 0)))

    def _look_at(self, subject: Subject, doing: str, judge: Judge) -> None:
        links = self._links(subject)
        for link in links:
            if link.reason is not None and link.run_id not in subject.seen:
                subject.seen.add(link.run_id)
                judge.skipped(link, doing, links)

    def _judge(self, subject: Subject, before: Round) -> Judge:
        return Judge(self._task(subject), subject.plans, subject.blocked, before)

    def _task(self, subject: Subject) -> Task:
        return self.world.database.tasks[subject.id]

    def _links(self, subject: Subject) -> list[Link]:
        return links_of(self.world.links(subject.id))

    def _next_row(self, subject: Subject) -> Pending | None:
        rows = [row for row in self.world.database.pending.of_task(subject.id) if row.kind is Kind.NEXT]
        assert len(rows) <= 1, "promise 2: a task has two next rows"
        return rows[0] if rows else None
