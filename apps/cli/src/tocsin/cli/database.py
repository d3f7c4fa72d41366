"""The command line's way to the database: waits for it where a person would, and says so."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tocsin.common.errors import StoreUnavailableError
from tocsin.common.settings import Settings
from tocsin.common.store.postgres.migrate import migrate
from tocsin.common.store.postgres.store import PostgresStore

log = logging.getLogger("tocsin.database")

_AGAIN_SECONDS = 1.0
NAME = "tocsin cli"
OLDEST_MAJOR, NEWEST_MAJOR = 15, 18
"""The versions of PostgreSQL that Tocsin is tested on, these two included."""


def major_of(server: str) -> int:
    """The major version of a server that says `18.6`."""
    return int(server.partition(".")[0])


@asynccontextmanager
async def open_store(dsn: str) -> AsyncIterator[PostgresStore]:
    """The store, for one command.

    Raises:
        StoreUnavailableError: the database cannot be reached.
    """
    store = PostgresStore(dsn, name=NAME, size=2)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


async def migrate_when_up(settings: Settings) -> list[str]:
    """Migrates the database, however long it takes to answer; says which migrations were applied.

    Each new reason to wait is logged once, and so is the end of the waiting.

    Raises:
        MigrationError: waiting would not help.
    """
    reason = ""
    while True:
        try:
            done = await migrate(settings.database_url.get_secret_value())
        except StoreUnavailableError as error:
            if str(error) != reason:
                log.warning("the database does not answer as it should (%s); waiting for it", error)
            reason = str(error)
            await asyncio.sleep(_AGAIN_SECONDS)
        else:
            if reason:
                log.info("the database answers")
            return done
