"""Connections opened ahead of a known peak: names are resolved and checked as for a call, and nothing is sent."""

import asyncio
import random
from collections import OrderedDict

from tocsin.common.target import Target
from tocsin.executor.egress import EgressGuard, EgressRefusedError
from tocsin.executor.resolver import ResolveError
from tocsin.executor.transport.connecting import in_order_of_trial
from tocsin.executor.transport.lean_pool import PeerKey, Pool

_NAMES_AT_ONCE = 32
_MOST_WAITING = 10_000


class Warming:
    """Works off what is asked for, a few names at a time. What fails is dropped: the call will say why."""

    def __init__(self, guard: EgressGuard, pool: Pool, rng: random.Random) -> None:
        self._guard = guard
        self._pool = pool
        self._rng = rng
        self._wanted: OrderedDict[Target, int] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def want(self, target: Target, count: int) -> None:
        self._wanted[target] = max(count, self._wanted.get(target, 0))
        if len(self._wanted) > _MOST_WAITING:
            self._wanted.popitem()
        elif len(self._tasks) < _NAMES_AT_ONCE:
            task = asyncio.create_task(self._work(), name="warming")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self._wanted.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        while self._wanted:
            target, count = self._wanted.popitem(last=False)
            try:
                addresses = await self._guard.addresses(target)
            except (EgressRefusedError, ResolveError):
                continue
            address = in_order_of_trial(addresses, self._rng)[0]
            self._pool.warm(PeerKey(address, target.port, target.host, target.scheme), count)
