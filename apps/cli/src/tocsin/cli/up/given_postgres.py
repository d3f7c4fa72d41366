"""The database that an operator names, in the place of the embedded one: `up` neither starts nor ends it."""

import asyncio
import logging
import os
from pathlib import Path
from urllib.parse import urlsplit

from tocsin.cli.database import NEWEST_MAJOR, OLDEST_MAJOR, major_of
from tocsin.cli.postgres import PostgresError
from tocsin.cli.postgres.account import Account
from tocsin.cli.postgres.cluster import Layout, make_home, take_lock
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.postgres.migrate import MigrationError, schema_state

log = logging.getLogger("tocsin.up")

SETTING = "TOCSIN_DATABASE_URL"


class GivenPostgres:
    """Stands where an `EmbeddedPostgres` would; its `start` only checks that the server can be used.

    While that server is away the children wait for it themselves, so it counts as running. The data directory still
    holds logs and keys, and is this process's own as it is with an embedded server.
    """

    pid = None
    running = True

    def __init__(self, url: str, data_dir: Path) -> None:
        self._url = url
        self._layout = Layout(Path(os.path.abspath(data_dir)))
        self._lock: int | None = None

    @property
    def place(self) -> str:
        """Host, port and database, as the URL names them: no password, and no user."""
        parts = urlsplit(self._url)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}"

    def start(self) -> str:
        """Returns the URL. Blocks, 10 s at most.

        Raises:
            PostgresError: the server cannot be reached, refuses, or is too old; or the data directory is in use.
        """
        self._take_home()
        try:
            server = asyncio.run(schema_state(self._url)).server
        except (StoreUnavailableError, MigrationError) as error:
            raise PostgresError(f"{SETTING}: the database at {self.place} cannot be used: {error}") from error
        if major_of(server) < OLDEST_MAJOR:
            raise PostgresError(
                f"{SETTING}: the server at {self.place} is PostgreSQL {server}; "
                f"Tocsin needs {OLDEST_MAJOR} to {NEWEST_MAJOR}"
            )
        if major_of(server) > NEWEST_MAJOR:
            log.warning("PostgreSQL %s is newer than any that Tocsin is tested on", server)
        log.info("using the PostgreSQL %s at %s, which %s names; none is started here", server, self.place, SETTING)
        return self._url

    def stop(self) -> None:
        """Lets the data directory go; doing it again changes nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_home(self) -> None:
        try:
            make_home(self._layout.home, Account(f"uid {os.geteuid()}"))
            self._lock = take_lock(self._layout)
        except OSError as error:
            raise PostgresError(f"the data directory {self._layout.home} cannot be used: {error}") from error
