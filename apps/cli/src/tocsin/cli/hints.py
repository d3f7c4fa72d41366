"""The hint index, as the settings ask for it."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit

from tocsin.common.clock import DatabaseClock, SystemClock
from tocsin.common.hints.port import HintIndex
from tocsin.common.settings import Settings

log = logging.getLogger("tocsin.hints")

MakeHints = Callable[[DatabaseClock], HintIndex]


@asynccontextmanager
async def hint_index(settings: Settings) -> AsyncIterator[MakeHints | None]:
    """What an owner makes its index with; None where it is to have none. What was made is closed afterwards."""
    if settings.hints == "off":
        yield None
        return
    if settings.redis_url is None:
        log.warning("TOCSIN_HINTS is %s, and TOCSIN_REDIS_URL names no Redis: no hints", settings.hints)
        yield None
        return
    from tocsin.common.hints.redis_index import RedisHints  # a process without hints loads no client

    url, name = settings.redis_url.get_secret_value(), database_name(settings)
    try:
        RedisHints(url, name, SystemClock().now)  # connects to nothing yet
    except ValueError as error:  # an executor without hints serves as well, one that ends serves nobody
        log.warning("TOCSIN_REDIS_URL cannot be used: no hints (%s)", error)
        yield None
        return
    made: list[RedisHints] = []

    def make(clock: DatabaseClock) -> HintIndex:
        made.append(RedisHints(url, name, clock.now))
        return made[-1]

    try:
        yield make
    finally:
        for index in made:
            with contextlib.suppress(Exception):  # of a Redis that is gone
                await index.close()


def database_name(settings: Settings) -> str:
    """What keeps the hints of several databases on one Redis apart."""
    return quote(urlsplit(settings.database_url.get_secret_value()).path.strip("/"))
