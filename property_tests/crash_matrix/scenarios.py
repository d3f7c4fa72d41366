"""How each crash point is come to: small scenarios by name, each over the same steady load."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from property_tests.crash_matrix.client import Client
from property_tests.crash_matrix.processes import TTL_SECONDS
from property_tests.crash_matrix.stage import Stage
from property_tests.crash_matrix.strike import Fault, Strike
from tocsin.common.ids import lane_of
from tocsin.common.models import AtSchedule, CallSpec, CronSchedule, EverySchedule, Overlap, PlanSpec
from tocsin.common.store.rows import Task
from tocsin.common.store.tenants import Tenant
from tocsin.common.tasks import NewTask
from tocsin.common.time.schedule import next_slot
from tocsin.common.time.zones import zone_data_version

VICTIM, SIBLING, SUPERVISOR, API = "a", "b", "supervisor", "api"
STALL_SECONDS = 0.35
_HELD_SECONDS = 6.0
_IN_FLIGHT = 2
_SECOND = timedelta(seconds=1)


@dataclass(slots=True)
class Act:
    """A scenario under way. `end`: when the load ends by itself; `stop`: set when whoever writes shall stop.
    `waits_for_a_start`: until a process has started nobody can do the work of the one that failed. `affected`: the
    executors whose tenants must be called again soon; `done`: a condition that must come true soon after the fault;
    `check`: what it says speaks against the product."""

    stage: Stage
    strike: Strike
    first: datetime
    end: datetime
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    waits_for_a_start: bool = False
    affected: Sequence[str] = (VICTIM,)
    done: Callable[[], Awaitable[object]] | None = None
    check: Callable[[], Awaitable[list[str]]] | None = None
    background: "list[asyncio.Task[None]]" = field(default_factory=list)

    def arm(self) -> None:
        self.strike.arm(self.stage)

    def later(self, work: Awaitable[None]) -> None:
        self.background.append(asyncio.ensure_future(work))

    async def struck_or(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.strike.struck.wait(), seconds)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`prepare` is called before the load's first slot, `provoke` when it runs; that arms the strike. `also`: the
    services beside the executors. `asks`: points of the victim, beside the strike's own, with hooks."""

    provoke: Callable[[Act], Awaitable[None]]
    prepare: Callable[[Act], Awaitable[None]] | None = None
    also: Sequence[str] = ()
    executors: Sequence[str] = (VICTIM, SIBLING)
    asks: Sequence[str] = ()


async def _steady(act: Act) -> None:
    act.arm()


async def _stalled(act: Act) -> None:
    """The victim's loop stands still for longer than a begin vouches for, and its tasks are edited meanwhile."""
    edited = False

    async def stall() -> None:
        nonlocal edited
        if edited:
            return
        edited = True
        stage, began = act.stage, act.stage.clock.monotonic()
        act.arm()
        tenants = {tenant.id for tenant in stage.tenants[VICTIM]}
        assert stage.load is not None
        for task_id, tenant_id in stage.load.tasks:
            if tenant_id in tenants:
                await stage.tasks.edit(tenant_id, task_id, _other_url)
        await asyncio.sleep(STALL_SECONDS - (stage.clock.monotonic() - began))

    act.strike.hooks["call.before"] = stall


def _other_url(task: Task, _now: datetime) -> Task:
    return replace(task, call=task.call.model_copy(update={"url": f"{task.call.url}?edited"}))


async def _sibling_killed(act: Act) -> None:
    act.affected = (VICTIM, SIBLING)
    act.waits_for_a_start = act.strike.fault is Fault.KILL  # then both are down
    act.arm()
    act.stage.keeper.kill(SIBLING)


async def _orphans(act: Act) -> None:
    """The sibling is killed with calls in flight, and the victim struck when it has taken the shards, before what was
    running comes back."""
    stage, pid = act.stage, act.stage.keeper.children[SIBLING].pid
    act.affected = (VICTIM, SIBLING)
    act.waits_for_a_start = act.strike.fault is Fault.KILL

    async def taken() -> None:
        act.arm()

    async def has_calls_in_flight() -> bool:
        held = await stage.connection.fetchval(
            "select count(*) from running r join leases l on l.id = r.lease_id where l.pid = $1", pid
        )
        return int(held) >= _IN_FLIGHT

    act.strike.hooks["take_shards.after"] = taken
    await stage.until(has_calls_in_flight, "the sibling has calls in flight")
    stage.keeper.kill(SIBLING)


async def _sibling_frozen(act: Act) -> None:
    """The sibling stands still for longer than its ttl, and comes back when the fault was struck."""
    stage, pid = act.stage, act.stage.keeper.children[SIBLING].pid
    act.affected = (VICTIM, SIBLING)
    stage.keeper.signal(SIBLING, signal.SIGSTOP)

    async def overdue() -> bool:
        return bool(
            await stage.connection.fetchval(
                "select clock_timestamp() - heartbeat_at > 0.95 * ttl from leases where pid = $1", pid
            )
        )

    try:
        await stage.until(overdue, "the frozen sibling is overdue")
        act.arm()
        await act.struck_or(2 * TTL_SECONDS)
        await asyncio.sleep(TTL_SECONDS / 2)  # what the zombie finds is the judge's work, or its own lease
    finally:
        stage.keeper.signal(SIBLING, signal.SIGCONT)


async def _sibling_joins(act: Act) -> None:
    act.waits_for_a_start = True
    act.arm()
    await act.stage.keeper.add(SIBLING, "executor")


async def _drained(act: Act) -> None:
    act.arm()
    act.stage.keeper.signal(VICTIM, signal.SIGTERM)


async def _prepare_overlap(act: Act) -> None:
    """Tasks whose calls are longer than their interval, each cancelled by the next."""
    stage = act.stage
    for tenant in stage.tenants[VICTIM]:
        plan = PlanSpec(
            schedule=EverySchedule(every_seconds=1, anchor=act.first),
            start=act.first,
            end=act.end,
            overlap=Overlap.CANCEL_PREVIOUS,
        )
        task_id = await _create(stage, tenant, "overlap", plan, stage.endpoint.url(2500, "overlap"))
        stage.loaded.add(task_id)


async def _create(stage: Stage, tenant: Tenant, name: str, plan: PlanSpec, url: str) -> UUID:
    created = await stage.tasks.create(tenant.id, NewTask(name, lambda _now: plan, CallSpec(url=url), None))
    return created.task_id


async def _prepare_broken(act: Act) -> None:
    """Tasks whose definitions nobody can read, due one a second from the time on at which the fault is armed."""
    stage = act.stage
    for number, tenant in enumerate(stage.tenants[VICTIM]):
        task_id, slot = stage.ids.new(), act.first + (2 + number) * _SECOND
        plan = PlanSpec(schedule=AtSchedule(at=slot)).model_dump_json().replace(slot.strftime("%Y-%m-%d"), "never")
        call = CallSpec(url=stage.endpoint.url(0, "broken")).model_dump_json()
        async with stage.connection.transaction():
            await stage.connection.execute(
                "insert into tasks (id, tenant_id, name, plan, call) values ($1, $2, 'broken', $3, $4)",
                *(task_id, tenant.id, plan, call),
            )
            await stage.connection.execute(
                "insert into pending (run_id, tenant_id, task_id, due_at, slot, plan_version, priority, lane, kind)"
                " values ($1, $2, $3, $4, $4, 1, 2, $5, 'next')",
                *(stage.ids.new(), tenant.id, task_id, slot, lane_of(task_id)),
            )
        stage.owe(task_id, slot)
        stage.next_rows[task_id] = 1  # parked

    async def check() -> list[str]:
        left = await stage.connection.fetch("select id from tasks where name = 'broken' and state <> 'faulty'")
        return [f"task {row['id']} cannot be read, and is not faulty" for row in left]

    act.check = check


async def _promotion(act: Act) -> None:
    """A tenant of the victim gets a cell of its own; the Supervisor starts its executor and asks for the move."""
    stage, tenant = act.stage, act.stage.tenants[VICTIM][0]
    act.arm()
    cell = await stage.store.tenants.open_cell(tenant.id, 1)
    act.done = _moved(stage, tenant, cell)


def _moved(stage: Stage, tenant: Tenant, cell: str) -> Callable[[], Awaitable[object]]:
    async def moved() -> object:
        return await stage.connection.fetchval(
            "select exists (select from tenants t join shards s on s.shard = t.shard join leases l on l.id = s.owner"
            " where t.id = $1 and s.cell = $2 and t.move_to is null and l.expired_at is null)",
            tenant.id,
            cell,
        )

    return moved


async def _unowned(act: Act) -> None:
    """As a promotion, but the shared executors are down: only the Supervisor can move the tenant."""
    stage, tenant = act.stage, act.stage.tenants[VICTIM][0]
    act.affected = (VICTIM, SIBLING)
    for name in (VICTIM, SIBLING):
        stage.keeper.kill(name, restart=False)
    try:
        act.arm()
        act.done = _moved(stage, tenant, await stage.store.tenants.open_cell(tenant.id, 1))
        await act.struck_or(_HELD_SECONDS)
    finally:
        stage.keeper.release(VICTIM, SIBLING)


async def _zone_data(act: Act) -> None:
    """Next rows as an older release of zone data planned them, an hour late."""
    stage, made = act.stage, []
    far = (act.first.hour + 12) % 24  # no slot comes while the cell is played
    plan = PlanSpec(schedule=CronSchedule(cron=f"0 {far} * * *", zone="Europe/Berlin"))
    for tenant in [*stage.tenants[VICTIM], *stage.tenants[SIBLING]]:
        made.append(await _create(stage, tenant, "zoned", plan, stage.endpoint.url(0, "zoned")))
    slot = next_slot(plan, await stage.now())
    stage.next_rows.update(dict.fromkeys(made, 1))
    async with stage.connection.transaction():
        await stage.connection.execute(
            "update pending set slot = slot + interval '1 hour', due_at = due_at + interval '1 hour'"
            " where task_id = any ($1)",
            made,
        )
        act.arm()
        await stage.connection.execute("update zone_data set release = 'older', through = null")

    async def replanted() -> object:
        return await stage.connection.fetchval(
            "select (select release = $3 and through is null from zone_data)"
            " and not exists (select from pending where task_id = any ($1) and slot <> $2)",
            made,
            slot,
            zone_data_version(),
        )

    act.done = replanted


async def _writes(act: Act) -> None:
    """A client that creates, edits, pauses, resumes, skips, runs and deletes, and insists on an answer."""
    stage = act.stage
    client = Client(stage, stage.tenants[VICTIM][0], act.end, act.stop)
    await client.open()
    act.arm()
    act.later(client.run())

    async def answered() -> bool:
        return act.strike.at is not None and any(at > act.strike.at for at in client.answers)

    act.done, act.check = answered, client.check


SCENARIOS: dict[str, Scenario] = {
    "steady": Scenario(_steady),
    "stalled": Scenario(_stalled, asks=("call.before",)),
    "sibling_killed": Scenario(_sibling_killed),
    "orphans": Scenario(_orphans, asks=("take_shards.after",)),
    "sibling_frozen": Scenario(_sibling_frozen),
    "sibling_joins": Scenario(_sibling_joins, executors=(VICTIM,)),
    "drained": Scenario(_drained),
    "overlap": Scenario(_steady, _prepare_overlap),
    "broken_plan": Scenario(_steady, _prepare_broken),
    "promotion": Scenario(_promotion, also=(SUPERVISOR,)),
    "unowned": Scenario(_unowned, also=(SUPERVISOR,)),
    "zone_data": Scenario(_zone_data, also=(SUPERVISOR,)),
    "writes": Scenario(_writes, also=(API,)),
}
