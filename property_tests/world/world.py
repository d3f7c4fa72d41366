"""The world: processes over one database, tenants' writes, an endpoint, and a look at both ledgers after each step."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from property_tests.supervising import a_supervisor
from property_tests.world.backends import Backend
from property_tests.world.cells import WorldCells
from property_tests.world.clocks import ProcessClock, WorldTime
from property_tests.world.endpoint import Answer, Call, Endpoint
from property_tests.world.ledgers import Ledgers
from property_tests.world.loop import ProcessLoop
from property_tests.world.process import SERVICES, Died, Injected, Process
from property_tests.world.struck import STRUCK
from property_tests.world.tables import Tables
from property_tests.world.wire import Wire, WiredStore
from tocsin.common import crashpoints
from tocsin.common.errors import NotFoundError, StoreUnavailableError, TocsinError
from tocsin.common.hints.null import NullHints
from tocsin.common.ids import Ids, shard_of
from tocsin.common.models import CallSpec, EverySchedule, OnLeaseLost, Overlap, PlanSpec, RetrySpec
from tocsin.common.store.rows import BeginItem, BeginResult, Task
from tocsin.common.store.tenants import Tenant
from tocsin.common.tasks import NewTask, Tasks
from tocsin.engine.supervisor import Supervisor
from tocsin.executor.transport.port import OutgoingRequest

READS = ("get", "runs", "run")
"""What a tenant reads of a task or a run of its own."""

SIGNED_WITH = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQh"


class World:
    """Everything happens in `active`'s name: at a crash point it is that process which dies."""

    def __init__(self, backend: Callable[[WorldTime], Backend]) -> None:
        self.time = WorldTime()
        self.backend = backend(self.time)
        self.endpoint = Endpoint()
        self.processes: list[Process] = []
        self.active: Process | None = None
        self.killed: Process | None = None
        self.ledgers = Ledgers(self)
        self.saw = self.ledgers.saw
        self.api = ProcessLoop(self.time)
        self.wire = Wire()
        clock = ProcessClock(self.time, 0.0, 5.0)
        self.ids = Ids(clock, random.Random(7))
        self._store = WiredStore(self.backend.store(None), self.wire)
        self.tasks = Tasks(self._store.tasks, self.ids, self._woken)
        self.armed: dict[str, type[BaseException]] = {}
        """Crash points of those that own nothing: the API, and the Supervisor."""
        self._writing: asyncio.Task[Any] | None = None
        self.deaf = False
        self.supervised = False
        self._cells = WorldCells(self)
        self._supervisor = self._a_supervisor()
        crashpoints.set_handler(self._reached)
        self.write(self._store.open())

    def close(self) -> None:
        self.resume_write()
        crashpoints.set_handler(None)
        for process in self.processes:
            process.close()
        self.api.run_until_complete(self._store.close())
        self.api.close()
        self.backend.close()

    # the tenants' side

    def write(self, action: Awaitable[Any]) -> Any:
        """One request to the API: its result, or the error with which it was refused. A crash of the API is one.

        None where it waits within its transaction; the next write lets it go on first.
        """

        async def request() -> Any:
            return await action

        self.resume_write()
        self._writing = self.api.create_task(request())
        return self._go_on_writing()

    def resume_write(self) -> None:
        """Lets a write go on that waits within its transaction."""
        if self.wire.held is not None:
            self.wire.held.set_result(None)
            self.wire.held = None
            self._go_on_writing()

    def _go_on_writing(self) -> Any:
        task, self.active = self._writing, None
        assert task is not None
        self.api.settle(lambda: self.wire.under_way > 0 and self.wire.held is None)
        if self.wire.held is not None:
            return None
        assert task.done(), "a write does not come to its end"
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, TocsinError | StoreUnavailableError | Died | Injected):
            return error
        raise error

    def a_tenant(self, cap: int) -> Tenant:
        tenant_id = self.ids.new(self.time.database_now())
        tenant = Tenant(tenant_id, f"tenant {tenant_id}", shard_of(tenant_id), 1.0, cap, None)
        self.write(self._store.tenants.insert(tenant, [SIGNED_WITH]))
        return tenant

    def set_cap(self, tenant_id: UUID, cap: int) -> None:
        self.write(self._store.tenants.set_limits(tenant_id, lambda tenant: replace(tenant, max_in_flight=cap)))

    def a_task(
        self, tenant: Tenant, period: int, attempts: int, fails: bool, on_lease_lost: OnLeaseLost, **plan: Any
    ) -> UUID | None:
        retry = RetrySpec(max_attempts=attempts, base_seconds=1.0, cap_seconds=4.0)
        call = CallSpec(url=_url("fails" if fails else "ok"), retry=retry, on_lease_lost=on_lease_lost)

        def planned(now: datetime) -> PlanSpec:
            return PlanSpec(schedule=_every(period, now), **plan)

        created = self.write(self.tasks.create(tenant.id, NewTask("task", planned, call, None)))
        return getattr(created, "task_id", None)

    def promote(self, tenant_id: UUID, k: int) -> None:
        """Asks for a cell of its own, with k shards."""
        self.write(self._store.tenants.open_cell(tenant_id, k))

    def demote(self, tenant_id: UUID) -> None:
        self.write(self._store.tenants.close_cell(f"tenant-{tenant_id}", tenant_id))

    def edit_period(self, tenant_id: UUID, task_id: UUID, period: int) -> None:
        def change(old: Task, now: datetime) -> Task:
            return replace(old, plan=old.plan.model_copy(update={"schedule": _every(period, now)}))

        self.write(self.tasks.edit(tenant_id, task_id, change))

    def run_now(self, tenant_id: UUID, task_id: UUID, *, force: bool = False) -> Any:
        """The run's id, which stands for a run from now on; or why there is none, or that nobody knows."""
        planted = self.write(self.tasks.run_now(tenant_id, task_id, force=force))
        if isinstance(planted, UUID):
            self.ledgers.runs.add(planted)
        return planted

    def edit_overlap(self, tenant_id: UUID, task_id: UUID, overlap: Overlap) -> None:
        def change(old: Task, _now: datetime) -> Task:
            return replace(old, plan=old.plan.model_copy(update={"overlap": overlap}))

        self.write(self.tasks.edit(tenant_id, task_id, change))

    def edit_url(self, tenant_id: UUID, task_id: UUID, path: str) -> None:
        def change(old: Task, _now: datetime) -> Task:
            return replace(old, call=old.call.model_copy(update={"url": _url(path)}))

        self.write(self.tasks.edit(tenant_id, task_id, change))

    def ask_as(self, tenant_id: UUID, what: str, task_id: UUID, run_id: UUID) -> object:
        """What a tenant's request for a task or a run comes to; None: it is told that there is none."""
        tasks, reads = self.tasks, self._store.tasks
        requests: dict[str, Callable[[], Awaitable[object]]] = {
            "edit": lambda: tasks.edit(tenant_id, task_id, lambda old, _now: replace(old, name="stolen")),
            "cancel": lambda: tasks.cancel(tenant_id, run_id),
            "get": lambda: reads.get(tenant_id, task_id),
            "runs": lambda: reads.runs(tenant_id, task_id, None, 10),
            "run": lambda: reads.run(tenant_id, run_id),
        }
        found = self.write(requests[what]() if what in requests else getattr(tasks, what)(tenant_id, task_id))
        nothing = isinstance(found, NotFoundError) or (what in READS and found in (None, []))
        return None if nothing else f"done: {found!r}"

    def _woken(self, tenant_id: UUID, priority: int) -> None:
        for process in self.processes:
            if process.owner is not None and process.able and not self.deaf:
                process.owner._queues_changed([(tenant_id, priority)])

    # the executors' side

    def a_process(self, skew: float = 0.0, index: str = "none") -> Process:
        process = self.add_process(skew=skew, index=index)
        process.live()
        return process

    def add_process(
        self, *, skew: float = 0.0, cell: str = "shared", generation: int = 0, index: str = "none"
    ) -> Process:
        """One that lives as soon as it has a turn."""
        process = Process(self, f"process {len(self.processes) + 1}", skew, cell, generation, index)
        self.processes.append(process)
        return process

    def tell_the_indexes(self) -> None:
        """Each hint index is told of every row that is pending; of those that no longer are, none wants to hear."""
        told = [each.index for each in self.able if not isinstance(each.index, NullHints)]
        rows = self.backend.pending() if told else []
        for index in told:
            with suppress(ConnectionError):
                self.api.run_until_complete(index.add(rows))

    def _a_supervisor(self) -> Supervisor:
        return a_supervisor(self._store, self._cells, self.ids, ProcessClock(self.time, 0.0, 5.0))

    def supervise(self) -> None:
        """The Supervisor's round. It may crash at a point that is set for the API; then another takes its place."""
        self.supervised = True
        if isinstance(self.write(self._supervisor.run_once()), Died):
            self._supervisor = self._a_supervisor()
        self._cells.drain_surplus()

    @property
    def able(self) -> list[Process]:
        return [process for process in self.processes if process.able]

    def arrive(self, lease_id: UUID, items: Sequence[BeginItem]) -> None:
        """A begin of this lease that was under way takes effect."""

        async def arrived() -> BeginResult:
            store = self.backend.store(lease_id)
            await store.open()
            try:
                return await store.runs.begin(lease_id, items)
            finally:
                await store.close()

        self.active = None
        self.saw("begin", (lease_id,), self.api.run_until_complete(arrived()), False)

    def call_started(
        self, process: Process, lease_id: UUID, request: OutgoingRequest, future: "asyncio.Future[Answer]"
    ) -> Call:
        """The first byte leaves, and the call is in the ledger."""
        headers = dict(request.headers)
        run_id, fence = UUID(headers["webhook-id"]), int(headers["Tocsin-Fence"])
        call = Call(
            run_id, fence, request.target.path_and_query, process.name, lease_id, self.time.seconds,
            self.time.database_now(), future=future,
        )  # fmt: skip
        self.ledgers.call_started(lease_id, run_id)
        self.endpoint.calls.append(call)
        return call

    def answer(self, call: Call, answer: Answer) -> None:
        """The endpoint's answer; a process that is dead or frozen does not hear it now."""
        call.answer = answer
        process = next(each for each in self.processes if each.name == call.process)
        if not process.dead:
            process.answer(call, answer)
            process.turn()

    def _reached(self, point: str) -> None:
        process = self.active
        error = (self if process is None else process).armed.pop(point, None)
        if error is None:
            return
        STRUCK[point, error.__name__] += 1
        if process is not None and issubclass(error, Died):
            self.killed = process
            process.wire.cut_off = True
        elif process is not None and point == "call.after":
            process.note_spoilt_call()
        raise error(point)

    # time, and what everybody does in it

    def advance(self, seconds: float) -> None:
        self.time.advance(seconds)
        self.backend.moved(self.time.database_now())
        for process in self.able:
            process.turn()

    def step_database(self, seconds: float) -> None:
        self.ledgers.note_time()
        self.time.step_database(seconds)
        self.backend.moved(self.time.database_now())

    def round(self) -> None:
        """Every process that can does one round of everything."""
        self.tell_the_indexes()
        for process in self.able:
            process.live()
            for service in SERVICES:
                process.step(service)
            process.turn()

    def go_on(self, seconds: float, every: float) -> None:
        """Everybody at work, and an endpoint that answers at once."""
        end = self.time.seconds + seconds
        while self.time.seconds < end:
            self.advance(every)
            if self.supervised:
                self.supervise()
            self.round()
            while self.answer_all():
                for process in self.able:
                    process.step("begin")
                self.advance(0.001)  # a row of this instant is due a moment later on a process's clock
            self.look()

    def answer_all(self) -> int:
        """Every endpoint answers at once, as its path says; how many calls were open."""
        calls = self.endpoint.open_calls()
        for call in calls:
            self.answer(call, Answer.ERROR if call.url == "/fails" else Answer.OK)
        return len(calls)

    def look(self, *, at_rest: bool = False) -> Tables:
        """Every promise that holds at all times."""
        return self.ledgers.look(at_rest=at_rest)


def _every(period: int, now: datetime) -> EverySchedule:
    return EverySchedule(every_seconds=period, anchor=now.replace(microsecond=0))


def _url(path: str) -> str:
    return f"http://endpoint.example/{path}"
