"""Deadlines of calls: kept, not before their time, and told from a cancellation that somebody else asked for."""

import asyncio

import pytest

from lean_bench import turns
from tocsin.executor.transport.lean_deadlines import TICK_SECONDS, Deadlines


class Calls:
    """Calls that hang until their deadlines, on a time that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.timers: list[float] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_at", self.note)
        self.deadlines = Deadlines()

    def note(self, when: float, _call: object) -> "asyncio.Future[None]":
        self.timers.append(when)
        return asyncio.get_running_loop().create_future()

    async def call(self, seconds: float) -> "asyncio.Task[str]":
        task = asyncio.create_task(self.run(seconds))
        await turns()
        return task

    async def run(self, seconds: float) -> str:
        task = asyncio.current_task()
        assert task is not None
        deadline = self.deadlines.begin(task, seconds)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.deadlines.end(deadline):
                return "too late"
            raise
        raise AssertionError

    async def move(self, seconds: float) -> None:
        """To then; the timer that is due by then fires."""
        self.now += seconds
        if self.timers and self.timers[-1] <= self.now + 1e-6:
            self.deadlines.fire()
        await turns()


@pytest.fixture
async def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


async def test_a_call_ends_at_its_deadline_or_a_tick_later_and_is_not_cancelled(calls: Calls) -> None:
    early, late = await calls.call(1.0), await calls.call(2.0)
    await calls.move(0.999)
    assert not early.done()
    await calls.move(0.001 + TICK_SECONDS)
    assert (early.result(), early.cancelling(), late.done()) == ("too late", 0, False)
    await calls.move(1.0)
    assert late.result() == "too late"


async def test_a_call_with_an_earlier_deadline_than_all_others_moves_the_timer(calls: Calls) -> None:
    late, early = await calls.call(60.0), await calls.call(0.5)
    assert calls.timers == sorted(calls.timers, reverse=True)
    await calls.move(0.5 + TICK_SECONDS)
    assert early.result() == "too late"
    await calls.move(59.5)
    assert late.result() == "too late"


async def test_a_call_that_ends_by_itself_is_left_alone(calls: Calls) -> None:
    task = await calls.call(1.0)
    task.cancel()
    await turns()
    assert task.cancelled()
    await calls.move(2.0)
    assert calls.deadlines._waiting == {}


async def test_a_cancellation_by_somebody_else_is_not_taken_for_the_deadline(calls: Calls) -> None:
    task = await calls.call(1.0)
    calls.now += 2.0
    calls.deadlines.fire()
    task.cancel()  # in the same step
    await turns()
    assert task.cancelled()


async def test_a_timer_that_fires_a_hair_early_counts_as_due(calls: Calls) -> None:
    task = await calls.call(1.0)
    calls.now = calls.timers[-1] - 1e-9
    calls.deadlines.fire()
    await turns()
    assert task.result() == "too late"
