"""What probes and operators ask, without a key."""

import asyncio
from importlib.metadata import version
from typing import Final

from aiohttp import web  # noqa: TID251 - this app serves HTTP

from tocsin.api.context import answer, context_of
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.time.zones import zone_data_version

READY_SECONDS: Final = 2.0


async def healthz(request: web.Request) -> web.Response:
    """The process answers. Asks nobody: an outage of the database is no reason to restart it."""
    return answer({"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """The database answers, and soon."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            await context_of(request).store.now()
    except TimeoutError:
        raise StoreUnavailableError("no answer in time") from None
    return answer({"status": "ready"})


async def versions(request: web.Request) -> web.Response:
    return answer({"version": version("tocsin-api"), "zone_data": zone_data_version()})


ROUTES: Final = (
    web.get("/healthz", healthz),
    web.get("/readyz", readyz),
    web.get("/v1/version", versions),
)
