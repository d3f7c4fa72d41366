"""Rule 12: when an executor that Ray placed ends, by which way, and that no fault of its tasks goes unseen."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tocsin.cli import actors
from tocsin.cli.watch import GCS_LOST_SECONDS, Watch, Way
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.engine import actors as engine_actors

Look = tuple[float, bool, bool]
"""Seconds since the start; whether a newer generation has begun; whether the GCS answers."""

LOST = GCS_LOST_SECONDS + 1

LOOKS: dict[str, tuple[list[Look], Way]] = {
    "all is well": ([(5, False, True), (500, False, True)], Way.STAY),
    "the GCS is away for a while": ([(5, False, True), (5 + GCS_LOST_SECONDS, False, False)], Way.STAY),
    "the GCS was away and is back": ([(40, False, False), (44, False, True), (80, False, False)], Way.STAY),
    "the GCS is lost": ([(5, False, True), (5 + LOST, False, False)], Way.ABANDON),
    "the GCS never answered": ([(LOST, False, False)], Way.ABANDON),
    "outdated": ([(5, True, True)], Way.LEAVE),
    "outdated without a GCS": ([(5, True, False)], Way.ABANDON),
    "outdated, and drained meanwhile": ([(5, True, True), (35, False, True)], Way.LEAVE),
    "outdated, and the GCS went meanwhile": ([(5, True, True), (35, False, False)], Way.ABANDON),
    "the GCS was lost and came back while it drained": ([(LOST, False, False), (70, False, True)], Way.LEAVE),
}


def way_after(looks: list[Look], watch_class: type[Watch] = Watch) -> Way:
    watch = watch_class(0.0)
    way = Way.STAY
    for now, outdated, gcs_answers in looks:
        way = watch.look(now, outdated=outdated, gcs_answers=gcs_answers)
    return way


@pytest.mark.parametrize(("looks", "way"), LOOKS.values(), ids=LOOKS)
def test_the_way_out(looks: list[Look], way: Way) -> None:
    assert way_after(looks) is way


class AlwaysAbandons(Watch):
    """Broken: where the GCS lives, Ray restarts it with its old generation, for ever."""

    def look(self, now: float, *, outdated: bool, gcs_answers: bool) -> Way:
        way = super().look(now, outdated=outdated, gcs_answers=gcs_answers)
        return Way.STAY if way is Way.STAY else Way.ABANDON


class AlwaysLeaves(Watch):
    """Broken: Ray's way out waits for a GCS that is gone."""

    def look(self, now: float, *, outdated: bool, gcs_answers: bool) -> Way:
        way = super().look(now, outdated=outdated, gcs_answers=gcs_answers)
        return Way.STAY if way is Way.STAY else Way.LEAVE


class Forgets(Watch):
    """Broken: a drained executor, which no longer looks at the database, stays as a shell."""

    def look(self, now: float, *, outdated: bool, gcs_answers: bool) -> Way:
        self._ending = False
        return super().look(now, outdated=outdated, gcs_answers=gcs_answers)


class NeverLosesTheGcs(Watch):
    """Broken: each look counts as an answer."""

    def look(self, now: float, *, outdated: bool, gcs_answers: bool) -> Way:
        self._gcs_seen = now
        return super().look(now, outdated=outdated, gcs_answers=gcs_answers)


@pytest.mark.parametrize("broken", [AlwaysAbandons, AlwaysLeaves, Forgets, NeverLosesTheGcs])
def test_the_looks_catch_a_broken_watch(broken: type[Watch]) -> None:
    assert [name for name, (looks, way) in LOOKS.items() if way_after(looks, broken) is not way]


class IdleNode:
    def __init__(self, *_: object) -> None:
        pass

    async def run(self) -> None:
        await asyncio.Event().wait()


class FailingNode(IdleNode):
    async def run(self) -> None:
        raise TypeError("a fault")


async def fail(_actor: object) -> None:
    raise TypeError("a fault")


async def idle(_actor: object) -> None:
    await asyncio.Event().wait()


class OnlyStarts:
    """Broken: nobody looks at the end of its task."""

    def __init__(self, *_: object) -> None:
        self._task = asyncio.get_running_loop().create_task(fail(self))


async def fault_is_seen(monkeypatch: pytest.MonkeyPatch, actor_class: type, *arguments: object) -> bool:
    """Whether the fault of one task, which an actor's constructor started, comes to `end_process_on_failure`."""
    faults: list[str] = []

    def see(task: "asyncio.Task[Any]") -> None:
        if not task.cancelled():
            faults.append(str(task.exception()))

    for module in (actors, engine_actors):
        monkeypatch.setattr(module, "end_process_on_failure", see)
        monkeypatch.setattr(module, "RayMeter", MemoryMeter)
    before = asyncio.all_tasks()
    actor_class(*arguments)
    started = asyncio.all_tasks() - before
    await asyncio.wait(started, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)
    return faults == ["a fault"]


@pytest.mark.parametrize(
    ("node_class", "watch"), [(FailingNode, idle), (IdleNode, fail)], ids=["the node", "the watch"]
)
async def test_no_fault_of_an_executors_tasks_goes_unseen(
    monkeypatch: pytest.MonkeyPatch, node_class: type, watch: Callable[[object], Awaitable[None]]
) -> None:
    executor_class = actors.ExecutorActor.__ray_metadata__.modified_class  # type: ignore[attr-defined]
    monkeypatch.setattr(actors, "ExecutorNode", node_class)
    monkeypatch.setattr(executor_class, "_watch", watch)
    assert await fault_is_seen(monkeypatch, executor_class, "shared", 1, "executor/shared/1-0")


async def test_no_fault_of_the_supervisors_task_goes_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor_class = engine_actors.SupervisorActor.__ray_metadata__.modified_class  # type: ignore[attr-defined]
    monkeypatch.setattr(supervisor_class, "_run", fail)
    assert await fault_is_seen(monkeypatch, supervisor_class, None)
    assert not await fault_is_seen(monkeypatch, OnlyStarts)
