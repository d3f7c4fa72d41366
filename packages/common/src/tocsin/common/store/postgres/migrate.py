"""Migrations: forward-only files, applied in order under an advisory lock, each in its own transaction."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from tocsin.common.errors import StoreUnavailableError, TocsinError
from tocsin.common.store.postgres.database import UNREACHABLE, Database
from tocsin.common.store.postgres.history import PostgresHistory
from tocsin.common.store.rows import PARTITION_DAYS_AHEAD

_LOCK = 0x70C5_1A17
_NAME = "tocsin migrate"
_LOOK_SECONDS = 5.0
_TABLE = """
create table if not exists migrations (
    number integer primary key,
    name text not null,
    sha256 text not null,
    applied_at timestamptz not null default now()
)
"""


class MigrationError(TocsinError):
    """The database's migrations and the code's do not belong together."""


def migrations() -> list[tuple[int, str, str]]:
    """Number, name and text of every migration that this version knows, in order."""
    folder = files(__package__) / "migrations"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name[:4]), name, (folder / name).read_text(encoding="utf-8")) for name in found]


async def migrate(dsn: str) -> list[str]:
    """Brings the database to this version's schema, with history's next partitions; says which files it applied.

    A newer database is left alone: migrations are safe while the version before still runs.

    Raises:
        MigrationError: an applied file is not the one that this version carries.
    """
    done = await _apply(dsn)
    database = Database(dsn, _NAME, size=1)
    await database.open()
    try:
        await PostgresHistory(database).keep(None, PARTITION_DAYS_AHEAD)
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
        MigrationError: an applied file is not the one that this version carries.
    """
    try:
        connection = await asyncpg.connect(dsn, timeout=_LOOK_SECONDS, server_settings={"application_name": _NAME})
    except UNREACHABLE as error:
        raise StoreUnavailableError(str(error) or type(error).__name__) from error
    try:
        version = connection.get_server_version()
        known = await connection.fetchval("select to_regclass('migrations') is not null")
        rows = await connection.fetch("select number, sha256 from migrations") if known else []
        applied = {row["number"]: row["sha256"] for row in rows}
        missing = []
        for number, name, text in migrations():
            if number not in applied:
                missing.append(name)
            else:
                _require_same(name, text, applied[number])
        return SchemaState(f"{version.major}.{version.minor}", tuple(missing))
    finally:
        await connection.close(timeout=10)


async def _apply(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn, timeout=30, server_settings={"application_name": _NAME})
    try:
        await connection.execute("select pg_advisory_lock($1)", _LOCK)
        await connection.execute(_TABLE)
        applied = {
            row["number"]: row["sha256"] for row in await connection.fetch("select number, sha256 from migrations")
        }
        done = []
        for number, name, text in migrations():
            digest = hashlib.sha256(text.encode()).hexdigest()
            if number in applied:
                if applied[number] != digest:
                    raise MigrationError(f"migration {name} was applied in another form; applied files never change")
                continue
            async with connection.transaction():
                await connection.execute(text)
                await connection.execute(
                    "insert into migrations (number, name, sha256) values ($1, $2, $3)", number, name, _digest(text)
                )
            done.append(name)
        return done
    finally:
        await connection.close(timeout=10)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _require_same(name: str, text: str, applied: str) -> None:
    if applied != _digest(text):
        raise MigrationError(f"migration {name} was applied in another form; applied files never change")
