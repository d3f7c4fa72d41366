"""`tocsin key ...`"""

from typing import Annotated
from uuid import UUID

import typer

from tocsin.cli.commands.run import ready_store, run, table
from tocsin.cli.commands.tenant import Name, find_tenant
from tocsin.cli.tenants import make_key
from tocsin.common.clock import SystemClock
from tocsin.common.errors import NotFoundError

app = typer.Typer(help="API keys of a tenant.", no_args_is_help=True)


@app.command()
def create(tenant: Name, name: Annotated[str, typer.Option(help="What the key is for.")] = "cli") -> None:
    """Add a key; prints it, this once."""

    async def work() -> None:
        async with ready_store() as store:
            found = await find_tenant(store, tenant)
            key_id, text = await make_key(store, SystemClock(), found.id, name)
        typer.echo(f"key id   {key_id}")
        typer.echo(f"API key  {text}")

    run(work())


@app.command("list")
def list_(tenant: Name) -> None:
    """List a tenant's keys; the keys themselves are not kept."""

    async def work() -> None:
        async with ready_store() as store:
            keys = await store.tenants.keys((await find_tenant(store, tenant)).id)
        rows = [["id", "name", "created", "revoked"]]
        for key in keys:
            revoked = "" if key.revoked_at is None else key.revoked_at.isoformat(timespec="seconds")
            rows.append([str(key.id), key.name, key.created_at.isoformat(timespec="seconds"), revoked])
        table(rows)

    run(work())


@app.command()
def revoke(key_id: Annotated[UUID, typer.Argument(help="The key's id, as `tocsin key list` shows it.")]) -> None:
    """Revoke a key; it works for 5 s more at most."""

    async def work() -> None:
        async with ready_store() as store:
            if not await store.tenants.revoke_key(key_id):
                raise NotFoundError(f"no key {key_id} that is not revoked")
        typer.echo(f"revoked {key_id}")

    run(work())
