"""The shared database fixtures keep their promises: one database a test, and nothing of another's in it."""

import asyncio

import asyncpg
import pytest


@pytest.fixture(scope="module")
def seen() -> set[str]:
    return set()


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_has_an_empty_database_of_its_own(empty_database_url: str, seen: set[str], turn: int) -> None:
    assert empty_database_url not in seen
    seen.add(empty_database_url)
    connection = await asyncpg.connect(empty_database_url)
    assert await connection.fetchval("select to_regclass('kept')") is None
    await connection.execute("create table kept (turn int)")
    await connection.close()


async def test_a_test_may_leave_a_connection_open(empty_database_url: str) -> None:
    connection = await asyncpg.connect(empty_database_url)
    assert await connection.fetchval("select current_setting('synchronous_commit')") == "on"
    connection.terminate()


def test_a_test_without_a_loop_may_run_its_own(empty_database_url: str) -> None:
    async def ask() -> int:
        connection = await asyncpg.connect(empty_database_url)
        try:
            answer: int = await connection.fetchval("select 1")
            return answer
        finally:
            await connection.close()

    assert asyncio.run(ask()) == 1


async def test_a_migrated_database_has_the_tables(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("select to_regclass('pending')") is not None
    await connection.close()
