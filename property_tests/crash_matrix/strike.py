"""One fault, struck once: at the n-th time that its process comes to its point with something to do."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from property_tests.crash_matrix.processes import Child
from property_tests.crash_matrix.stage import Stage
from property_tests.crash_matrix.work import Work
from property_tests.network.proxy import Cut, Trap


class Fault(StrEnum):
    KILL = "kill -9"
    RAISE = "exception"
    CUT_BEFORE = "cut before the commit"
    CUT_AFTER = "cut after the commit"


CUTS = {Fault.CUT_BEFORE: Cut.BEFORE, Fault.CUT_AFTER: Cut.AFTER}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen while a process stood still at a point. `on_the_wire`: executions of the point's statement that the
    server had not answered. `between`: points that its task had come to since the one before it; None at that one.
    `rows`: on how many rows the statement took effect, by the server's answer; or, where it was not sent, would have;
    None: there is no statement, or whoever comes to the point has its rows in hand."""

    on_the_wire: int
    between: tuple[str, ...] | None
    rows: int | None = None


class Strike:
    """Waits, once armed, for the `nth` time that `victim` comes to `point` with something to do; `work` says whether
    the statement would find something, where that is not sure. `hooks`: what else is done when it comes to other
    points. `at`: the Unix second of the fault."""

    def __init__(
        self, victim: str, point: str, fault: Fault, statement: str | None, nth: int, work: Work | None = None
    ) -> None:
        self.victim = victim
        self.point = point
        self.fault = fault
        self.hooks: dict[str, Callable[[], Awaitable[None]]] = {}
        self.at: float | None = None
        self.evidence: Evidence | None = None
        self.struck = asyncio.Event()
        self._statement = statement
        self._work = work
        self._left = nth
        self._armed = False
        self._stage: Stage | None = None
        self._springing: asyncio.Task[None] | None = None

    def arm(self, stage: Stage) -> None:
        self._stage = stage
        self._armed = True

    async def decide(self, name: str, point: str) -> str:
        """What a process is told that stands still at a point."""
        if name == self.victim and (hook := self.hooks.get(point)) is not None:
            await hook()
        if not self._armed or self._left == 0 or name != self.victim or point != self.point:
            return "go"
        assert self._stage is not None
        evidence = await self._look(self._stage)
        if evidence.rows == 0:
            return "go"
        self._left -= 1
        if self._left:
            return "go"
        self.evidence = evidence
        return self._strike(self._stage)

    async def _look(self, stage: Stage) -> Evidence:
        before = self.point.rpartition(".")[0] + ".before"
        between = None
        if self.point != before and (found := stage.control.traces[self.victim].since(before)) is not None:
            between = tuple(found)
        child = stage.keeper.children.get(self.victim)
        if self._statement is None or child is None:
            return Evidence(0, between)
        return Evidence(child.proxy.unanswered(self._statement), between, await self._rows(stage, child))

    async def _rows(self, stage: Stage, child: Child) -> int | None:
        assert self._statement is not None
        if self.point.endswith(".after"):
            return child.proxy.rows.get(self._statement, 0)
        return None if self._work is None else await self._work(stage, child)

    def _strike(self, stage: Stage) -> str:
        if self.fault in CUTS:
            assert self._statement is not None
            trap = Trap(self._statement, CUTS[self.fault])
            stage.keeper.children[self.victim].proxy.trap = trap
            self._springing = asyncio.create_task(self._sprung(trap))
            return "go"
        if self.fault is Fault.KILL:
            self.at = stage.keeper.kill(self.victim)
        else:
            self.at = stage.clock.now().timestamp()
        self.struck.set()
        return "raise"  # to a process that was killed, it makes no difference

    async def _sprung(self, trap: Trap) -> None:
        await trap.done.wait()
        self.at = trap.struck
        if trap.rows is not None and self.evidence is not None:
            self.evidence = replace(self.evidence, rows=trap.rows)
        self.struck.set()

    async def close(self) -> None:
        if self._springing is not None:
            self._springing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._springing
