"""The executors of the move machine: real owners over one store in memory, each step taken when the machine says so."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from property_tests.stepping import NoWakeUps, OpenCalls, completion_of
from property_tests.supervising import ZONE_DATA, a_supervisor, by_cell
from property_tests.world.struck import STRUCK
from tocsin.common.calls import Listener
from tocsin.common.clock import DatabaseClock, ManualClock
from tocsin.common.crashpoints import reach
from tocsin.common.errors import LeaseLostError, OutcomeUnknownError, StoreUnavailableError
from tocsin.common.ids import Ids
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.common.store.memory.leases import MemoryLeases
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.memory.store import MemoryStore
from tocsin.common.store.rows import Backend, BeginItem, BeginResult, Begun, returned
from tocsin.common.store.tenants import Process
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.engine.lease import REMOVE_AFTER, Lease
from tocsin.engine.owner import Owner, OwnerConfig

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
EVERY = 1.25
SPINS = 80
"""Turns of the loop that end whatever waits for nothing but turns."""

HELD_UP = 0.5
"""Seconds; a run that is found to have begun 250 ms ago is not called any more."""

STEPS = ("beat", "ownership", "give back", "read", "begin")

acting: ContextVar["Host | None"] = ContextVar("acting", default=None)


class CrashedError(BaseException):
    """The process ends here: nothing of it may catch this."""


class SlowRuns(MemoryRuns):
    """The path of a run, over which the next begin may be slow, or lose its answer.

    `mode` of the next begin: `slow` waits to arrive, `unread` arrives and waits for its answer to be read, `lost`
    takes effect without an answer, `late` takes effect while its server process is being ended, `never` not at all;
    `held up` takes effect without an answer, and to end its server process takes longer than its runs may wait.
    """

    def __init__(self, host: "Host") -> None:
        super().__init__(host.town.database, host.store.name)
        self._town = host.town
        self.mode = "fast"
        self.gate: asyncio.Event | None = None
        self.late: list[tuple[UUID, Sequence[BeginItem]]] = []
        self.held_up = False

    async def begin(
        self, lease_id: UUID, items: Sequence[BeginItem], note: Callable[[Backend], None] | None = None
    ) -> BeginResult:
        mode, self.mode = self.mode, "fast"
        if mode == "slow":
            try:
                await self._wait()
            except asyncio.CancelledError:  # the process died; what it has sent may arrive yet
                self._town.on_the_way.append((self, lease_id, items))
                raise
        if mode in ("late", "never"):
            if note is not None:
                note(Backend(7, self._name))
            self.late += [(lease_id, items)] if mode == "late" else []
            raise OutcomeUnknownError("the answer was lost")
        result = await super().begin(lease_id, items, note)
        if mode == "unread":
            await self._wait()
        self.held_up = mode == "held up"
        if mode in ("lost", "held up"):
            raise OutcomeUnknownError("the answer was lost")
        return result

    def _begin(self, lease_id: UUID, items: Sequence[BeginItem]) -> BeginResult:
        result = super()._begin(lease_id, items)
        for run in result.begun:
            self._town.begins[run.run_id, run.fence] += 1
        return result

    async def _wait(self) -> None:
        self.gate = asyncio.Event()
        try:
            await self.gate.wait()
        finally:
            self.gate = None

    async def arrive(self, lease_id: UUID, items: Sequence[BeginItem]) -> None:
        """What a dead process had sent arrives."""
        await super().begin(lease_id, items)

    async def commit_late(self) -> None:
        late, self.late = self.late, []
        for lease_id, items in late:
            await self.arrive(lease_id, items)


class EndingLeases(MemoryLeases):
    """A begin that is still under way commits while its server process is being ended, and not after it."""

    def __init__(self, host: "Host") -> None:
        super().__init__(host.town.database)
        self._host = host

    async def end_backend(self, backend: Backend, wait: float) -> bool:
        await self._host.runs.commit_late()
        if self._host.runs.held_up:
            self._host.runs.held_up = False
            self._host.town.clock.advance(HELD_UP)
        return await super().end_backend(backend, wait)


class Host:
    """One executor process: its owner, and what it is about to do."""

    def __init__(self, town: "Town", cell: str, generation: int, number: int) -> None:
        self.town, self.cell, self.name = town, cell, f"{cell}/{number}"
        self.dead = self.frozen = self.draining = False
        self.armed: str | None = None
        self.under_way: dict[str, asyncio.Task[Any]] = {}
        self.lease_id = town.ids.new()
        self.store = MemoryStore(town.database, lease_id=self.lease_id)
        self.runs = SlowRuns(self)
        self.store.runs = self.runs
        self.store.leases = EndingLeases(self)
        self.calls = OpenCalls()
        self.generation = generation
        self.process = Process("node", f"boot {number}", "pid:1", number, 1.0)
        self.owner = Owner(
            self.store,
            self.lease_id,
            self.process,
            NoWakeUps(),
            self._make_calls,
            town.clock,
            random.Random(number),
            MemoryMeter(),
            OwnerConfig(cell=cell, generation=generation, zone_data=ZONE_DATA),
        )
        self._services = {service.name: service._run_once for service in self.owner._services}

    def _make_calls(self, _lease: Lease, _listener: Listener, _clock: DatabaseClock) -> OpenCalls:
        return self.calls

    @property
    def acts(self) -> bool:
        return not self.dead and not self.frozen

    async def register(self) -> None:
        await self.owner._beat.register(self.cell, self.generation, self.process, ZONE_DATA)

    async def step(self, name: str) -> None:
        await self._services[name]()

    async def judge(self) -> None:
        await self.store.leases.judge(self.lease_id)
        await self.store.leases.remove(REMOVE_AFTER)

    async def put_back(self) -> None:
        runs, self.calls.back = self.calls.back, []
        if runs:
            await self.runs.put_back(self.lease_id, [(run.run_id, run.fence) for run in runs])
        for run in runs:
            self.owner.landed(run, returned(run, losses=run.losses + 1))

    async def end_call(self, run: Begun, *, fails: bool = False) -> None:
        """The answer of a call, committed, and the owner told of it."""
        del self.calls.orders[run.run_id]
        now = self.town.clock.now()
        retry_at = now + timedelta(seconds=2) if fails else None
        await self.runs.complete(self.lease_id, [completion_of(run, now, retry_at)])
        self.owner.landed(run, returned(run, due_at=retry_at) if retry_at is not None else None)

    async def drain(self) -> None:
        """As the owner's drain begins."""
        self.draining = self.owner.lease.draining = self.owner.beginner.stopped = True
        await self.step("beat")
        await self.owner.ownership.give_all()

    async def leave(self) -> None:
        """As it ends, with whatever is in flight by now dropped."""
        self.owner.lease.give_up()
        reach("leave.before")
        await self.store.leases.leave(self.lease_id)
        reach("leave.after")
        self.die()

    def die(self) -> None:
        self.dead = True
        self.calls.orders.clear()
        self.calls.back.clear()
        for task in self.under_way.values():
            task.cancel()


class Town:
    """The store, the clock, the executors, and a Supervisor that keeps them. `look` sees what each hand-over did."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look
        self.clock = ManualClock(START)
        self.ids = Ids(self.clock, random.Random(1))
        self.database = MemoryDatabase(self.clock)
        self.store = MemoryStore(self.database, name="tocsin supervisor")
        self.hosts: list[Host] = []
        self.begins: Counter[tuple[UUID, int]] = Counter()
        """By run and fence, how many begins took effect."""
        self.started: Counter[str] = Counter()
        self.loop = asyncio.new_event_loop()
        self.on_the_way: list[tuple[SlowRuns, UUID, Sequence[BeginItem]]] = []
        self.supervisor_armed: str | None = None
        self.new_supervisor()

    def new_supervisor(self) -> None:
        self.supervisor = a_supervisor(self.store, self, self.ids, self.clock)

    # what the Supervisor asks of the cells

    async def running(self) -> dict[str, list[str]]:
        return by_cell(host for host in self.hosts if not host.dead and not host.draining)

    async def start(self, cell: str, generation: int) -> str:
        self.started["hosts"] += 1
        host = Host(self, cell, generation, self.started["hosts"])
        await host.register()
        self.hosts.append(host)
        return host.name

    async def drain(self, names: Sequence[str]) -> None:
        for host in self.hosts:
            if host.name in names:
                host.draining = True

    async def end_silent(self, names: Sequence[str], most: int) -> list[str]:
        return []  # whoever is frozen here wakes again

    # steps

    def reach(self, point: str) -> None:
        """The crash points' handler: whoever comes to the point that it is armed for ends there."""
        host = acting.get()
        if host is None and self.supervisor_armed == point:
            self.supervisor_armed = None
            STRUCK[point, "CrashedError"] += 1
            raise CrashedError(point)
        if host is not None and host.armed == point:
            host.armed = None
            STRUCK[point, "CrashedError"] += 1
            raise CrashedError(point)

    def run(self, what: Coroutine[Any, Any, Any]) -> None:
        self.loop.run_until_complete(what)

    async def whole(self, host: Host, what: Callable[[], Awaitable[None]]) -> None:
        """A step to its end, as this host."""
        task = self.loop.create_task(self._as(host, what))
        await asyncio.wait({task})
        task.result()

    async def _as(self, host: Host, what: Callable[[], Awaitable[None]]) -> None:
        acting.set(host)
        try:
            await what()
        except (LeaseLostError, CrashedError):
            host.die()
        except StoreUnavailableError:
            return

    async def begin_step(self, host: Host, name: str, what: Callable[[], Awaitable[None]]) -> None:
        """A step as far as it comes by itself; one of a name at a time."""
        if name not in host.under_way:
            host.under_way[name] = self.loop.create_task(self._as(host, what))
            await self.spin()

    async def spin(self) -> None:
        for _ in range(SPINS):
            await asyncio.sleep(0)
        for host in self.hosts:
            for name, task in list(host.under_way.items()):
                if task.done():
                    del host.under_way[name]
                    if not task.cancelled():
                        task.result()

    async def supervise(self) -> None:
        try:
            await self.supervisor.run_once()
        except CrashedError:
            self.new_supervisor()
            self.supervisor.generation = await self.store.tenants.generation()

    async def round(self, *, ending: bool, youngest_first: bool = False) -> None:
        """What executors do in an eighth of a ttl. All do each step before any does the next: so what they know of each
        other is as old as it may be. Where one is held up, its steps come as far as they can."""
        self.clock.advance(EVERY)
        hosts = self.hosts[::-1] if youngest_first else list(self.hosts)
        for name in STEPS:
            for host in hosts:
                if host.acts and host.under_way:
                    await self.begin_step(host, name, partial(host.step, name))
                elif host.acts:
                    await self.whole(host, partial(host.step, name))
                if name == "ownership":
                    self.look()
        for host in hosts:
            for run in host.calls.open if ending and host.acts else ():
                if host.acts:
                    await self.whole(host, partial(host.end_call, run))
            for step in (host.judge, host.put_back, *self._draining(host)):
                if host.acts:
                    await self.whole(host, step)
        await self.spin()

    def _draining(self, host: Host) -> list[Callable[[], Awaitable[None]]]:
        if not host.draining:
            return []
        if host.under_way:
            return [partial(self.begin_step, host, "drain", host.drain)]
        over = not host.calls.open and not host.calls.back
        return [host.drain, host.leave] if over else [host.drain]
