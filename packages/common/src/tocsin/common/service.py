"""The one shape of every long-lived service: `run_once(now) -> counts`, and the loop around it."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from tocsin.common.errors import LeaseLostError, StoreUnavailableError

log = logging.getLogger("tocsin.service")

Counts = Mapping[str, int]

_LONGEST_PAUSE = 2.0


class Service:
    """Runs `run_once` every `every` seconds, and at once when woken.

    A database that is away is logged once, retried with a pause that grows to `longest_pause` seconds, and
    logged again when it is back; `on_back` is called then. A round without counts has asked nothing of the database,
    and says nothing about it: a service with many of those is told by `is_back`. Any other exception is logged with
    its trace, and the loop goes on: one fault must not end the service. A lost lease ends the loop: whoever started it
    must start anew.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[Counts]],
        every: float,
        *,
        longest_pause: float = _LONGEST_PAUSE,
        on_back: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self._run_once = run_once
        self._every = every
        self._longest_pause = longest_pause
        self._on_back = on_back
        self._wake = asyncio.Event()
        self._stopping = False
        self._away = 0

    def wake(self) -> None:
        """Makes the next round begin at once."""
        self._wake.set()

    def is_back(self) -> None:
        """The database is back, as another service has seen: what this one has met of the outage is over, though it
        may ask nothing itself for long. Its next round begins at once."""
        if self._away:
            self._away = 0
            log.warning("%s: the database is back", self.name)
        self.wake()

    def stop(self) -> None:
        """Ends the loop after the round under way; at once where it pauses."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Raises:
        LeaseLostError: this process's lease has ended.
        """
        while not self._stopping:
            pause = await self._round()
            if not self._stopping:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):  # Python 3.11's wait_for loses a cancellation beside its result
                        await self._wake.wait()
                self._wake.clear()

    async def _round(self) -> float:
        try:
            counts = await self._run_once()
        except LeaseLostError:
            raise
        except StoreUnavailableError as error:
            self._away += 1
            if self._away == 1:
                log.warning("%s: the database is away (%s); trying again", self.name, error)
            return min(self._longest_pause, self._every * (1 << min(self._away, 6)))
        except Exception:
            log.exception("%s: a round failed; going on", self.name)
            return self._every
        if self._away and counts:
            log.warning("%s: the database is back", self.name)
            self._away = 0
            self._on_back()
        return self._every


async def together(*works: Coroutine[Any, Any, object]) -> None:
    """Runs all of them until one ends, and raises what that raised; none of the others goes on alone.

    A cancellation that comes beside an error is not lost, as it may be with `asyncio.gather`.
    """
    parts = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


def end_process_on_failure(task: "asyncio.Task[Any]", leave: Callable[[int], object] = os._exit) -> None:
    """A done callback for a task that its process lives for: its exception is logged and ends the process with code 1.

    Else a process that does nothing would look alive, and whoever restarts dead ones would let it be. A cancelled
    task, and one that has returned, ended as it was meant to.
    """
    if task.cancelled():
        return
    if (error := task.exception()) is not None:
        log.critical("%s failed; this process ends", task.get_name(), exc_info=error)
        leave(1)
