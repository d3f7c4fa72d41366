"""How a command runs: its coroutine to the end, its errors as one sentence and exit code 1."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

import typer
from pydantic import ValidationError

from tocsin.cli.database import open_store
from tocsin.common.errors import TocsinError
from tocsin.common.settings import Settings
from tocsin.common.store.postgres.migrate import require_schema
from tocsin.common.store.postgres.store import PostgresStore

T = TypeVar("T")


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Turns what Tocsin refuses into a line on standard error and exit code 1."""
    try:
        yield
    except TocsinError as error:
        typer.echo(f"tocsin: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from error


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine."""
    with one_sentence():
        return asyncio.run(coroutine)


def settings() -> Settings:
    """The settings of this environment; what cannot be read is said in one line for each."""
    try:
        return Settings()
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=False):
            name = "TOCSIN_" + "_".join(str(step) for step in found["loc"]).upper()
            typer.echo(f"tocsin: {name}: {found['msg']}", err=True)
        raise typer.Exit(1) from error


@contextlib.asynccontextmanager
async def ready_store() -> AsyncIterator[PostgresStore]:
    """The store that the settings name, for one command.

    Raises:
        StoreUnavailableError: the database cannot be reached.
        NotMigratedError: it has not this version's schema.
    """
    dsn = settings().database_url.get_secret_value()
    await require_schema(dsn)
    async with open_store(dsn) as store:
        yield store


def table(rows: list[list[str]]) -> None:
    """Prints rows, the first one the heading, in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
