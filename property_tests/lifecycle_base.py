"""What all rules of the lifecycle machine stand on: a world, its tenants and tasks, and everybody's daily work."""

from typing import Any, ClassVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import rule

from property_tests.machine import Machine
from property_tests.world.backends import MemoryBackend
from property_tests.world.process import Process
from property_tests.world.world import World
from tocsin.common.models import OnLeaseLost
from tocsin.common.store.tenants import Tenant

MOST_PROCESSES = 4
MOST_TASKS = 5

picks = st.integers(0, 99)
"""Chooses among what there is, so that programs shrink well."""


class LifecycleBase(Machine):
    """On the store in memory."""

    backend: ClassVar[Any] = MemoryBackend

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.backend)
        self.tenants: list[Tenant] = []
        self.stranger: UUID | None = None
        self.tasks: list[tuple[Tenant, UUID]] = []
        self.undisturbed: dict[UUID, int] = {}
        """The period of each task whose schedule was never edited."""
        self.attempts: dict[UUID, int] = {}
        self.due: tuple[UUID, UUID] = (UUID(int=0), UUID(int=0))
        """The tenant and the task of which a story has last made a run due."""

    def create_task(
        self, pick: int, period: int, attempts: int, fails: bool, on_lease_lost: OnLeaseLost, **plan: Any
    ) -> None:
        """`fails`: its endpoint never answers but with an error."""
        tenant = self.tenants[pick % len(self.tenants)]
        task_id = self.world.a_task(tenant, period, attempts, fails, on_lease_lost, **plan)
        if task_id is not None:
            self.tasks.append((tenant, task_id))
            self.undisturbed[task_id] = period
            self.attempts[task_id] = attempts

    def task(self, pick: int) -> tuple[UUID, UUID]:
        tenant, task_id = self.tasks[pick % len(self.tasks)]
        return tenant.id, task_id

    def process(self, pick: int) -> Process | None:
        able = self.world.able
        return able[pick % len(able)] if able else None

    @property
    def staying(self) -> list[Process]:
        """Processes that are neither dead nor about to leave."""
        return [each for each in self.world.processes if not each.dead and each.draining is None]

    def the_database(self, *, down: bool) -> None:
        for process in self.world.processes:
            process.wire.down = down
        self.world.wire.down = down

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

    def beat_alone(self, seconds: float) -> None:
        """Nobody does more than beat."""
        self.world.advance(seconds)
        for process in self.world.able:
            process.step("beat")

    def judge_alone(self, rounds: int, every: float) -> None:
        """Nobody does more than beat and judge."""
        for _ in range(rounds):
            self.world.advance(every)
            for process in self.world.able:
                process.step("beat")
                process.step("judge")
