"""Every named statement is one that the server can prepare, and says what it is for."""

from importlib.resources import files

import asyncpg
import pytest

from tocsin.common.store.postgres.queries import query

NAMES = sorted(
    entry.name.removesuffix(".sql")
    for entry in (files("tocsin.common.store.postgres") / "sql").iterdir()
    if entry.name.endswith(".sql")
)
SCRIPTS = {"history_fill", "history_attach", "history_detach", "history_drop"}


@pytest.mark.parametrize("name", NAMES)
def test_statement_begins_with_its_purpose(name: str) -> None:
    assert query(name).startswith("-- ")


async def test_statements_can_be_prepared(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    refused = {}
    try:
        for name in NAMES:
            if name not in SCRIPTS:
                try:
                    await connection.prepare(query(name))
                except asyncpg.PostgresError as error:
                    refused[name] = str(error)
    finally:
        await connection.close()
    assert refused == {}
