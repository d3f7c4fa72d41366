"""A short load on one executor with `TOCSIN_HINTS=auto`, in this process: what its judge came to."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from pydantic import SecretStr

from bench.endpoint import Endpoint
from bench.frame import Screen
from bench.ledger import Judgement, judge
from bench.load import is_over, make_load, recorded, seed
from bench.system import Connection
from tocsin.cli.node import ExecutorNode
from tocsin.common.ids import Ids
from tocsin.common.settings import Settings
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.common.telemetry.metrics import HINT_VERDICT, READ_SECONDS

LEAD_SECONDS = 4
DRAIN_SECONDS = 60.0
_START_SECONDS = 60.0
_GRACE = 10.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """`verdict`: 0 the scan, 1 the index, at the end. `milliseconds` and `reads`, by path, of a statement or question;
    of hints, of a whole read."""

    verdict: float
    milliseconds: dict[str, float]
    reads: dict[str, int]
    judgement: Judgement


async def drive(
    dsn: str,
    redis_url: str,
    connection: Connection,
    folder: Path,
    tenants: Sequence[UUID],
    ids: Ids,
    rate: int,
    seconds: int,
    screen: Screen,
) -> Chosen:
    meter = MemoryMeter()
    settings = Settings(
        database_url=SecretStr(dsn), hints="auto", redis_url=SecretStr(redis_url), egress_allow="127.0.0.1/32"
    )
    node = ExecutorNode(settings, "shared", 0, meter)
    running = asyncio.create_task(node.run(), name="node")
    try:
        async with Endpoint(folder) as endpoint:
            async with asyncio.timeout(_START_SECONDS):
                while await connection.fetchval("select exists (select from shards where owner is null)"):
                    await asyncio.sleep(0.1)
            now: datetime = await connection.fetchval("select clock_timestamp()")
            first = now.replace(microsecond=0) + timedelta(seconds=LEAD_SECONDS)
            load = make_load("auto", ids, tenants, rate, first, seconds, endpoint.url)
            await seed(connection, ids, load)
            await screen.wait(f"auto: {rate:,} runs/s for {seconds} s", seconds + LEAD_SECONDS)
            await screen.wait("auto: the last to end", DRAIN_SECONDS, lambda: is_over(connection))
            verdict = meter.gauges.get((HINT_VERDICT.name,), 0.0)
            judgement = judge(load.expected(), await endpoint.take(), await recorded(connection, load))
    finally:
        await node.drain(_GRACE)
        await asyncio.wait({running}, timeout=_GRACE)
    reads = {key[1]: count for key, count in meter.observations.items() if key[0] == READ_SECONDS.name}
    each = {path: 1000 * meter.sums[READ_SECONDS.name, path] / count for path, count in reads.items()}
    return Chosen(verdict, each, reads, judgement)
