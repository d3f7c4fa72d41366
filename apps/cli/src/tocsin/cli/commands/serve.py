"""`tocsin migrate`, `tocsin api` and `tocsin engine`: the parts of Tocsin one by one."""

import asyncio
import logging

import typer

from tocsin.cli.commands.run import run, settings
from tocsin.cli.logs import configure_logging

log = logging.getLogger("tocsin.cli")


def migrate() -> None:
    """Bring the database to this version's schema; waits for a database that is down."""
    from tocsin.cli.database import migrate_when_up

    configure_logging()
    done = run(migrate_when_up(settings()))
    for name in done:
        typer.echo(f"applied {name}")
    if not done:
        typer.echo("the database is up to date")


def api() -> None:
    """Serve the HTTP API at TOCSIN_API_HOST:TOCSIN_API_PORT."""
    from tocsin.cli.serve import serve_api
    from tocsin.cli.up.lifeline import stop_signals

    async def work() -> None:
        chosen = settings()
        stop = asyncio.Event()
        with stop_signals(stop, parent=False):
            await serve_api(chosen, stop, lambda port: log.info("listening on %s:%d", chosen.api_host, port))

    configure_logging()
    run(work())


def engine() -> None:
    """Run one executor of the cell TOCSIN_CELL, without Ray."""
    from tocsin.cli.serve import serve_engine
    from tocsin.cli.up.lifeline import stop_signals

    async def work() -> None:
        stop = asyncio.Event()
        with stop_signals(stop, parent=False):
            finished = await serve_engine(settings(), stop)
        log.info("drained%s", "" if finished else "; some calls had not ended")

    configure_logging()
    run(work())
