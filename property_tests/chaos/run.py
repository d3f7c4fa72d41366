"""One chaos: the load, the faults by their schedule, and what the database says when all has ended."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from bench.environment import environment
from bench.frame import Screen
from bench.load import is_over
from bench.report import Environment
from bench.system import Connection, connected, opened
from property_tests.chaos.clients import ApiTenant, Promised
from property_tests.chaos.faults import Fault, catalogue, strike
from property_tests.chaos.ledger import Evidence, Known, SlotKey, Struck
from property_tests.chaos.load import Group, first_slot, loads_of, seed_all
from property_tests.chaos.rows import read_rows
from property_tests.chaos.scene import Scene
from property_tests.chaos.schedule import BETWEEN_SECONDS, Planned, schedule
from property_tests.chaos.stage import Options, Stage
from property_tests.chaos.watch import AWAY, Watch
from tocsin.cli.tenants import make_key
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids

DRAIN_SECONDS = 120.0
"""How long runs may take to end after the last was due; what has not ended then is lost."""

ASKED_SECONDS = 60.0
"""How long the API's tenant may take to end after the load has."""

_SEED_SECONDS = 0.06
"""For one load, of which there is one for each instant of single tasks."""

_LEAD_SECONDS = 6.0
_AGAIN_SECONDS = 1.0
_READ_AGAIN_SECONDS = 10.0
_TOLD = 5


@dataclass(frozen=True, slots=True)
class Run:
    """What has come of a chaos; the calls are still missing in its evidence, for the endpoint's ledger is read when all
    has been stopped. `planned`: how many faults were. `left_out`: those for which no time was left, in words. `missed`:
    what of the chaos itself failed."""

    evidence: Evidence
    first: float
    promised: Promised
    planned: int
    left_out: Sequence[str]
    missed: Sequence[str]
    environment: Environment


async def run(options: Options, stage: Stage, screen: Screen, rng: random.Random) -> Run:
    scene = stage.scene
    async with connected(stage.dsn) as connection:
        where = await environment(connection, stage.folder, runtime="tocsin up behind a proxy, plain executors beside")
        ids = Ids(SystemClock(), rng)
        now = await connection.fetchval("select clock_timestamp()")
        first = first_slot(now, _LEAD_SECONDS + options.seconds / 5 * _SEED_SECONDS)
        url = f"http://127.0.0.1:{stage.endpoint.port}/"
        parts = list(loads_of(ids, rng, stage.tenants, options.rate, first, options.seconds, url))
        expected, tasks = await seed_all(connection, ids, parts)
        end = parts[0][1].end.timestamp()
        client = await _client(stage, parts, url, end)
    screen.say(f"{len(expected):,} slots of {len(tasks):,} tasks; the first at {first:%H:%M:%S}")
    recurring = [task for task, known in tasks.items() if known.group != "at"]
    watching = asyncio.create_task(keep_watching(scene, stage.watch, recurring), name="watch")
    asking = asyncio.create_task(ask(client, first.timestamp(), scene), name="API tenant")
    try:
        struck, left_out = await _strike_all(options, stage, screen, first.timestamp())
        await screen.wait("the rest of the load", max(0.0, end - scene.now()))
        if not (await asyncio.wait({asking}, timeout=ASKED_SECONDS))[0]:
            scene.miss(f"the API's tenant had not ended {ASKED_SECONDS:g} s after the load")
        await screen.wait("the last to end", DRAIN_SECONDS, lambda: _is_over(scene))
        expected |= {key: key[1] for key in client.promised.slots}
        tasks |= {key[0]: Known(tenant, "made") for key, tenant in client.promised.slots.items()}
        screen.say("reading the database")
        evidence = await _evidence(options, stage, expected, tasks, client.promised, struck)
    finally:
        for task in (watching, asking):
            task.cancel()
        await asyncio.gather(watching, asking, return_exceptions=True)
    unreadable = client.promised.unreadable
    if unreadable:
        scene.missed += [*unreadable[:_TOLD], f"{len(unreadable)} such answers of the API in all"]
    planned = len(planned_faults(options)[1])
    return Run(evidence, first.timestamp(), client.promised, planned, left_out, scene.missed, where)


async def _client(stage: Stage, parts: Sequence[tuple[Group, object]], url: str, end: float) -> ApiTenant:
    """A tenant that uses the API, with a key of its own and one of its tasks to run now."""
    clock = SystemClock()
    tenant_id = stage.tenants.shared[0]
    async with opened(stage.dsn) as store, connected(stage.dsn) as connection:
        _, key = await make_key(store, clock, tenant_id, "chaos")
        task_id: UUID = await connection.fetchval(
            "select id from tasks where tenant_id = $1 and name like 'second %' limit 1", tenant_id
        )
    return ApiTenant(stage.scene.api, key, tenant_id, task_id, f"{url}ok/100/made", clock, end)


async def ask(client: ApiTenant, first: float, scene: Scene) -> None:
    """Whatever becomes of it, the run goes on."""
    await asyncio.sleep(max(0.0, first - scene.now()))
    try:
        await client.run()
    except Exception as error:
        scene.miss(f"the API's tenant ended: {type(error).__name__}: {error}")


async def keep_watching(scene: Scene, watch: Watch, tasks: Sequence[UUID]) -> None:
    """For ever. A watch that ends is a miss, said at once, and followed by another."""
    while True:
        try:
            await watch.run(tasks)
        except Exception as error:
            scene.miss(f"the watch ended: {type(error).__name__}: {error}")
        await asyncio.sleep(_AGAIN_SECONDS)


def planned_faults(options: Options) -> tuple[dict[str, Fault], list[Planned]]:
    """The schedule of these options, and the faults that it names."""
    every = catalogue()
    chosen = {name: every[name] for name in options.faults} if options.faults else every
    return chosen, schedule(options.seed, options.seconds, [fault.plan(options.ttl) for fault in chosen.values()])


def without_time(options: Options) -> list[str]:
    """The faults asked for by name that do not fit into the time; all there are where none fits."""
    planned = {one.name for one in planned_faults(options)[1]}
    if not options.faults:
        return [] if planned else sorted(catalogue())
    return sorted({*options.faults} - planned)


async def _strike_all(options: Options, stage: Stage, screen: Screen, first: float) -> tuple[list[Struck], list[str]]:
    """Each at its time, or later where the one before took longer: a time of calm is between them."""
    faults, planned = planned_faults(options)
    struck: list[Struck] = []
    left_out: list[str] = []
    free = first
    for number, one in enumerate(planned, 1):
        title = f"{number} of {len(planned)}: {one.name} at {one.at:.0f} s"
        start = max(first + one.at, free)
        if start + one.seconds + one.recover > first + options.seconds:
            left_out.append(f"{one.name} at {one.at:.0f} s: the faults before it took longer than planned")
            screen.say(f"left out: {left_out[-1]}")
            continue
        await screen.wait(title, start - stage.scene.now())
        done = await strike(faults[one.name], one, stage.scene)
        struck.append(done)
        free = done.ended + one.recover + BETWEEN_SECONDS[0]
        failed = "" if done.missed is None else "NOT STRUCK: "
        screen.say(f"{done.began - first:7.1f} s  {done.name}: {failed}{done.detail}")
    return struck, left_out


async def _is_over(scene: Scene) -> bool:
    try:
        async with connected(scene.dsn()) as connection:
            return await is_over(connection)
    except AWAY:
        return False


async def _evidence(
    options: Options,
    stage: Stage,
    expected: dict[SlotKey, float],
    tasks: dict[UUID, Known],
    promised: Promised,
    struck: Sequence[Struck],
) -> Evidence:
    """All but the calls. A database that cannot be read is a miss, and says nothing."""
    evidence = Evidence(
        expected=expected,
        tasks=tasks,
        calls=[],
        rows=[],
        lives=stage.watch.lives,
        faults=struck,
        ttl=options.ttl,
        margin=options.ttl / 5,
        accepted=promised.runs,
        unanswered=promised.unanswered,
        run_now_task=promised.task_id,
        made=len(promised.slots),
        caps={stage.tenants.capped: stage.tenants.cap},
        terminal=stage.watch.terminal,
    )
    for again in (True, True, False):
        try:
            async with connected(stage.scene.dsn()) as connection:
                await _read(connection, stage, evidence)
            return evidence
        except AWAY as error:
            stage.scene.miss(f"the database could not be read: {type(error).__name__}: {error}")
        if again:
            await asyncio.sleep(_READ_AGAIN_SECONDS)
    return evidence


async def _read(connection: Connection, stage: Stage, evidence: Evidence) -> None:
    await stage.watch.read_leases(connection)
    evidence.left = await connection.fetchval("select (select count(*) from pending) + (select count(*) from running)")
    evidence.doubled = await connection.fetchval(
        "select count(*) from (select from tasks where name like 'made %' group by name having count(*) > 1) d"
    )
    evidence.reopened = stage.watch.reopened
    evidence.rows = await read_rows(connection)
