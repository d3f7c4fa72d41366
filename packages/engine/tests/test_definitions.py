"""Definitions in memory: as many as there is room for."""

from datetime import UTC, datetime
from uuid import UUID

from tocsin.common.models import AtSchedule, CallSpec, PlanSpec, TaskState
from tocsin.common.store.rows import Task
from tocsin.engine.board import Definitions

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def a_task(number: int) -> Task:
    plan = PlanSpec(schedule=AtSchedule(at=NOW))
    call = CallSpec(url="https://example.com/")
    return Task(UUID(int=number), UUID(int=1), "task", TaskState.ACTIVE, 1, 1, plan, call, None, NOW, NOW)


def test_definitions_are_dropped_least_recently_used_first() -> None:
    definitions = Definitions(size=2)
    definitions.put(a_task(1))
    definitions.put(a_task(2))
    definitions.get(UUID(int=1))
    definitions.put(a_task(3))
    assert [definitions.get(UUID(int=n)) is not None for n in (1, 2, 3)] == [True, False, True]
    definitions.drop(UUID(int=1))
    definitions.drop(UUID(int=1))
    assert definitions.get(UUID(int=1)) is None
