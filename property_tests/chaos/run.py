"""One chaos: the load, the faults by their schedule, and what both ledgers say when all has ended."""

import asyncio
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg
import psutil

from bench.environment import environment
from bench.frame import Screen
from bench.load import is_over
from bench.report import Environment
from bench.system import Connection, connected, opened
from property_tests.chaos.clients import ApiTenant, Promised
from property_tests.chaos.faults import Fault, catalogue, strike
from property_tests.chaos.ledger import Evidence, Known, Row, SlotKey, Struck, read_calls
from property_tests.chaos.load import Group, first_slot, loads_of, seed_all
from property_tests.chaos.schedule import Planned, schedule
from property_tests.chaos.stage import Options, Stage
from tocsin.cli.tenants import make_key
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids

DRAIN_SECONDS = 120.0
"""How long runs may take to end after the last was due; what has not ended then is lost."""

_SEED_SECONDS = 0.06
"""For one load, of which there is one for each instant of single tasks."""

_LEAD_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Run:
    """What has come of a chaos. `unstruck` are faults that could not be struck, or after which something did
    not come back, with the reason."""

    evidence: Evidence
    first: float
    promised: Promised
    unstruck: Sequence[str]
    environment: Environment


async def run(options: Options, stage: Stage, screen: Screen, rng: random.Random) -> Run:
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
    watching = asyncio.create_task(stage.watch.run(recurring), name="watch")
    asking = asyncio.create_task(_ask(client, first.timestamp(), stage), name="API tenant")
    try:
        struck, unstruck = await _strike_all(options, stage, screen, first.timestamp())
        await screen.wait("the rest of the load", max(0.0, end - stage.scene.now()))
        await asking
        async with connected(stage.scene.dsn()) as connection:
            await screen.wait("the last to end", DRAIN_SECONDS, lambda: is_over(connection))
            await stage.watch.read_leases(connection)
            if watching.done():
                watching.result()  # it ends by a fault of its own only
            watching.cancel()
            await asyncio.wait({watching})
            await stage.endpoint.end()
            expected |= {key: key[1] for key in client.promised.slots}
            tasks |= {key[0]: Known(tenant, "made") for key, tenant in client.promised.slots.items()}
            screen.say("reading both ledgers")
            evidence = await _evidence(connection, options, stage, expected, tasks, client.promised, struck)
    finally:
        for task in (watching, asking):
            task.cancel()
        await asyncio.gather(watching, asking, return_exceptions=True)
    return Run(evidence, first.timestamp(), client.promised, unstruck, where)


async def _client(stage: Stage, parts: Sequence[tuple[Group, object]], url: str, end: float) -> ApiTenant:
    """A tenant that uses the API, with a key of its own and one of its tasks to run now."""
    clock = SystemClock()
    tenant_id = stage.tenants.shared[0]
    async with opened(stage.dsn) as store, connected(stage.dsn) as connection:
        _, key = await make_key(store, clock, tenant_id, "chaos")
        task_id: UUID = await connection.fetchval(
            "select id from tasks where tenant_id = $1 and name like 'second %' limit 1", tenant_id
        )
    return ApiTenant(stage.api, key, tenant_id, task_id, f"{url}ok/100/made", clock, end)


async def _ask(client: ApiTenant, first: float, stage: Stage) -> None:
    await asyncio.sleep(max(0.0, first - stage.scene.now()))
    await client.run()


def planned_faults(options: Options) -> tuple[dict[str, Fault], list[Planned]]:
    """The schedule of these options, and the faults that it names."""
    every = catalogue()
    chosen = {name: every[name] for name in options.faults} if options.faults else every
    return chosen, schedule(options.seed, options.seconds, [fault.plan(options.ttl) for fault in chosen.values()])


async def _strike_all(options: Options, stage: Stage, screen: Screen, first: float) -> tuple[list[Struck], list[str]]:
    """Each at its time, or later where the one before took longer and has had no time to recover."""
    faults, planned = planned_faults(options)
    struck: list[Struck] = []
    unstruck: list[str] = []
    free = first
    for number, one in enumerate(planned, 1):
        title = f"{number} of {len(planned)}: {one.name} at {one.at:.0f} s"
        start = max(first + one.at, free)
        if start + one.seconds + one.recover > first + options.seconds:
            screen.say(f"left out: {one.name}; the faults before it took longer than planned")
            continue
        await screen.wait(title, start - stage.scene.now())
        try:
            done = await strike(faults[one.name], one, stage.scene)
        except (OSError, LookupError, TimeoutError, psutil.Error, asyncpg.PostgresError) as error:
            unstruck.append(f"{one.name} at {one.at:.0f} s: {type(error).__name__}: {error}")
            screen.say(f"could not strike {unstruck[-1]}")
            continue
        struck.append(done)
        free = done.ended + one.recover
        screen.say(f"{done.began - first:7.1f} s  {done.name}: {done.detail}")
    return struck, [*unstruck, *stage.scene.missed]


async def _evidence(
    connection: Connection,
    options: Options,
    stage: Stage,
    expected: dict[SlotKey, float],
    tasks: dict[UUID, Known],
    promised: Promised,
    struck: Sequence[Struck],
) -> Evidence:
    left = await connection.fetchval("select (select count(*) from pending) + (select count(*) from running)")
    doubled = await connection.fetchval(
        "select count(*) from (select from tasks where name like 'made %' group by name having count(*) > 1) d"
    )
    return Evidence(
        expected=expected,
        tasks=tasks,
        calls=await asyncio.to_thread(lambda: list(read_calls(stage.endpoint.log))),
        rows=await read_rows(connection),
        lives=stage.watch.lives,
        faults=struck,
        ttl=options.ttl,
        margin=options.ttl / 5,
        accepted=promised.runs,
        caps={stage.tenants.capped: stage.tenants.cap},
        terminal=stage.watch.terminal,
        left=left,
        reopened=stage.watch.reopened,
        doubled=doubled,
    )


async def read_rows(connection: Connection) -> list[Row]:
    """All of history."""
    rows: list[Row] = []
    async with connection.transaction(readonly=True):
        async for row in connection.cursor(
            "select run_id, task_id, fence, kind, due_at, slot, last_slot, until_slot, ended_at, state, outcome, sent,"
            " stale, lease_id from history",
            prefetch=5000,
        ):
            rows.append(_row(row))
    return rows


def _row(row: asyncpg.Record) -> Row:
    return Row(
        run_id=row["run_id"],
        task_id=row["task_id"],
        fence=row["fence"],
        kind=sys.intern(row["kind"]),
        due_at=_unix(row["due_at"]),
        slot=_unix(row["slot"]),
        last_slot=_unix(row["last_slot"]),
        until_slot=_unix(row["until_slot"]),
        ended_at=row["ended_at"].timestamp(),
        state=row["state"] and sys.intern(row["state"]),
        outcome=sys.intern(row["outcome"]),
        sent=row["sent"],
        stale=row["stale"],
        lease_id=row["lease_id"],
    )


def _unix(instant: datetime | None) -> float | None:
    return None if instant is None else instant.timestamp()
