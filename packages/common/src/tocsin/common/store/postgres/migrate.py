"""Migrations: forward-only files, applied in order, each in a transaction of its own and under an advisory lock.

The lock ends with the transaction: nothing is left behind in a session, whoever ends it.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import asyncpg

from tocsin.common.errors import StoreUnavailableError, TocsinError
from tocsin.common.store.postgres.database import UNREACHABLE, Database, PooledError
from tocsin.common.store.postgres.history import PostgresHistory
from tocsin.common.store.rows import PARTITION_DAYS_AHEAD

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

log = logging.getLogger("tocsin.migrate")

MIGRATION_LOCK = 0x70C5_1A17
LOCK_SECONDS = 5.0
"""The longest wait for a lock: whoever wants the same table waits behind a migration that waits."""

MIGRATION_SECONDS = 900.0
"""The longest that one file may take."""

_NAME = "tocsin migrate"
_LOOK_SECONDS = 5.0
_AGAIN_SECONDS = 0.5
_TABLE = """
create table if not exists migrations (
    number integer primary key,
    name text not null,
    sha256 text not null,
    applied_at timestamptz not null default now()
)
"""


class MigrationError(TocsinError):
    """The database cannot be brought to this version's schema; its text says why."""


class NotMigratedError(StoreUnavailableError):
    """The database has not this version's schema: it may have it soon."""


class _BusyError(Exception):
    """Another process is at it."""


def migrations() -> list[tuple[int, str, str]]:
    """Number, name and text of every migration that this version knows, in order."""
    folder = files(__package__) / "migrations"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name[:4]), name, (folder / name).read_text(encoding="utf-8")) for name in found]


async def migrate(dsn: str) -> list[str]:
    """Brings the database to this version's schema, with history's next partitions; says which files it applied.

    A newer database is left alone: migrations are safe while the version before still runs. Another process that
    migrates is waited for.

    Raises:
        StoreUnavailableError: the database went away, or a lock was not to be had in `LOCK_SECONDS`; a file took
            effect whole or not at all, and migrating again goes on from there.
        MigrationError: an applied file is not the one that this version carries, or one cannot be applied.
    """
    done = await _apply(dsn)
    database = Database(dsn, _NAME, size=1)
    try:
        await database.open()
        await PostgresHistory(database).keep(None, PARTITION_DAYS_AHEAD)
    except PooledError as error:
        raise MigrationError(str(error)) from error
    finally:
        await database.close()
    return done


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What a database is and lacks. `server`: PostgreSQL's version; `missing`: files that are not applied."""

    server: str
    missing: tuple[str, ...]


async def schema_state(dsn: str) -> SchemaState:
    """Looks, and changes nothing.

    Raises:
        StoreUnavailableError: the database cannot be reached.
        MigrationError: an applied file is not the one that this version carries, or the URL makes no sense.
    """
    async with _connected(dsn, _LOOK_SECONDS) as connection:
        version = connection.get_server_version()
        known = await connection.fetchval("select to_regclass('migrations') is not null")
        applied = await _applied(connection) if known else {}
    missing = []
    for number, name, text in migrations():
        if number not in applied:
            missing.append(name)
        else:
            _require_same(name, text, applied[number])
    return SchemaState(f"{version.major}.{version.minor}", tuple(missing))


async def require_schema(dsn: str) -> None:
    """Returns where the database has all of this version's schema.

    Raises:
        StoreUnavailableError: it cannot be reached; as NotMigratedError, it has another schema.
    """
    try:
        missing = (await schema_state(dsn)).missing
    except MigrationError as error:
        raise NotMigratedError(str(error)) from error
    if missing:
        raise NotMigratedError(f"the database lacks {', '.join(missing)}: run `tocsin migrate`")


async def _apply(dsn: str) -> list[str]:
    done: list[str] = []
    waiting = False
    async with _connected(dsn, MIGRATION_SECONDS + _LOOK_SECONDS) as connection:
        while True:
            try:
                name = await _apply_next(connection)
            except _BusyError:
                if not waiting:
                    log.info("another process is migrating the database; waiting for it")
                waiting = True
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if name is None:
                return done
            done.append(name)


async def _apply_next(connection: "Connection") -> str | None:
    """Applies the first file that is missing; None where none is.

    Raises:
        _BusyError: another process is at it.
    """
    async with connection.transaction():
        await connection.execute(
            f"set local lock_timeout = {int(LOCK_SECONDS * 1000)};"
            f" set local statement_timeout = {int(MIGRATION_SECONDS * 1000)};"
            " set local idle_in_transaction_session_timeout = 60000"
        )
        if not await connection.fetchval("select pg_try_advisory_xact_lock($1)", MIGRATION_LOCK):
            raise _BusyError
        await connection.execute(_TABLE)
        applied = await _applied(connection)
        for number, name, text in migrations():
            if number in applied:
                _require_same(name, text, applied[number])
                continue
            try:
                await connection.execute(text, timeout=MIGRATION_SECONDS)
            except asyncpg.LockNotAvailableError as error:
                raise StoreUnavailableError(f"{name} got no lock in {LOCK_SECONDS:g} s: {error}") from error
            except (asyncpg.QueryCanceledError, TimeoutError) as error:  # one statement, or all of them together
                raise MigrationError(f"{name} took more than {MIGRATION_SECONDS:g} s, and was given up") from error
            except asyncpg.PostgresError as error:
                if isinstance(error, UNREACHABLE):
                    raise
                raise MigrationError(f"{name}: {error}") from error
            await connection.execute(
                "insert into migrations (number, name, sha256) values ($1, $2, $3)", number, name, _digest(text)
            )
            return name
    return None


async def _applied(connection: "Connection") -> dict[int, str]:
    """The numbers of the applied files, each with its digest."""
    return {row["number"]: row["sha256"] for row in await connection.fetch("select number, sha256 from migrations")}


@asynccontextmanager
async def _connected(dsn: str, seconds: float) -> "AsyncIterator[Connection]":
    """A connection whose statements may take so long; whatever goes wrong becomes one sentence.

    Raises:
        StoreUnavailableError, MigrationError.
    """
    try:
        connection = await _connect(dsn, seconds)
        try:
            yield connection
        finally:
            if not connection.is_closed():
                await connection.close(timeout=_LOOK_SECONDS)
    except UNREACHABLE as error:
        raise StoreUnavailableError(str(error) or type(error).__name__) from error
    except asyncpg.PostgresError as error:
        raise MigrationError(f"the database refuses: {error}") from error


async def _connect(dsn: str, seconds: float) -> "Connection":
    try:
        return await asyncpg.connect(
            dsn, timeout=_LOOK_SECONDS, command_timeout=seconds, server_settings={"application_name": _NAME}
        )
    except (ValueError, OverflowError) as error:  # asyncpg's own refusal of a URL is a ValueError too
        raise MigrationError(f"the database's URL makes no sense: {error}") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _require_same(name: str, text: str, applied: str) -> None:
    if applied != _digest(text):
        raise MigrationError(f"migration {name} was applied in another form; applied files never change")
