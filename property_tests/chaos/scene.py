"""Where faults strike, and how it is seen that they did."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.frame import Screen
from property_tests.chaos.executors import SkewedExecutors
from property_tests.chaos.family import Family
from property_tests.chaos.ledger import Life
from property_tests.chaos.watch import Watch
from property_tests.network.proxy import Proxy
from tocsin.cli.up.machine import CELL
from tocsin.common.clock import Clock

BACK_SECONDS = 60.0
"""Within which a process that was killed must have a successor; it takes a few."""

SETTLE_SECONDS = 1.0
"""What was on its way when a fault began may still arrive, and what was told to change does."""

_LOOK_SECONDS = 0.1

_Chosen = TypeVar("_Chosen")


class NotStruckError(Exception):
    """What a fault should have done was not seen, or something did not come back from it; says what."""


@dataclass(slots=True)
class Scene:
    """`dsn` gives PostgreSQL's own address; the file `hold` keeps it from being started. `api` is the API's address.
    `missed`: what of the chaos itself failed meanwhile, in words."""

    family: Family
    proxy: Proxy
    watch: Watch
    skewed: SkewedExecutors
    dsn: Callable[[], str]
    cluster: Path
    hold: Path
    api: str
    ttl: float
    clock: Clock
    screen: Screen
    missed: list[str] = field(default_factory=list)

    def now(self) -> float:
        return self.clock.now().timestamp()

    def miss(self, text: str) -> None:
        """Says it at once, and keeps it."""
        self.missed.append(text)
        self.screen.say(text)

    def actors(self) -> list[Life]:
        """Leases of executors that Ray placed, by pid."""
        own = self.skewed.pids()
        return sorted((life for life in self.watch.live() if life.pid not in own), key=lambda life: life.pid)

    def choose(self, rng: random.Random, *, dedicated: bool) -> Life:
        """A live executor of the shared cell, or of a tenant's own.

        Raises:
            NotStruckError: there is none.
        """
        found = [life for life in self.watch.live() if (life.cell != CELL) is dedicated]
        return one_of(rng, sorted(found, key=lambda life: life.pid), "executor of such a cell")

    async def seen(self, what: str, look: Callable[[], Awaitable[bool]], seconds: float) -> float:
        """Returns when it is, and after how many seconds.

        Raises:
            NotStruckError: it was not, within `seconds`.
        """
        began = self.clock.monotonic()
        while not await look():
            if self.clock.monotonic() - began > seconds:
                raise NotStruckError(f"{what}: not within {seconds:g} s")
            await asyncio.sleep(_LOOK_SECONDS)
        return self.clock.monotonic() - began

    async def lease_ended(self, life: Life, seconds: float) -> None:
        """Returns when it is seen to have.

        Raises:
            NotStruckError: it goes on. Then nothing is excused by its process having failed.
        """

        async def expired() -> bool:
            return life.expired is not None

        try:
            await self.seen(f"the lease of pid {life.pid} ended", expired, seconds)
        except NotStruckError:
            life.failed = None
            raise

    async def served_again(self, life: Life, known: set[object]) -> float:
        """Returns when the cell of a lease that ended has one that is not among those known before, and after how long.

        Raises:
            NotStruckError
        """

        async def another() -> bool:
            return any(one.cell == life.cell and one.lease_id not in known for one in self.watch.live())

        return await self.seen(f"another executor serves {life.cell}", another, BACK_SECONDS)

    async def silent(self, seconds: float) -> None:
        """Waits so long, while nobody can write: no heartbeat may arrive.

        Raises:
            NotStruckError: one has.
        """
        began = self.now() + SETTLE_SECONDS
        await asyncio.sleep(seconds)
        ended = self.now()
        if any(began < beat < ended for life in self.watch.lives.values() for beat in life.beats):
            raise NotStruckError("heartbeats arrived all the same")


def one_of(rng: random.Random, found: list[_Chosen], what: str) -> _Chosen:
    """
    Raises:
        NotStruckError: nothing was found.
    """
    if not found:
        raise NotStruckError(f"there was no {what}")
    return rng.choice(found)
