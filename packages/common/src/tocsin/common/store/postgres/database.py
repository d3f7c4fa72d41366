"""The only door to PostgreSQL: a pool, named statements, and errors that say what is known of the outcome."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

import asyncpg

from tocsin.common.clock import PARKED
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.rows import Backend

STATEMENT_SECONDS = 10.0
"""The longest that any statement may take, by the server and by the client."""

CONNECT_SECONDS = 2.0
"""The longest that a connection in place of a lost one may take at first: see `Database`. TCP sends a first packet that
is lost again after 1 s, and then after 3 s: where a network was away, to begin anew is sooner than to wait for that."""

PLANNING = {"plan_cache_mode": "force_generic_plan", "enable_bitmapscan": "off", "enable_seqscan": "off", "jit": "off"}
"""How every connection plans: see `Database`."""

_REPEATED_WHOLE = 5
_REFUSED = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.LockNotAvailableError,
    asyncpg.DiskFullError,
    asyncpg.OutOfMemoryError,
)
"""The server answered, and nothing took effect."""

_CHANGED = (asyncpg.DuplicateTableError, asyncpg.UndefinedTableError, asyncpg.UniqueViolationError)
"""Another session has changed the schema at the same time."""

_BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.QueryCanceledError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a session that was ended just before the statement was sent
    OSError,
    TimeoutError,
)
"""The answer did not come: a commit may have taken effect."""

_REPEATED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""Nothing took effect, and the same may succeed at once."""

UNREACHABLE = (*_REFUSED, asyncpg.InvalidPasswordError, asyncpg.InvalidCatalogNameError, *_BROKEN)

T = TypeVar("T")


class PooledError(StoreUnavailableError):
    """Something else than PostgreSQL answers in its place: waiting does not help."""


class Database:
    """A pool of connections under one application name, which carries the lease they work for.

    Statements are prepared once per connection and planned once: `force_generic_plan`, because the
    arrays of one call say nothing about the next, and a plan made for few rows is the right one for
    reads by key. No bitmap scans: one reads a queue to its end before it gives the first row, whatever
    its limit, so that finding work would cost the more the longer the queue is. No sequential scans where
    an index serves: to read an empty table whole costs nothing, and a plan made then outlives the quiet.
    """

    def __init__(self, dsn: str, name: str, *, size: int, timeout: float = STATEMENT_SECONDS) -> None:
        self._dsn = dsn
        self.name = name
        self._size = size
        self._timeout = timeout
        self._connect_timeout = timeout
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Makes the pool; the connections come with the first statements.

        Raises:
            StoreUnavailableError: the database cannot be reached now; as PooledError, only through a pooler.
        """
        milliseconds = int(self._timeout * 1000)
        self._connect_timeout = self._timeout
        try:
            pool = await asyncpg.create_pool(
                self._dsn,
                min_size=0,  # asyncpg would restore a floor by itself, and log a trace each time it cannot
                max_size=self._size,
                connect=self._connect,
                command_timeout=self._timeout,
                max_inactive_connection_lifetime=0,
                reset=_nothing_to_reset,
                server_settings={
                    "application_name": self.name,
                    "statement_timeout": str(milliseconds),
                    "lock_timeout": str(milliseconds // 2),
                    "idle_in_transaction_session_timeout": "5000",
                    "timezone": "UTC",
                    **PLANNING,
                },
            )
        except UNREACHABLE as error:
            raise StoreUnavailableError(_text(error)) from error
        try:
            await pool.release(await pool.acquire(timeout=self._timeout))
        except StoreUnavailableError:
            pool.terminate()
            raise
        except UNREACHABLE as error:
            pool.terminate()
            raise StoreUnavailableError(_text(error)) from error
        self._pool = pool

    async def _connect(self, *args: Any, **kwargs: Any) -> "asyncpg.Connection[asyncpg.Record]":
        """What the pool calls for a new connection; it is checked here, and not in the pool's `init`: where that fails,
        asyncpg takes leave of the server, and waits for one that has fallen silent."""
        seconds = self._connect_timeout
        try:
            async with asyncio.timeout(seconds):
                connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(*args, **kwargs)
                try:
                    await _require_own_session(connection)
                except BaseException:
                    connection.terminate()
                    raise
        except TimeoutError:
            # The longest, as others that began with this one may have failed, too: together they count once.
            self._connect_timeout = max(self._connect_timeout, min(2 * seconds, self._timeout))
            raise
        self._connect_timeout = min(CONNECT_SECONDS, self._timeout)
        return connection

    async def close(self) -> None:
        """Closes every connection, waiting a second at most for what they are at."""
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        try:
            async with asyncio.timeout(1.0):
                await pool.close()
        except (TimeoutError, *_BROKEN):
            pool.terminate()

    async def fetch(self, name: str, *args: object) -> list[asyncpg.Record]:
        """Runs a named statement.

        A deadlock is repeated whole, a few times: nothing of it took effect.

        Raises:
            StoreUnavailableError: it did not take effect.
            OutcomeUnknownError: it may have taken effect.
        """
        rows, _ = await self.fetch_on(name, *args)
        return rows

    async def fetch_on(
        self, name: str, *args: object, note: Callable[[Backend], None] | None = None
    ) -> tuple[list[asyncpg.Record], Backend]:
        """As `fetch`; `note` is told the backend before the statement is sent."""
        text = query(name)

        async def run(connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]") -> tuple[Any, Backend]:
            backend = Backend(connection.get_server_pid(), self.name)
            if note is not None:
                note(backend)
            return await connection.fetch(text, *args), backend

        return await self._repeat(run)

    async def _repeat(self, run: "Callable[[asyncpg.pool.PoolConnectionProxy[asyncpg.Record]], Awaitable[T]]") -> T:
        for left in range(_REPEATED_WHOLE, -1, -1):
            try:
                async with self._connection() as connection:
                    return await _known(run(connection))
            except _REPEATED as error:
                if not left:
                    raise StoreUnavailableError(_text(error)) from error
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _connection(self) -> "AsyncIterator[asyncpg.pool.PoolConnectionProxy[asyncpg.Record]]":
        pool = self._pool
        if pool is None:
            raise StoreUnavailableError("the pool is closed")
        try:
            connection = await pool.acquire(timeout=self._timeout)
        except UNREACHABLE as error:
            raise StoreUnavailableError(_text(error)) from error
        try:
            yield connection
        except OutcomeUnknownError:
            _drop(connection)  # to give it back would mean to wait for its answer as long again
            raise
        finally:
            try:
                await pool.release(connection, timeout=self._timeout)
            except _BROKEN:
                _drop(connection)

    @asynccontextmanager
    async def transaction(self) -> "AsyncIterator[Transaction]":
        """One transaction of several statements. Committed at the end of the block; any exception rolls it back.

        Raises:
            StoreUnavailableError: it did not take effect.
            OutcomeUnknownError: the commit's answer was lost.
        """
        async with self._connection() as connection:
            block = connection.transaction()
            try:
                await block.start()
            except UNREACHABLE as error:
                raise StoreUnavailableError(_text(error)) from error
            try:
                yield Transaction(connection)
            except BaseException:
                try:
                    await asyncio.shield(block.rollback())
                except (*_BROKEN, asyncpg.PostgresError):
                    _drop(connection)
                raise
            await _known(block.commit())

    async def alter(self, scripts: Sequence[str], *, lock_timeout: float, timeout: float) -> list[str]:
        """Runs scripts that change the schema, in one transaction; returns the tag of each one's last command.

        Seconds: no lock is waited for longer than `lock_timeout`, no script runs longer than `timeout`.

        Raises:
            StoreUnavailableError: a lock was not to be had, or somebody else is changing the same thing.
            OutcomeUnknownError: it may have taken effect.
        """
        limits = (
            f"set local lock_timeout = {int(lock_timeout * 1000)}; set local statement_timeout = {int(timeout * 1000)}"
        )
        async with self._connection() as connection:
            try:
                async with connection.transaction():
                    await connection.execute(limits)
                    return [await connection.execute(script, timeout=timeout) for script in scripts]
            except (*_REFUSED, *_REPEATED, *_CHANGED) as error:
                raise StoreUnavailableError(_text(error)) from error
            except _BROKEN as error:
                raise OutcomeUnknownError(_text(error)) from error


class Transaction:
    """Named statements within one open transaction."""

    def __init__(self, connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]") -> None:
        self._connection = connection

    async def fetch(self, name: str, *args: object) -> list[asyncpg.Record]:
        try:
            return await self._connection.fetch(query(name), *args)
        except (*UNREACHABLE, *_REPEATED) as error:
            raise StoreUnavailableError(_text(error)) from error


async def _require_own_session(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Refuses a pooler between this process and the server.

    Rule 4 ends a server process by the pid that this connection was told, and pgbouncer tells another one, whatever its
    mode; and a session's timeouts and way of planning must hold for each statement.

    Raises:
        PooledError
    """
    row = await connection.fetchrow(
        "select pg_backend_pid() as pid, current_setting('plan_cache_mode') as plan_cache_mode"
    )
    assert row is not None
    if row["pid"] != connection.get_server_pid() or row["plan_cache_mode"] != PLANNING["plan_cache_mode"]:
        raise PooledError(
            "a connection pooler such as pgbouncer answers in the database's place: TOCSIN_DATABASE_URL must name"
            " PostgreSQL itself"
        )


async def _nothing_to_reset(_: object) -> None:
    """Statements here leave nothing behind in a session, so giving a connection back needs no round trip."""


def _drop(connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]") -> None:
    """Closes a connection without a word; the pool lets go by itself of one that the server has closed."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


async def _known(statement: Awaitable[T]) -> T:
    try:
        return await statement
    except _REFUSED as error:
        raise StoreUnavailableError(_text(error)) from error
    except _BROKEN as error:
        raise OutcomeUnknownError(_text(error)) from error


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def instant(value: datetime | None) -> datetime | None:
    """A timestamp as it was read: what PostgreSQL calls `infinity` comes without a zone and means parked."""
    return PARKED if value is not None and value.tzinfo is None else value


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Turns rows into the arrays that `unnest` takes; `width` arrays even where there is no row."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
