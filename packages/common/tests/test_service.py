"""The loop of every service: it goes on after a fault, waits out an outage, and ends where its lease ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import UUID

import pytest

from tocsin.common.errors import LeaseLostError, OutcomeUnknownError, StoreUnavailableError
from tocsin.common.service import Counts, Service, end_process_on_failure


class Rounds:
    """What each round does, or its counts; the last of `steps` stops the service."""

    def __init__(self, *steps: Exception | Counts | None) -> None:
        self.steps = list(steps)
        self.count = 0
        self.service: Service | None = None

    async def run_once(self) -> Counts:
        step = self.steps[self.count]
        self.count += 1
        if self.count == len(self.steps):
            assert self.service is not None
            self.service.stop()
        if isinstance(step, Exception):
            raise step
        return {"done": 1} if step is None else step


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between rounds; none is waited for."""
    asked: list[float] = []

    class NoWait(AbstractAsyncContextManager[None]):
        def __init__(self, seconds: float) -> None:
            asked.append(seconds)

        async def __aenter__(self) -> None:
            raise TimeoutError

        async def __aexit__(self, *_: object) -> None:
            raise AssertionError("never entered")

    monkeypatch.setattr(asyncio, "timeout", NoWait)
    return asked


async def run(
    *steps: Exception | Counts | None, every: float = 0.1, service_class: type[Service] = Service, **options: Any
) -> int:
    rounds = Rounds(*steps)
    rounds.service = service_class("test", rounds.run_once, every, **options)
    await rounds.service.run()
    return rounds.count


async def test_a_round_every_so_often(pauses: list[float]) -> None:
    assert await run(None, None, None) == 3
    assert pauses == [0.1, 0.1]


async def survives_a_fault(service_class: type[Service]) -> bool:
    try:
        return await run(None, TypeError("a fault"), None, service_class=service_class) == 3
    except TypeError:
        return False


class EndsWithItsFirstFault(Service):
    """Broken: nothing is caught."""

    async def _round(self) -> float:
        await self._run_once()
        return self._every


async def test_a_fault_is_logged_and_the_loop_goes_on(pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    assert await survives_a_fault(Service)
    assert "a round failed" in caplog.text
    assert not await survives_a_fault(EndsWithItsFirstFault)


async def test_an_outage_is_logged_once_and_the_pauses_grow_to_a_limit(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    away = [StoreUnavailableError("away")] * 4 + [OutcomeUnknownError("lost")] * 4
    with caplog.at_level(logging.WARNING):
        assert await run(*away, None, None) == 10
    assert pauses == [pytest.approx(p) for p in (0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0, 0.1)]
    assert [record.message.split(": ")[1][:21] for record in caplog.records] == [
        "the database is away ",
        "the database is back",
    ]


AWAY, IDLE = StoreUnavailableError("away"), dict[str, int]()


async def said_and_told(
    caplog: pytest.LogCaptureFixture, *steps: Exception | Counts | None, service_class: type[Service] = Service
) -> tuple[list[str], int]:
    """What was logged in these rounds, by its last word before a bracket, and how often `on_back` was called."""
    back: list[None] = []
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        await run(*steps, service_class=service_class, on_back=lambda: back.append(None))
    return [record.getMessage().partition(" (")[0].rpartition(" ")[2] for record in caplog.records], len(back)


class TakesEveryRoundForAnAnswer(Service):
    """Broken: a round that has asked nothing ends an outage."""

    def __init__(self, name: str, run_once: Callable[[], Awaitable[Counts]], every: float, **options: Any) -> None:
        async def counted() -> Counts:
            return await run_once() or {"nothing": 0}

        super().__init__(name, counted, every, **options)


async def test_only_a_round_that_has_asked_says_that_the_database_is_back(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """As of the begins, which ask nothing while the lease is not trusted, nor the heartbeat answered."""
    steps = (AWAY, IDLE, AWAY, IDLE, IDLE, None, IDLE, None)
    assert await said_and_told(caplog, *steps) == (["away", "back"], 1)
    broken = await said_and_told(caplog, *steps, service_class=TakesEveryRoundForAnAnswer)
    assert broken == (["away", "back", "away", "back"], 2)


async def test_who_waits_for_the_database_is_told_once_after_each_outage(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    assert await said_and_told(caplog, None, None, AWAY, AWAY, None, None, AWAY, None, None) == (
        ["away", "back"] * 2,
        2,
    )


async def outages_of_an_idle_service(service_class: type[Service], caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a service that asks once an outage, and never between, says of two; and its first pause in the second."""
    rounds = Rounds(AWAY, IDLE, IDLE, AWAY, IDLE, None)
    service = rounds.service = service_class("test", rounds.run_once, 0.1)
    caplog.clear()
    said: list[str] = []
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            pause = await service._round()
            if number in (1, 4):
                service.is_back()
                assert service._wake.is_set()
            if number == 3:
                said.append(f"{pause:g}")
    words = [record.getMessage().partition(" (")[0].rpartition(" ")[2] for record in caplog.records]
    return words + said


class HearsNothing(Service):
    """Broken: only its own rounds end an outage."""

    def is_back(self) -> None:
        self.wake()


async def test_a_service_that_asks_nothing_after_an_outage_is_told_that_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await outages_of_an_idle_service(Service, caplog) == ["away", "back", "away", "back", "0.2"]
    assert await outages_of_an_idle_service(HearsNothing, caplog) == ["away", "0.4"]


async def test_a_service_that_has_met_no_outage_says_nothing_of_its_end(caplog: pytest.LogCaptureFixture) -> None:
    Service("test", Rounds(None).run_once, 0.1).is_back()
    assert caplog.text == ""


async def test_a_heartbeat_is_tried_again_as_often_as_ever(pauses: list[float]) -> None:
    """A pause longer than its own interval could make a living process look dead after an outage."""
    await run(*[StoreUnavailableError("away")] * 9, None, every=0.125, longest_pause=0.125)
    assert set(pauses) == {0.125}


async def test_a_lost_lease_ends_the_loop(pauses: list[float]) -> None:
    with pytest.raises(LeaseLostError):
        await run(None, LeaseLostError(UUID(int=1)), None)


async def test_waking_makes_the_next_round_begin_at_once() -> None:
    began = asyncio.Event()
    count = 0

    async def run_once() -> Counts:
        nonlocal count
        count += 1
        began.set()
        return {}

    service = Service("test", run_once, 3600)
    task = asyncio.create_task(service.run())
    await began.wait()
    began.clear()
    service.wake()
    await asyncio.wait_for(began.wait(), 10)
    service.stop()
    await asyncio.wait_for(task, 10)
    assert count == 2


async def rounds_after_stop(service_class: type[Service]) -> int:
    """Stopped in its pause: a heartbeat after the lease was ended would take its own end for a loss."""
    began = asyncio.Event()
    count = 0

    async def run_once() -> Counts:
        nonlocal count
        count += 1
        began.set()
        return {}

    service = service_class("test", run_once, 3600)
    task = asyncio.create_task(service.run())
    await began.wait()
    await asyncio.sleep(0)
    service.stop()
    await asyncio.wait_for(task, 10)
    return count - 1


class OneMoreRound(Service):
    """Broken: looks whether it was stopped only after a round."""

    async def run(self) -> None:
        while True:
            await self._round()
            if self._stopping:
                return
            await self._wake.wait()
            self._wake.clear()


async def test_no_round_follows_a_stop() -> None:
    assert await rounds_after_stop(Service) == 0
    assert await rounds_after_stop(OneMoreRound) == 1


async def test_a_wake_up_during_a_round_is_not_lost() -> None:
    count = 0
    service: Service

    async def run_once() -> Counts:
        nonlocal count
        count += 1
        if count == 1:
            service.wake()
        else:
            service.stop()
        return {}

    service = Service("test", run_once, 3600)
    await asyncio.wait_for(service.run(), 10)
    assert count == 2


OnDone = Callable[["asyncio.Task[Any]", Callable[[int], object]], None]


async def exits_after(end: str, on_done: OnDone = end_process_on_failure) -> list[int]:
    """The exit codes after a task that fails, is cancelled or returns."""

    async def work() -> None:
        if end == "fails":
            raise TypeError("a fault")
        if end == "is cancelled":
            await asyncio.Event().wait()

    codes: list[int] = []
    called = asyncio.Event()

    def done(task: "asyncio.Task[Any]") -> None:
        on_done(task, codes.append)
        called.set()

    task = asyncio.create_task(work(), name="the work")
    task.add_done_callback(done)
    await asyncio.sleep(0)
    if end == "is cancelled":
        task.cancel()
    await asyncio.wait_for(called.wait(), 10)
    return codes


def logs_alone(task: "asyncio.Task[Any]", leave: Callable[[int], object]) -> None:
    """Broken: the process lives on, and does nothing."""
    if not task.cancelled():
        logging.getLogger().error("failed", exc_info=task.exception())


def any_end_is_a_failure(task: "asyncio.Task[Any]", leave: Callable[[int], object]) -> None:
    """Broken: a drained actor would be restarted."""
    if task.cancelled() or task.exception() is not None or task.done():
        leave(1)


async def test_a_failed_task_ends_its_process_with_its_trace_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert await exits_after("fails") == [1]
    assert "the work failed; this process ends" in caplog.text
    assert "TypeError: a fault" in caplog.text
    assert "in work" in caplog.text
    assert await exits_after("fails", logs_alone) == []


@pytest.mark.parametrize("end", ["is cancelled", "returns"])
async def test_a_task_that_was_cancelled_or_has_returned_ends_nothing(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await exits_after(end) == []
    assert caplog.text == ""
    assert await exits_after(end, any_end_is_a_failure) == [1]
