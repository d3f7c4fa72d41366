"""Connections opened ahead of a known peak: names are resolved and checked as for a call, and nothing is sent."""

import asyncio
import random
from collections import OrderedDict
from typing import Final

from tocsin.common.clock import Clock
from tocsin.common.target import Target
from tocsin.executor.egress import EgressGuard, EgressRefusedError
from tocsin.executor.resolver import ResolveError
from tocsin.executor.transport.connecting import OPENED_AHEAD_SECONDS, in_order_of_trial
from tocsin.executor.transport.lean_pool import PeerKey, Pool

AT_ONCE: Final = 64
"""Names and connections under way; the pool's pace holds besides."""

_MOST_WANTED = 10_000


class Warming:
    """A connection to each target, then a second to each, and so on. What fails is dropped: the call will say why."""

    def __init__(self, guard: EgressGuard, pool: Pool, clock: Clock, rng: random.Random) -> None:
        self._guard = guard
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._wanted: OrderedDict[Target, tuple[int, float, int]] = OrderedDict()  # how many, asked when, tries left
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def want(self, target: Target, count: int) -> None:
        if self._closed or len(self._wanted) >= _MOST_WANTED:
            return
        self._wanted[target] = (count, self._clock.monotonic(), count)
        if len(self._tasks) < AT_ONCE:
            task = asyncio.create_task(self._work(), name="warming")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self._closed = True
        self._wanted.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        while self._wanted:
            target, (count, asked, tries) = self._wanted.popitem(last=False)
            if self._clock.monotonic() - asked > OPENED_AHEAD_SECONDS[target.scheme]:
                continue  # its peak has come
            # no more tries than connections: an endpoint may close each as soon as it is open
            if await self._open_one(target, count) and tries > 1:
                self._wanted.setdefault(target, (count, asked, tries - 1))

    async def _open_one(self, target: Target, count: int) -> bool:
        """Whether more may be missing."""
        try:
            addresses = await self._guard.addresses(target)
        except (EgressRefusedError, ResolveError):
            return False
        address = in_order_of_trial(addresses, self._rng)[0]
        return await self._pool.warm(PeerKey(address, target.port, target.host, target.scheme), count)
