"""A cancellation is heard in whichever step of the event loop it comes, and leaves nothing that goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tocsin.common.service import Counts, Service, together


async def goes_on_after_a_cancellation(service_class: type[Service], steps: int) -> bool:
    """It comes a few steps of the loop after a wake-up."""
    began = asyncio.Event()

    async def run_once() -> Counts:
        began.set()
        return {}

    service = service_class("test", run_once, 3600)
    task = asyncio.create_task(service.run())
    await began.wait()
    for _ in range(3):
        await asyncio.sleep(0)
    service.wake()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    lived = not task.done()
    task.cancel()
    await asyncio.wait([task])
    return lived


class TakesAWakeUpBeforeACancellation(Service):
    """Broken: as with asyncio.wait_for of Python 3.11."""

    async def run(self) -> None:
        while True:
            await self._round()
            waiting = asyncio.create_task(self._wake.wait())
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError:
                if not waiting.done():
                    raise
            self._wake.clear()


async def test_a_cancellation_that_comes_with_a_wake_up_is_not_lost() -> None:
    assert not any([await goes_on_after_a_cancellation(Service, steps) for steps in range(6)])
    assert any([await goes_on_after_a_cancellation(TakesAWakeUpBeforeACancellation, steps) for steps in range(6)])


Together = Callable[..., Awaitable[None]]


async def fails_after(steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
    raise ValueError("the first")


async def ends_wholly(run_together: Together) -> bool:
    """One part fails; whether its error is told, and nothing goes on."""
    others = asyncio.Event()
    with pytest.raises(ValueError, match="the first"):
        await run_together(others.wait(), fails_after(3), others.wait())
    return asyncio.all_tasks() == {asyncio.current_task()}


async def hears_a_cancellation(run_together: Together, steps: int) -> bool:
    """It comes so many steps after the beginning, while one part fails; after the end nobody can hear it."""

    async def work() -> None:
        await run_together(fails_after(3), asyncio.Event().wait())

    running = asyncio.create_task(work())
    for _ in range(steps):
        await asyncio.sleep(0)
    was_over = running.done()
    running.cancel()
    await asyncio.wait([running])
    return was_over or running.cancelled()


async def gathered(*works: Coroutine[Any, Any, object]) -> None:
    """Broken: as with asyncio.gather."""
    await asyncio.gather(*works)


async def test_what_runs_together_ends_together() -> None:
    assert await ends_wholly(together)
    assert not await ends_wholly(gathered)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_a_cancellation_beside_an_error_is_not_lost() -> None:
    assert [await hears_a_cancellation(together, steps) for steps in range(12)] == [True] * 12
    assert not all([await hears_a_cancellation(gathered, steps) for steps in range(12)])
