"""A pool of calls over a scripted transport and a store in memory, on a clock that the test moves."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tocsin.common.calls import Order
from tocsin.common.clock import DatabaseClock, ManualClock
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.ids import Ids
from tocsin.common.models import AtSchedule, CallSpec, Kind, PlanSpec, Priority, TaskState
from tocsin.common.store.memory.database import Lease, MemoryDatabase, Running
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.rows import Begun, Completion, CompletionResult, Pending, Recheck, Task
from tocsin.common.store.tenants import Process
from tocsin.common.store.views import HistoryRow
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.executor.completer import CompleterConfig
from tocsin.executor.pool import CallPool
from tocsin.executor.transport.port import Failure, Gate, OutgoingRequest, Response

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)

_numbers = itertools.count(1)

Script = Callable[[OutgoingRequest, Gate], Awaitable[Response | Failure]]


async def turns(count: int = 30) -> None:
    """Gives the event loop so many turns: whatever can happen without time has happened."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Gives turns until it holds."""
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


class ScriptedTransport:
    """Answers as its script says; `sent` keeps what went out."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.script: Script | None = None
        self.calls = 0
        self.sent: list[OutgoingRequest] = []
        self.closed = False

    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        self.calls += 1
        if self.script is not None:
            return await self.script(request, gate)
        await gate.ready()
        return self.answer(request, gate)

    def answer(self, request: OutgoingRequest, gate: Gate, status: int = 200) -> Response:
        """Sends the request, and is answered at once."""
        gate.check()
        self.sent.append(request)
        return Response(status, (), b"", truncated=False, started=self._clock.monotonic())

    async def close(self) -> None:
        self.closed = True


async def hanging(transport: ScriptedTransport, *, sent: bool) -> asyncio.Event:
    """A call that hangs once its request is out, or before that. The event: it hangs."""
    hangs = asyncio.Event()

    async def script(request: OutgoingRequest, gate: Gate) -> Response:
        if sent:
            transport.answer(request, gate)
        hangs.set()
        await asyncio.Event().wait()
        raise AssertionError

    transport.script = script
    return hangs


class FaultyRuns(MemoryRuns):
    """The path of a run with faults: `away` refuses a statement, `lost` loses its answer, so many times."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database, "tocsin")
        self.away: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.completions: list[list[Completion]] = []
        self.put_backs: list[list[tuple[UUID, int]]] = []
        self.rechecks: list[list[tuple[UUID, int]]] = []
        self.raises: Exception | None = None

    def _before(self, name: str) -> None:
        if self.away[name] > 0:
            self.away[name] -= 1
            raise StoreUnavailableError("told to be away")

    def _after(self, name: str) -> None:
        if self.lost[name] > 0:
            self.lost[name] -= 1
            raise OutcomeUnknownError("the answer was lost")

    async def complete(self, lease_id: UUID, completions: Sequence[Completion]) -> CompletionResult:
        self._before("complete")
        self.completions.append(list(completions))
        if self.raises is not None:
            error, self.raises = self.raises, None
            raise error
        result = await super().complete(lease_id, completions)
        self._after("complete")
        return result

    async def put_back(self, lease_id: UUID, pairs: Sequence[tuple[UUID, int]]) -> list[UUID]:
        self._before("put_back")
        self.put_backs.append(list(pairs))
        result = await super().put_back(lease_id, pairs)
        self._after("put_back")
        return result

    async def recheck(self, lease_id: UUID, pairs: Sequence[tuple[UUID, int]]) -> list[Recheck]:
        self.rechecks.append(list(pairs))
        self._before("recheck")
        return await super().recheck(lease_id, pairs)


class Trusting:
    trusted = True


class Recorder:
    """The engine, as a list of what it was told."""

    def __init__(self) -> None:
        self.begun: list[Begun] = []
        self.released_runs: list[tuple[Begun, Completion | None, Pending | None]] = []

    def started(self, run: Begun) -> None:
        self.begun.append(run)

    def released(self, run: Begun, completion: Completion | None, again: Pending | None) -> None:
        self.released_runs.append((run, completion, again))


class PoolBench:
    def __init__(self, pool: type[CallPool] = CallPool) -> None:
        self.clock = ManualClock(START)
        self.ids = Ids(self.clock, random.Random(1))
        self.database = MemoryDatabase(self.clock)
        self.database_clock = DatabaseClock(self.clock)
        self.database_clock.sample(START, self.clock.monotonic(), self.clock.monotonic())
        self.lease_id = self.ids.new()
        process = Process("node", "boot", "pid:1", 1, 1.0)
        lease = Lease(self.lease_id, "shared", 0, process, "2026a", 10 * SECOND, START, START, START)
        self.database.leases[self.lease_id] = lease
        self.runs = FaultyRuns(self.database)
        self.transport = ScriptedTransport(self.clock)
        self.trust = Trusting()
        self.listener = Recorder()
        self.meter = MemoryMeter()
        self.pool = pool(
            self.transport,
            self.runs,
            self.lease_id,
            self.trust,
            self.listener,
            self.clock,
            self.database_clock,
            random.Random(2),
            self.meter,
            CompleterConfig(gather=0),
        )

    def a_task(self, **call: Any) -> Task:
        spec = CallSpec(**{"url": "https://example.com/hook", **call})
        plan = PlanSpec(schedule=AtSchedule(at=START))
        task = Task(self.ids.new(), self.ids.new(), "task", TaskState.ACTIVE, 1, 1, plan, spec, b"{}", START, START)
        self.database.tasks[task.id] = task
        return task

    def a_run(self, task: Task | None = None, *, due_in: float = 0.0, fence: int = 1) -> Begun:
        """A run that is running under this lease."""
        task = task or self.a_task()
        run = Begun(
            run_id=self.ids.new(),
            fence=fence,
            tenant_id=task.tenant_id,
            task_id=task.id,
            priority=Priority.NORMAL,
            due_at=self.clock.now() + timedelta(seconds=due_in),
            slot=None,
            last_slot=None,
            lane=0,
            kind=Kind.NOW,
            plan_version=1,
            losses=0,
            version=1,
        )
        self.database.running[run.run_id] = Running(run, self.lease_id, self.clock.now())
        return run

    def submit(self, run: Begun, *, secrets: tuple[str, ...] = (), begun_ago: float = 0.0) -> None:
        task = self.database.tasks[run.task_id]
        self.pool.submit(Order(run, task, secrets, self.clock.monotonic() - begun_ago))

    async def advance(self, seconds: float) -> None:
        """Moves the clock on; what is due then starts."""
        self.clock.advance(seconds)
        self.pool._timers.fire()
        await turns()

    async def done(self, count: int = 1) -> list[tuple[Begun, Completion | None, Pending | None]]:
        """Waits for so many runs to be released."""
        await until(lambda: len(self.listener.released_runs) >= count)
        return self.listener.released_runs

    def edit(self, task: Task, **changes: Any) -> None:
        self.database.tasks[task.id] = replace(self.database.tasks[task.id], **changes)

    def pending(self, run: Begun) -> Pending | None:
        return self.database.pending.get(run.run_id)

    def history(self, run: Begun) -> list[HistoryRow]:
        return [row for row in self.database.history.values() if row.run_id == run.run_id]


async def late_connection(bench: PoolBench, seconds: float = 0.3) -> Begun:
    """A call whose connection opens so long after its begin was sent."""

    async def slow_connect(request: OutgoingRequest, gate: Gate) -> Response:
        bench.clock.advance(seconds)
        await gate.ready()
        return bench.transport.answer(request, gate)

    bench.transport.script = slow_connect
    return bench.a_run()
