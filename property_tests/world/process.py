"""One executor process of the world: the real owner and the real pool of calls, stepped by hand."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from property_tests.supervising import ZONE_DATA
from property_tests.world.clocks import ProcessClock
from property_tests.world.endpoint import Answer, Call, WorldTransport
from property_tests.world.indexes import INDEXES
from property_tests.world.loop import ProcessLoop
from property_tests.world.wire import Wire, WiredStore
from tocsin.common.calls import Listener
from tocsin.common.clock import DatabaseClock
from tocsin.common.errors import LeaseLostError, StoreUnavailableError
from tocsin.common.hints.null import NullHints
from tocsin.common.ids import Ids
from tocsin.common.store.tenants import Process as Identity
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.engine.lease import Lease
from tocsin.engine.owner import Owner, OwnerConfig
from tocsin.executor.completer import CompleterConfig
from tocsin.executor.pool import CallPool
from tocsin.executor.transport.port import OutgoingRequest

if TYPE_CHECKING:
    from property_tests.world.world import World

log = logging.getLogger("tocsin.world")

SERVICES = ("beat", "judge", "ownership", "give back", "read", "begin", "abort")


class Died(BaseException):
    """The process ends here, as by SIGKILL. No `except Exception` may hear of it."""


class Injected(Exception):  # noqa: N818 - it stands for any exception at all
    """A fault of the process's own, at a crash point."""


class NoWakeUps:
    """What is notified reaches an owner by the world's hand, or not at all."""

    def start(
        self,
        queues: Callable[[Sequence[tuple[UUID, int]]], None],
        tenants: Callable[[], None],
        cancelled: Callable[[Sequence[UUID]], None],
    ) -> None:
        """Nobody listens."""

    async def stop(self) -> None:
        """Nothing runs."""


class Process:
    """`owner` is None between two leases. A `dead` process never comes back; a `frozen` one may."""

    def __init__(self, world: "World", name: str, skew: float, cell: str, generation: int, index: str) -> None:
        self.world = world
        self.name = name
        self.cell = cell
        self._generation = generation
        self.index = INDEXES[index]()
        self.clock = ProcessClock(world.time, skew, 1000.0 * (1 + len(world.processes)))
        self.loop = ProcessLoop(world.time)
        self.loop.set_exception_handler(self._unhandled)
        self.rng = random.Random(name)
        self.meter = MemoryMeter()
        self.wire = Wire(world.saw)
        self.dead = False
        self.frozen = False
        self.draining: asyncio.Task[bool] | None = None
        self.owner: Owner | None = None
        self.transport: WorldTransport | None = None
        self.armed: dict[str, type[BaseException]] = {}
        self._store: WiredStore | None = None
        self._rounds: dict[str, asyncio.Task[Any]] = {}
        self._errors: list[BaseException] = []

    def __repr__(self) -> str:
        return self.name

    @property
    def able(self) -> bool:
        return not (self.dead or self.frozen)

    @property
    def lease_id(self) -> UUID | None:
        return None if self.owner is None else self.owner.lease.id

    def serves(self, tenant_id: UUID) -> bool:
        """Whether it may begin runs of this tenant, as far as it knows."""
        return self.owner is not None and self.draining is None and tenant_id in self.owner.board.tenants

    def heal(self) -> None:
        """No fault waits for it any more."""
        self.armed.clear()
        self.wire.faults.clear()
        self.connect(slow=False)

    def connect(self, *, slow: bool) -> None:
        """`slow`: no connection opens until it is told otherwise."""
        if self.transport is not None:
            self.transport.connecting = slow
            (self.transport.hold if slow else self.transport.connect)()
            self.turn()

    # one life after another

    def live(self) -> None:
        """Takes a new lease, if it has none."""
        if self.owner is None and self.able and self.draining is None:
            self._perform("live", self._new_life)

    async def _new_life(self) -> None:
        lease_id = Ids(self.clock, self.rng).new()
        store = self._store = WiredStore(self.world.backend.store(lease_id), self.wire)
        self.transport = WorldTransport(self._ask_call, self._start_call, self.clock.monotonic)
        identity = Identity("node", f"boot of {self.name}", "pid:1", 1, 1.0)
        owner = Owner(
            store,
            lease_id,
            identity,
            NoWakeUps(),
            self._make_calls,
            self.clock,
            self.rng,
            self.meter,
            OwnerConfig(cell=self.cell, generation=self._generation, zone_data=ZONE_DATA),
            None if type(self.index) is NullHints else lambda _clock: self.index,
        )
        try:
            await store.open()
            await owner._beat.register(self.cell, self._generation, identity, ZONE_DATA)
        except BaseException:
            await store.close()
            raise
        self.owner = owner

    def _make_calls(self, lease: Lease, listener: Listener, database_clock: DatabaseClock) -> CallPool:
        assert self.transport is not None
        assert self._store is not None
        return CallPool(
            self.transport,
            self._store.runs,
            lease.id,
            lease,
            listener,
            self.clock,
            database_clock,
            self.rng,
            self.meter,
            CompleterConfig(gather=0.0),
        )

    def _ask_call(self, request: OutgoingRequest) -> None:
        assert self.lease_id is not None
        self.world.ledgers.call_asked(self.lease_id, UUID(dict(request.headers)["webhook-id"]))

    def _start_call(self, request: OutgoingRequest) -> Call:
        assert self.lease_id is not None
        return self.world.call_started(self, self.lease_id, request, self.loop.create_future())

    def note_spoilt_call(self) -> None:
        """It fails inside after an answer: after the one that it has just been handed."""
        assert self.transport is not None
        assert self.transport.ended is not None
        self.world.ledgers.spoilt.add((self.transport.ended.run_id, self.transport.ended.fence))

    async def _end_life(self, owner: Owner) -> None:
        await owner.calls.close()
        assert self._store is not None
        await self._store.close()

    def _lose_lease(self) -> None:
        owner, self.owner = self.owner, None
        self._drop_rounds()
        if owner is not None:
            self._perform("end of a life", lambda: self._end_life(owner))

    # what the world has it do

    def step(self, service: str) -> None:
        """One round of a service, or as far as it comes: a round that waits goes on in later steps."""
        if self.owner is None or not self.able:
            return
        rounds = {each.name: each._run_once for each in self.owner._services}
        self._perform(service, rounds[service])

    def turn(self) -> None:
        """Whatever it can do by itself now that time has passed."""
        if self.able:
            self._settle()

    def drain(self, grace: float) -> None:
        owner = self.owner
        if owner is None or not self.able or self.draining is not None:
            return
        self.world.active = self
        self.draining = self.loop.create_task(owner.drain(grace))
        self._settle()

    def die(self) -> None:
        """As by SIGKILL: from now on nothing that it does has an effect. A begin under way may still commit."""
        if self.dead:
            return
        self.dead = True
        self.armed.clear()
        self.wire.cut_off = True
        self.wire.faults.clear()
        self._end_tasks()
        self.owner = None

    def _end_tasks(self) -> None:
        while tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.loop.settle(lambda: False)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()

    def late_commit(self) -> None:
        """A begin that is still under way takes effect, whatever has become of its sender's connections."""
        late, self.wire.late = self.wire.late, None
        if late is not None:
            self.world.arrive(late.lease_id, late.items)

    def close(self) -> None:
        self.die()
        self._end_tasks()  # what was begun after its death, too
        if self._store is not None:
            self.loop.run_until_complete(self._store.close())
        self._end_tasks()
        self.loop.close()

    # how it is run

    def _perform(self, name: str, run: Callable[[], Awaitable[Any]]) -> None:
        async def performed() -> None:
            await run()

        if name not in self._rounds:
            self._rounds[name] = self.loop.create_task(performed())
        self._settle()

    def _settle(self) -> None:
        self.world.active = self
        self.loop.settle(lambda: self.wire.under_way > 0)
        if any(error for error in self._errors if isinstance(error, Died)) or self._crashed():
            self.die()
            return
        self._look_at_rounds()
        self._look_at_drain()
        if self._errors:
            raise AssertionError(f"{self.name} failed by itself") from self._errors[0]

    def _crashed(self) -> bool:
        tasks = [*self._rounds.values(), *([self.draining] if self.draining is not None else [])]
        ended = [task.exception() for task in tasks if task.done() and not task.cancelled()]
        return self.world.killed is self or any(isinstance(error, Died) for error in ended)

    def _look_at_rounds(self) -> None:
        for name, task in list(self._rounds.items()):
            if not task.done():
                continue
            del self._rounds[name]
            error = None if task.cancelled() else task.exception()
            if isinstance(error, LeaseLostError):
                self._lose_lease()
                return
            if error is not None and not isinstance(error, StoreUnavailableError | Injected):
                raise AssertionError(f"{self.name}: {name} failed by itself: {error!r}") from error

    def _look_at_drain(self) -> None:
        if self.draining is not None and self.draining.done() and self.owner is not None:
            error = self.draining.exception()
            if error is not None and not isinstance(error, Injected):
                raise AssertionError(f"{self.name}: its drain failed by itself: {error!r}") from error
            self._lose_lease()

    def _drop_rounds(self) -> None:
        for task in self._rounds.values():
            task.cancel()
        self._rounds.clear()

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, Injected):
            self._errors.append(error)

    def answer(self, call: Call, answer: Answer) -> None:
        if not call.future.done():
            call.future.set_result(answer)
