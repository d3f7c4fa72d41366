"""Every named statement is one that the server can prepare, and says what it is for."""

import re
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


LIMITED_SUBQUERY = re.compile(r"\b(in|any)\s*\(\s*(array\s*\()?\s*select\b[^)]*\blimit\b", re.IGNORECASE)
"""Under a nested loop such a subquery runs once for each row, and takes that many times its limit."""


@pytest.mark.parametrize("name", NAMES)
def test_b65_no_statement_takes_rows_by_a_limited_subquery(name: str) -> None:
    assert not LIMITED_SUBQUERY.search(query(name))


def test_b65_a_limited_subquery_is_caught() -> None:
    assert LIMITED_SUBQUERY.search(
        "update t set a = 1 where id in (\n select id from t order by id limit $1 for update)"
    )


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
