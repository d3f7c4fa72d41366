"""An event loop that belongs to one process of the world, and runs only when the world says so."""

import asyncio
import concurrent.futures
import itertools
import time
from collections.abc import Callable
from typing import Any

from property_tests.world.clocks import WorldTime

_PATIENCE = 20.0
_LOOK_EVERY = 1_000
"""Turns between two looks at the clock: it is a system call, and was half of all that a machine took."""


class ProcessLoop(asyncio.SelectorEventLoop):
    """Its timers follow the world's time, and threads are not used: what would run in one runs at once."""

    def __init__(self, world: WorldTime) -> None:
        super().__init__()
        self._world = world

    def time(self) -> float:
        return self._world.seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return asyncio.wrap_future(done, loop=self)

    def settle(self, busy: Callable[[], bool]) -> None:
        """Runs whatever can run without time passing. `busy`: an answer is on its way over a real socket.

        Raises:
            AssertionError: after 20 s of this process's own processor time without an end; one that was stopped
                meanwhile is not at fault.
        """
        self.run_until_complete(self._idle(busy))

    async def _idle(self, busy: Callable[[], bool]) -> None:
        began, quiet = None, 0
        for turn in itertools.count(1):
            await asyncio.sleep(0)
            ready: Any = self._ready  # type: ignore[attr-defined]  # no public way says that nothing is left to do
            quiet = 0 if ready or busy() else quiet + 1
            if quiet == 3:
                return
            if turn % _LOOK_EVERY == 0:
                now = time.process_time()
                began = now if began is None else began
                assert now - began < _PATIENCE, "the process does not come to rest"
