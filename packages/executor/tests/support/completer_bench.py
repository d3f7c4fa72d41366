"""A completer at work over a store in memory, and whom it told of what."""

import asyncio
from dataclasses import replace
from datetime import datetime

from pool_bench import PoolBench, until
from tocsin.common.states import RunState
from tocsin.common.store.rows import Begun, Completion, Outcome
from tocsin.executor.completer import Completer, CompleterConfig


def completion_of(run: Begun, ended_at: datetime, **changes: object) -> Completion:
    """A success, but for `changes`."""
    completion = Completion(
        run_id=run.run_id,
        fence=run.fence,
        ended_at=ended_at,
        outcome=Outcome.SUCCESS,
        sent=True,
        state=RunState.SUCCEEDED,
        tenant_id=run.tenant_id,
        task_id=run.task_id,
        kind=run.kind,
        slot=None,
        last_slot=None,
        due_at=run.due_at,
        losses=run.losses,
        http_status=200,
    )
    return replace(completion, **changes)  # type: ignore[arg-type]


class CompleterBench:
    def __init__(self, completer: type[Completer] = Completer) -> None:
        self.pool = PoolBench()
        self.runs = self.pool.runs
        self.told: list[tuple[Begun, Completion | None]] = []
        self.completer = completer(
            self.runs,
            self.pool.lease_id,
            self.pool.clock,
            self.pool.meter,
            lambda run, completion: self.told.append((run, completion)),
            CompleterConfig(gather=0, refused_pause=0),
        )
        self.task = asyncio.create_task(self.completer.run())

    def end(self, run: Begun, **changes: object) -> Completion:
        completion = completion_of(run, self.pool.clock.now(), **changes)
        self.completer.add(run, completion)
        return completion

    async def told_of(self, count: int) -> None:
        await until(lambda: len(self.told) >= count)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
