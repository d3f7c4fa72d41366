"""The long-lived processes in their plain form: the API, and an executor without Ray."""

import asyncio
from collections.abc import Callable

from tocsin.api import main as api
from tocsin.cli.egress import read_egress
from tocsin.cli.node import ExecutorNode
from tocsin.common.settings import Settings
from tocsin.common.telemetry.meter import MemoryMeter

API_GRACE = 5.0
ENGINE_GRACE = 30.0
_CLOSE_SECONDS = 2.0


async def serve_api(
    settings: Settings, stop: asyncio.Event, ready: Callable[[int], None], *, grace: float = API_GRACE
) -> None:
    """Serves until `stop` is set; requests in flight then get `grace` seconds.

    Raises:
        ListenError: the port is taken, or the address is not this machine's.
    """
    await api.run(
        api.Settings(
            dsn=settings.database_url.get_secret_value(),
            host=settings.api_host,
            port=settings.api_port,
            grace=grace,
        ),
        ready=ready,
        stop=stop,
    )


async def serve_engine(settings: Settings, stop: asyncio.Event, *, grace: float = ENGINE_GRACE) -> bool:
    """Runs one executor of the cell `settings.cell` until `stop` is set, then drains it within `grace` seconds.

    Says whether everything in flight was finished. Its generation is 0: no Supervisor sizes it.

    Raises:
        TocsinError: `settings.egress_allow` cannot be read; nothing was started.
    """
    read_egress(settings.egress_allow)
    node = ExecutorNode(settings, settings.cell, 0, MemoryMeter())
    running = asyncio.create_task(node.run(), name="node")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    finished = await node.drain(grace)
    await asyncio.wait({running}, timeout=_CLOSE_SECONDS)
    running.cancel()
    await asyncio.wait({running})
    if not running.cancelled():
        running.result()
    return finished
