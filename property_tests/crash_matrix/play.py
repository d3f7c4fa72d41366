"""Plays one cell: the load, the fault, the time to settle; then the verdict."""

import asyncio
import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from property_tests.crash_matrix.ledger import Call, Judgement, Ledger, judge
from property_tests.crash_matrix.operations import Cell
from property_tests.crash_matrix.scenarios import API, SCENARIOS, SUPERVISOR, VICTIM, Act, Scenario
from property_tests.crash_matrix.stage import Cluster, Stage, staged
from property_tests.crash_matrix.strike import Evidence, Strike
from tocsin.common.clock import Clock

RECOVERY_SECONDS = 5.0
"""All processes share a node, so a death is proven by its pid, and another executor goes on."""

RESTART_SECONDS = 15.0
"""Where nobody can go on until a process has started: the time that its interpreter takes is part of it."""

SETTLE_SECONDS = 60.0
LOAD_AFTER_SECONDS = 1.5
"""How long the load goes on after the fault, and after what it had interrupted is done, before it is told to end."""

_STRIKE_SECONDS = 15.0
_CALLS_FIRST = 10
VICTIMS = {"executor": VICTIM, "supervisor": SUPERVISOR, "api": API}


@dataclass(slots=True)
class Played:
    """`recovery`: seconds from the fault until every affected tenant was called again, and the scenario's own condition
    held. `first_again`: until the first call of a run that had been called before. `settle`: from the load's end until
    nothing was left to do. `worst_delay`: the longest from a slot's due instant to its first call. `slowest_start`: of
    the processes, from their start to their first word. `reached`: by role, how often each point was come to."""

    cell: Cell
    judgement: Judgement | None = None
    recovery: float = math.nan
    first_again: float = math.nan
    settle: float = math.nan
    worst_delay: float = math.nan
    slowest_start: float = math.nan
    evidence: Evidence | None = None
    reached: dict[str, dict[str, int]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return not self.broken


async def play(cluster: Cluster, cell: Cell, folder: Path, clock: Clock, seed: int) -> Played:
    """Plays a cell; whatever goes wrong is in what it returns."""
    rng = random.Random(f"{seed} {cell.name}")
    operation = cell.operation
    nth = rng.randint(1, operation.reaches)
    strike = Strike(VICTIMS[operation.role], cell.point, cell.fault, operation.statement, nth, operation.work)
    played = Played(cell)
    await asyncio.to_thread(folder.mkdir, parents=True)
    async with staged(cluster, folder, strike.decide, clock, rng) as stage:
        try:
            await _play(stage, SCENARIOS[operation.scenario], strike, played)
        except Exception as error:  # one cell must not end the others
            played.broken.append(f"{type(error).__name__}: {error}")
        finally:
            await strike.close()
            played.slowest_start = stage.keeper.slowest_start
            for name, child in stage.keeper.children.items():
                counts = played.reached.setdefault(child.role, {})
                for point, count in stage.control.traces[name].counts.items():
                    counts[point] = counts.get(point, 0) + count
    return played


async def _play(stage: Stage, scenario: Scenario, strike: Strike, played: Played) -> None:
    await _start(stage, scenario, strike)
    await settled(await steady_load(stage, strike), scenario, played)


async def steady_load(stage: Stage, strike: Strike) -> Act:
    """An act whose load is about to begin."""
    load = await stage.begin_load()
    alone = not stage.keeper.children or strike.victim in (SUPERVISOR, API)
    return Act(stage, strike, load.first, load.end, waits_for_a_start=alone)


async def settled(act: Act, scenario: Scenario, played: Played) -> None:
    """Plays a scenario over the load until nothing is left to do, and judges it.

    Raises:
        TimeoutError: the fault was never struck, or something never came to its end.
    """
    stage = act.stage
    try:
        await _strike(act, scenario, played)
        await asyncio.sleep(LOAD_AFTER_SECONDS)
        act.stop.set()
        await asyncio.gather(*act.background)
        end = await stage.end_load()
        await asyncio.sleep((end - await stage.now()).total_seconds())
        try:
            played.settle = await stage.until(stage.is_quiet, "everything has settled", SETTLE_SECONDS)
        except TimeoutError as error:
            played.broken.append(str(error))  # the ledgers say what is left
        await _conclude(act, played)
    finally:
        for task in act.background:
            task.cancel()
        await asyncio.gather(*act.background, return_exceptions=True)


async def _strike(act: Act, scenario: Scenario, played: Played) -> None:
    stage, strike = act.stage, act.strike
    if scenario.prepare is not None:
        await scenario.prepare(act)

    async def called() -> bool:
        return len(stage.endpoint.calls) >= _CALLS_FIRST

    await stage.until(called, "the load is being called")
    try:
        await scenario.provoke(act)
        await asyncio.wait_for(strike.struck.wait(), _STRIKE_SECONDS)
    except TimeoutError as error:
        raise TimeoutError(
            str(error) or f"{strike.victim} never came to {strike.point} with something to do"
        ) from error
    played.evidence = strike.evidence
    played.broken += struck_in_vain(strike.evidence)
    assert strike.at is not None
    if act.done is not None:
        await stage.until(act.done, "what the fault had interrupted is done", SETTLE_SECONDS)
        played.recovery = stage.clock.now().timestamp() - strike.at


def struck_in_vain(evidence: Evidence | None) -> list[str]:
    """A fault at a statement that did nothing shows nothing: such a cell is not held."""
    vain = evidence is not None and evidence.rows == 0
    return ["the fault struck a statement that took effect on no row"] if vain else []


async def _start(stage: Stage, scenario: Scenario, strike: Strike) -> None:
    for name in scenario.executors:
        asking = {strike.point, *scenario.asks} if name == strike.victim else set()
        await stage.keeper.add(name, "executor", asking=sorted(asking))
    await stage.until_owned(len(scenario.executors))
    await stage.store.tenants.set_executors("shared", len(scenario.executors))  # what a Supervisor then keeps
    for role in scenario.also:
        asking = {strike.point} if role == strike.victim else set()
        await stage.keeper.add(role, role, asking=sorted(asking))
    executors = {name: stage.keeper.children[name].pid for name in scenario.executors}
    await stage.seed_tenants(executors)


async def _conclude(act: Act, played: Played) -> None:
    stage, at = act.stage, act.strike.at
    assert at is not None
    ledger = await stage.ledger()
    judgement = played.judgement = judge(ledger)
    played.broken += judgement.faults
    if judgement.duplicates > judgement.bound:
        played.broken.append(f"{judgement.duplicates} calls again, with {judgement.bound} in flight")
    if act.check is not None:
        played.broken += await act.check()
    played.recovery = max([*_first_calls(act), *([] if math.isnan(played.recovery) else [played.recovery])])
    limit = RESTART_SECONDS if act.waits_for_a_start else RECOVERY_SECONDS
    if not played.recovery <= limit:
        played.broken.append(f"recovered after {played.recovery:.1f} s, later than {limit:g} s")
    played.first_again = judgement.first_again - at
    played.worst_delay = _worst_delay(stage, ledger)


def _first_calls(act: Act) -> list[float]:
    """For each affected tenant, the seconds from the fault to the first call of one of its tasks."""
    stage, at = act.stage, act.strike.at
    assert at is not None
    assert stage.load is not None
    tenant_of = dict(stage.load.tasks)
    first: dict[UUID, float] = {t.id: math.inf for name in act.affected for t in stage.tenants.get(name, ())}
    for call in stage.endpoint.calls:
        tenant = tenant_of.get(call.task_id)
        if tenant in first and call.at > at:
            first[tenant] = min(first[tenant], call.at - at)
    return list(first.values())


def _worst_delay(stage: Stage, ledger: Ledger) -> float:
    """Seconds from due to the first call, over the slots of the steady load."""
    assert stage.load is not None
    slot_of = {row.run_id: row.slot for row in ledger.rows if row.slot is not None}
    due = stage.load.expected()
    first: dict[UUID, Call] = {}
    for call in ledger.calls:
        first.setdefault(call.run_id, call)
    delays = [
        call.at - due[call.task_id, slot]
        for run_id, call in first.items()
        if (slot := slot_of.get(run_id)) is not None and (call.task_id, slot) in due
    ]
    return max(delays, default=math.nan)
