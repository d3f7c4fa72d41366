"""The `tocsin` command."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tocsin.cli.commands import key, serve, task, tenant
from tocsin.cli.commands.doctor import doctor
from tocsin.cli.commands.run import run, settings

app = typer.Typer(
    help="A multi-tenant job scheduler that calls HTTP endpoints on time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # they hold secrets
)


@app.command()
def up(
    demo: Annotated[bool, typer.Option("--demo", help="Add a tenant with telling tasks, and show their runs.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lie; they survive restarts.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="The API's port.")] = None,
    dashboard_port: Annotated[int | None, typer.Option(min=1, max=65_535, help="Ray's dashboard's port.")] = None,
    executors: Annotated[int | None, typer.Option(min=1, max=64, help="Executor processes.")] = None,
) -> None:
    """Run everything on this machine: PostgreSQL, Ray, the API. With TOCSIN_DATABASE_URL, that database instead.

    Ctrl-C or SIGTERM drains and stops it within 10 s (exit code 0); a second one kills it (exit code 130).
    """
    from tocsin.cli.up.command import up as run_up
    from tocsin.cli.up.options import UpOptions, usual_executors

    chosen = settings()
    options = UpOptions(
        data_dir=Path(os.path.abspath(data_dir or chosen.data_dir)),
        port=port or chosen.api_port,
        dashboard_port=dashboard_port or chosen.dashboard_port,
        executors=executors or usual_executors(),
        demo=demo,
        database_url=chosen.database_url if "database_url" in chosen.model_fields_set else None,
        own_redis=chosen.hints != "off" and chosen.redis_url is None,
    )
    run(run_up(options, chosen.egress_allow))


app.command()(serve.migrate)
app.command()(serve.api)
app.command()(serve.engine)
app.command()(doctor)
app.add_typer(tenant.app, name="tenant")
app.add_typer(key.app, name="key")
app.add_typer(task.app, name="task")
