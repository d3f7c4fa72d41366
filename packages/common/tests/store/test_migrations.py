"""Migrations that meet an obstacle: nothing half done, one sentence, and the next one goes on from there."""

import asyncio
import logging
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.postgres import migrate as module
from tocsin.common.store.postgres.migrate import MIGRATION_LOCK, MigrationError, migrate, schema_state

FIRST = "0001_init.sql"
SECOND = "0002_next.sql"
NOWHERE = "postgresql://127.0.0.1:9/none"
BLOCKED = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"


@pytest.fixture
async def admin(database_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> "list[str]":
    """The text of a migration after the first: what a test puts in."""
    texts: list[str] = ["alter table tenants add column note text"]
    known = module.migrations()
    monkeypatch.setattr(module, "migrations", lambda: [*known, (2, SECOND, texts[0])])
    return texts


async def notes(admin: "asyncpg.Connection[asyncpg.Record]") -> int:
    """How much of the second migration there is: its column, and its entry."""
    columns = "select count(*) from information_schema.columns where table_name = 'tenants' and column_name = 'note'"
    entries = "select count(*) from migrations where number = 2"
    return int(await admin.fetchval(f"select ({columns}) + ({entries})"))


async def check_a_lock_is_not_waited_for(admin: "asyncpg.Connection[asyncpg.Record]", url: str) -> None:
    async with admin.transaction():
        await admin.execute("lock table tenants in access share mode")
        with pytest.raises(StoreUnavailableError, match=f"{SECOND} got no lock"):
            await migrate(url)
    assert await notes(admin) == 0
    assert await migrate(url) == [SECOND]
    assert await notes(admin) == 2


async def test_a_lock_is_not_waited_for(
    admin: "asyncpg.Connection[asyncpg.Record]", database_url: str, second: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.1)
    await check_a_lock_is_not_waited_for(admin, database_url)


async def test_a_wait_for_ever_is_caught(
    admin: "asyncpg.Connection[asyncpg.Record]", database_url: str, second: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0)  # PostgreSQL's word for no limit
    monkeypatch.setattr(module, "MIGRATION_SECONDS", 0.2)
    with pytest.raises(MigrationError):
        await check_a_lock_is_not_waited_for(admin, database_url)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alter table tenants add column note text; select pg_sleep(100)", f"{SECOND} took more than 0.1 s"),
        ("alter table tenants add column note text; select nothing", f'{SECOND}: column "nothing" does not exist'),
    ],
)
async def test_a_migration_takes_effect_whole_or_not_at_all(
    admin: "asyncpg.Connection[asyncpg.Record]",
    database_url: str,
    second: list[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    said: str,
) -> None:
    monkeypatch.setattr(module, "MIGRATION_SECONDS", 0.1)
    second[0] = text
    with pytest.raises(MigrationError, match=said):
        await migrate(database_url)
    assert await notes(admin) == 0
    assert (await schema_state(database_url)).missing == (SECOND,)


async def check_a_file_of_many_statements_is_given_up(
    admin: "asyncpg.Connection[asyncpg.Record]", url: str, second: list[str]
) -> None:
    """Each of its statements takes less than the limit; together they take more."""
    second[0] = "alter table tenants add column note text;" + " select pg_sleep(0.1);" * 10
    with pytest.raises(MigrationError, match=f"{SECOND} took more than 0.3 s"):
        await migrate(url)
    assert await notes(admin) == 0


async def test_a_file_of_many_statements_is_given_up(
    admin: "asyncpg.Connection[asyncpg.Record]", database_url: str, second: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIGRATION_SECONDS", 0.3)
    await check_a_file_of_many_statements_is_given_up(admin, database_url, second)


async def test_a_limit_on_each_statement_alone_is_caught(
    admin: "asyncpg.Connection[asyncpg.Record]", database_url: str, second: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIGRATION_SECONDS", 0.3)
    execute = asyncpg.Connection.execute

    async def without_limit(
        connection: "asyncpg.Connection[asyncpg.Record]", text: str, *args: object, timeout: float | None = None
    ) -> str:
        return await execute(connection, text, *args)

    monkeypatch.setattr(asyncpg.Connection, "execute", without_limit)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await check_a_file_of_many_statements_is_given_up(admin, database_url, second)


async def test_a_server_that_ends_in_the_middle_is_unavailable(
    admin: "asyncpg.Connection[asyncpg.Record]", database_url: str, second: list[str]
) -> None:
    async with admin.transaction():
        await admin.execute("lock table tenants in access share mode")
        migrating = asyncio.create_task(migrate(database_url))
        while not await admin.fetchval(BLOCKED):
            assert not migrating.done()
            await admin.execute("select pg_stat_clear_snapshot()")
        end = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tocsin migrate'"
        await admin.execute(f"{end} and datname = current_database()")
        with pytest.raises(StoreUnavailableError):
            await migrating
    assert await notes(admin) == 0


async def test_each_file_is_applied_once_by_however_many(empty_database_url: str) -> None:
    done = await asyncio.gather(*(migrate(empty_database_url) for _ in range(4)))
    assert sorted(done) == [[], [], [], [FIRST]]


async def test_another_migration_is_waited_for_with_a_line(
    admin: "asyncpg.Connection[asyncpg.Record]",
    database_url: str,
    second: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.01)
    said = asyncio.Event()

    def hear(record: logging.LogRecord) -> bool:
        said.set()
        return True

    monkeypatch.setattr(module.log, "filters", [hear])
    caplog.set_level(logging.INFO, module.log.name)
    async with admin.transaction():
        await admin.execute("select pg_advisory_xact_lock($1)", MIGRATION_LOCK)
        migrating = asyncio.create_task(migrate(database_url))
        await said.wait()
    assert await migrating == [SECOND]
    assert caplog.messages == ["another process is migrating the database; waiting for it"]


async def test_b66_no_lock_outlives_the_migration_in_its_session(empty_database_url: str) -> None:
    """A pooler hands the session on to others, with every lock that it holds."""
    connection = await asyncpg.connect(empty_database_url)
    held = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    try:
        assert await module._apply_next(connection) == FIRST
        assert await connection.fetchval(held) == 0
        assert await connection.fetchval("show lock_timeout") == "0"
    finally:
        await connection.close()


@pytest.mark.parametrize("look", [migrate, schema_state])
async def test_a_server_that_is_away_is_unavailable(look: "object") -> None:
    assert callable(look)
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1"):
        await look(NOWHERE)


@pytest.mark.parametrize("url", ["nonsense", "postgresql://127.0.0.1:port/x", "postgresql://127.0.0.1:99999/x"])
@pytest.mark.parametrize("look", [migrate, schema_state])
async def test_a_url_that_makes_no_sense_is_not_waited_for(look: "object", url: str) -> None:
    assert callable(look)
    with pytest.raises(MigrationError, match="makes no sense"):
        await look(url)


async def test_a_database_that_refuses_says_so(
    admin: "asyncpg.Connection[asyncpg.Record]", database_url: str, second: list[str]
) -> None:
    name = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {name} set default_transaction_read_only = on")
    with pytest.raises((MigrationError, StoreUnavailableError), match="read-only"):
        await migrate(database_url)
