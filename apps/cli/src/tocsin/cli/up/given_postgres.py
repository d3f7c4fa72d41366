"""The database that an operator names, in the place of the embedded one: `up` neither starts nor ends it."""

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tocsin.cli.database import NEWEST_MAJOR, OLDEST_MAJOR, major_of, open_store
from tocsin.cli.postgres import PostgresError
from tocsin.cli.postgres.account import Account
from tocsin.cli.postgres.cluster import Layout, make_home, take_lock
from tocsin.cli.postgres.earlier import end_earlier_server
from tocsin.cli.postgres.errors import ForeignServerError
from tocsin.cli.up.options import SETTING
from tocsin.cli.up.others import require_alone, require_no_tenant_but_the_demos
from tocsin.common.clock import Clock
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.postgres.migrate import MigrationError, migrations, schema_state

log = logging.getLogger("tocsin.up")

_PLACE = ("host", "port", "dbname", "database")
"""Parts of a URL's query that name a place, as a unix socket is named."""

_SERVER_GRACE = 2.0


class GivenPostgres:
    """Stands where an `EmbeddedPostgres` would; its `start` only checks that the server can be used.

    While that server is away the children wait for it themselves, so it counts as running. The data directory still
    holds logs and keys, and is this process's own as it is with an embedded server.
    """

    pid = None
    running = True

    def __init__(self, url: str, data_dir: Path, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._layout = Layout(Path(os.path.abspath(data_dir)))
        self._lock: int | None = None
        self._new = False

    @property
    def place(self) -> str:
        """Host, port and database, as the URL names them: no password and no user, where Settings has taken it."""
        parts = urlsplit(self._url)
        named = "&".join(f"{name}={value}" for name, value in parse_qsl(parts.query) if name in _PLACE)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}{'?' if named else ''}{named}"

    def start(self) -> str:
        """Returns the URL; ends an embedded server that an `up` which was killed has left in the data directory.
        Blocks, 20 s at most.

        Raises:
            PostgresError: the server cannot be reached, refuses, or is too old; or the data directory is in use.
        """
        self._take_home()
        try:
            state = asyncio.run(schema_state(self._url))
        except (StoreUnavailableError, MigrationError) as error:
            raise self._unusable(error) from error
        server = state.server
        self._new = len(state.missing) == len(migrations())
        if major_of(server) < OLDEST_MAJOR:
            raise PostgresError(
                f"{SETTING}: the server at {self.place} is PostgreSQL {server}; "
                f"Tocsin needs {OLDEST_MAJOR} to {NEWEST_MAJOR}"
            )
        if major_of(server) > NEWEST_MAJOR:
            log.warning("PostgreSQL %s is newer than any that Tocsin is tested on", server)
        log.info("using the PostgreSQL %s at %s, which %s names; none is started here", server, self.place, SETTING)
        return self._url

    async def require_free(self, *, demo: bool) -> None:
        """Returns once it is sure that nobody else works on the database; writes nothing. After `start`.

        Raises:
            UpError: another Tocsin works on it; or the demo is wanted, and it has tenants of others.
            PostgresError: it cannot be asked.
        """
        if self._new:  # it has no tables yet
            return
        place = f"the database at {self.place} that {SETTING} names"
        try:
            async with open_store(self._url) as store:
                if demo:
                    await require_no_tenant_but_the_demos(store.tenants, place)
                await require_alone(store.leases, self._clock, place)
        except StoreUnavailableError as error:
            raise self._unusable(error) from error

    def stop(self) -> None:
        """Lets the data directory go; doing it again changes nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_home(self) -> None:
        try:
            make_home(self._layout.home, Account(f"uid {os.geteuid()}"))
            self._lock = take_lock(self._layout, self._clock)
            with contextlib.suppress(ForeignServerError):  # it may be the very one that we were given
                end_earlier_server(self._layout.cluster, self._clock, grace=_SERVER_GRACE)
        except OSError as error:
            raise PostgresError(f"the data directory {self._layout.home} cannot be used: {error}") from error

    def _unusable(self, error: Exception) -> PostgresError:
        return PostgresError(f"{SETTING}: the database at {self.place} cannot be used: {error}")
