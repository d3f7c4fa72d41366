"""The pool of calls: waits for each run's due instant, calls, classifies, and hands the result to the completer."""

import asyncio
import logging
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from tocsin.common.calls import Listener, Order
from tocsin.common.clock import Clock, DatabaseClock
from tocsin.common.crashpoints import reach
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.ids import planted_at
from tocsin.common.models import Priority
from tocsin.common.states import RunState
from tocsin.common.store.ports import RunStore
from tocsin.common.store.rows import Begun, Completion, Outcome, Task, returned
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import START_DELAY
from tocsin.common.time.schedule import due_at
from tocsin.executor.classify import EndReason, Verdict, classify
from tocsin.executor.completer import Completer, CompleterConfig
from tocsin.executor.peaks import Peaks
from tocsin.executor.recheck import Rechecker
from tocsin.executor.request import Templates
from tocsin.executor.signature import Signer
from tocsin.executor.stale import StaleCalls
from tocsin.executor.timers import Timers
from tocsin.executor.transport.port import Failure, NotStartedError, Response, Transport, Warmer

log = logging.getLogger("tocsin.executor.pool")

VOUCHED_SECONDS = 0.25
"""How long after its begin was sent a run may start on what the begin read of its task (rule 3)."""

_NOTED_SECONDS = 0.2
"""How long what is expected is gathered before connections are opened for it, and how often it is looked at."""

_TEXT = 500
_LABELS = {priority: priority.name.lower() for priority in Priority}


class Trust(Protocol):
    @property
    def trusted(self) -> bool:
        """Whether a call may start now (promise 6)."""
        ...


class NotOursError(NotStartedError):
    """The run is no longer this lease's: nothing of it may be written either."""


class CancelledRunError(NotStartedError):
    """The run was cancelled before its call."""


@dataclass(slots=True)
class _Call:
    order: Order
    task: "asyncio.Task[None] | None" = None
    in_transport: bool = False
    aborted: bool = False
    started: float | None = None

    def refuse_aborted(self) -> None:
        if self.aborted:
            raise CancelledRunError("the run was cancelled")


class _Gate:
    """The last checks of one call (rules 3 and 6)."""

    def __init__(self, pool: "CallPool", call: _Call) -> None:
        self._pool = pool
        self._call = call

    async def ready(self) -> None:
        if self._pool.clock.monotonic() - self._call.order.begin_sent <= VOUCHED_SECONDS:
            return
        try:
            answer = await self._pool.rechecker.ask(self._call.order.run)
        except StoreUnavailableError as error:
            raise NotStartedError("the database did not say whether the run still holds") from error
        if answer is None:
            raise NotOursError("the run is no longer this lease's")
        if answer.cancelled:
            raise CancelledRunError("the run was cancelled")
        if not answer.current:
            raise NotStartedError("the task has changed since the begin")

    def check(self) -> None:
        self._call.refuse_aborted()
        if not self._pool.trust.trusted:
            raise NotStartedError("the lease's trust window has passed")
        self._call.started = self._pool.clock.monotonic()
        self._pool.note_start(self._call.order.run)


class CallPool:
    """The engine's `Calls`. Waiting runs hold nothing but a place in a heap."""

    def __init__(
        self,
        transport: Transport,
        runs: RunStore,
        lease_id: UUID,
        trust: Trust,
        listener: Listener,
        clock: Clock,
        database_clock: DatabaseClock,
        rng: random.Random,
        meter: Meter,
        completer: CompleterConfig | None = None,
        warmer: Warmer | None = None,
    ) -> None:
        self.clock = clock
        self.trust = trust
        self.rechecker = Rechecker(runs, lease_id)
        self._transport = transport
        self._listener = listener
        self._database_clock = database_clock
        self._rng = rng
        self._meter = meter
        self._timers: Timers[_Call] = Timers(clock, self._call_when_due)
        self._calls: dict[UUID, _Call] = {}
        self._signers: dict[tuple[str, ...], Signer] = {}
        self._templates = Templates()
        self._stale = StaleCalls()
        self._warmer = warmer
        self._peaks = Peaks()
        self._warming: asyncio.TimerHandle | None = None
        self._completer = Completer(runs, lease_id, clock, meter, self._committed, completer)
        self._flushing: asyncio.Task[None] | None = None
        self._landed = asyncio.Event()

    def submit(self, order: Order) -> None:
        call = _Call(order)
        self._calls[order.run.run_id] = call
        self._keep_flushing()
        self._call_when_due(call)

    def expect(self, due_at: datetime, task: Task) -> None:
        if self._warmer is None:
            return
        try:
            self._peaks.note(due_at, self._templates.of(task).target)
        except ValueError:
            return  # the call will say why
        if self._warming is None:
            self._warming = asyncio.get_running_loop().call_later(_NOTED_SECONDS, self._warm, self._warmer)

    def _warm(self, warmer: Warmer) -> None:
        self._warming = None
        for target, count in self._peaks.take(self._database_clock.now()):
            warmer.warm(target, count)
        if self._peaks:
            self._warming = asyncio.get_running_loop().call_later(_NOTED_SECONDS, self._warm, warmer)

    def put_back(self, run: Begun) -> None:
        self._completer.put_back(run)
        self._keep_flushing()

    def abort(self, run_id: UUID) -> None:
        call = self._calls.get(run_id)
        if call is not None and not call.aborted:
            call.aborted = True
            if call.in_transport and call.task is not None:
                call.task.cancel()

    def backlog(self) -> int:
        return len(self._completer)

    def __len__(self) -> int:
        """Calls that wait or are under way."""
        return len(self._calls)

    async def drained(self) -> None:
        """Returns once every call has ended and every result is committed."""
        while self._calls or len(self._completer):
            self._landed.clear()
            await self._landed.wait()

    async def close(self) -> None:
        """Drops everything: what was under way will be given back by whoever finds the lease gone."""
        self._timers.clear()
        if self._warming is not None:
            self._warming.cancel()
        tasks = [call.task for call in self._calls.values() if call.task is not None]
        if self._flushing is not None:
            tasks.append(self._flushing)
        self._calls.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._transport.close()

    def note_start(self, run: Begun) -> None:
        delay = self._database_clock.timestamp() - run.due_at.timestamp()
        self._meter.observe(START_DELAY, delay, _LABELS[run.priority])
        self._listener.started(run)

    def _keep_flushing(self) -> None:
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._completer.run(), name="completer")

    def _call_when_due(self, call: _Call) -> None:
        """At its instant, which is a moment away; the attempt of an aborted one ends before its call.

        Where the database's clock has been set back since the begin, the instant may be far: then the run is put back,
        as nothing is held for longer than it is vouched for (rule 3).
        """
        due = self._database_clock.monotonic_at(call.order.run.due_at)
        ahead = due - self.clock.monotonic()
        if ahead <= 0 or call.aborted:
            call.task = asyncio.create_task(self._attempt(call))
        elif ahead > VOUCHED_SECONDS:
            self._give_up(call.order.run)
        else:
            self._timers.add(due, call)

    def _give_up(self, run: Begun) -> None:
        """Puts back a run that was not called."""
        self._calls.pop(run.run_id, None)
        self._completer.put_back(run)

    async def _attempt(self, call: _Call) -> None:
        run = call.order.run
        try:
            result = await self._call(call)
        except NotOursError:
            self._calls.pop(run.run_id, None)
            self._landed.set()
            self._listener.released(run, None, None)
            return
        except CancelledRunError as error:
            result = Failure(Outcome.CANCELLED, str(error))
        except NotStartedError as error:
            log.info("run %s was not called: %s; put back", run.run_id, error)
            self._give_up(run)
            return
        except Exception as error:
            log.exception("run %s of task %s: its call failed inside", run.run_id, run.task_id)
            result = Failure(Outcome.PROTOCOL_ERROR, f"internal fault: {type(error).__name__}", call.started)
        self._finish(call, result)

    async def _call(self, call: _Call) -> Response | Failure:
        run, task = call.order.run, call.order.task
        call.refuse_aborted()
        try:
            signer = self._signer(call.order.secrets)
            request = self._templates.of(task).build(run, signer, now=self._database_clock.now(), rng=self._rng)
        except ValueError as error:
            return Failure(Outcome.PROTOCOL_ERROR, str(error))
        reach("call.before")
        call.in_transport = True
        try:
            result = await self._transport.call(self._stale.request(run.run_id, request), _Gate(self, call))
        except asyncio.CancelledError:
            if not call.aborted:
                raise
            return Failure(Outcome.CANCELLED, "the run was cancelled", call.started)
        reach("call.after")
        return self._stale.result(run.run_id, result)

    def _finish(self, call: _Call, result: Response | Failure) -> None:
        run = call.order.run
        now = self._database_clock.now()
        try:
            verdict = self._verdict(call.order, result, now)
        except Exception as error:  # the call was made: it is an attempt, whatever we make of it
            log.exception("run %s of task %s: its end could not be judged", run.run_id, run.task_id)
            verdict = _unjudged(call.order, error)
        self._calls.pop(run.run_id, None)
        self._completer.add(run, self._completion(call, result, verdict, now))

    def _verdict(self, order: Order, result: Response | Failure, now: datetime) -> Verdict:
        run, task = order.run, order.task
        first_due = now
        if task.call.retry.deadline_seconds is not None:  # else nobody asks
            first_due = planted_at(run.run_id)
            if run.slot is not None:
                first_due = max(first_due, due_at(task.plan, run.task_id, run.slot))
        return classify(result, task.call.retry, attempt=run.attempt, now=now, first_due=first_due, rng=self._rng)

    def _completion(self, call: _Call, result: Response | Failure, verdict: Verdict, now: datetime) -> Completion:
        run = call.order.run
        started_at = None
        if result.started is not None:
            started_at = now - timedelta(seconds=self.clock.monotonic() - result.started)
        return Completion(
            run_id=run.run_id,
            fence=run.fence,
            ended_at=now,
            outcome=verdict.outcome,
            sent=result.started is not None,
            state=verdict.state,
            tenant_id=run.tenant_id,
            task_id=run.task_id,
            kind=run.kind,
            slot=run.slot,
            last_slot=run.last_slot,
            due_at=run.due_at,
            losses=run.losses,
            retry_at=None if verdict.retry_in is None else now + timedelta(seconds=verdict.retry_in),
            started_at=started_at,
            http_status=result.status,
            reason=verdict.reason,
            error=None if verdict.error is None else clean(verdict.error),
            response=result.body if isinstance(result, Response) and result.body else None,
        )

    def _committed(self, run: Begun, completion: Completion | None) -> None:
        self._landed.set()
        again = None
        if completion is None:
            again = returned(run, losses=run.losses + 1)
        elif completion.state is None:
            again = returned(run, due_at=completion.retry_at)
        self._listener.released(run, completion, again)

    def _signer(self, secrets: tuple[str, ...]) -> Signer:
        signer = self._signers.get(secrets)
        if signer is None:
            signer = self._signers[secrets] = Signer(secrets)
        return signer


def _unjudged(order: Order, error: Exception) -> Verdict:
    """Due again after the longest back-off, as long as there are attempts."""
    retry, text = order.task.call.retry, f"internal fault: {type(error).__name__}"
    if order.run.attempt >= retry.max_attempts:
        return Verdict(Outcome.PROTOCOL_ERROR, RunState.DEAD, reason=EndReason.MAX_ATTEMPTS, error=text)
    return Verdict(Outcome.PROTOCOL_ERROR, None, retry_in=retry.cap_seconds, error=text)


def clean(text: str) -> str:
    """A text that PostgreSQL can hold: no NUL, no lone surrogate, at most 500 characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")[:_TEXT]
