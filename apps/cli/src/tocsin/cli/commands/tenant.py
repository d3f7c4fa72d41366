"""`tocsin tenant ...`"""

from typing import Annotated

import typer

from tocsin.cli.commands.run import ready_store, run, table
from tocsin.cli.tenants import MAX_IN_FLIGHT, make_key, make_tenant
from tocsin.common.clock import SystemClock
from tocsin.common.errors import ConflictError, NotFoundError
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.tenants import Placement, Tenant

app = typer.Typer(help="Tenants: the customers of this platform.", no_args_is_help=True)

_PAGE = 500

Name = Annotated[str, typer.Argument(help="The tenant's name.")]


@app.command()
def create(
    name: Name,
    weight: Annotated[float, typer.Option(min=0.001, help="Its share where tenants compete.")] = 1.0,
    max_in_flight: Annotated[int, typer.Option(min=1, help="Calls in flight at most.")] = MAX_IN_FLIGHT,
    max_per_endpoint: Annotated[
        int | None, typer.Option(min=1, help="Calls in flight to one host and port at most; no limit by default.")
    ] = None,
) -> None:
    """Add a tenant; prints its first API key and its signing secret, which are shown this once."""

    async def work() -> None:
        async with ready_store() as store:
            tenant, secret = await make_tenant(
                store,
                SystemClock(),
                name,
                weight=weight,
                max_in_flight=max_in_flight,
                max_per_endpoint=max_per_endpoint,
            )
            _, key = await make_key(store, SystemClock(), tenant.id, "first")
        typer.echo(f"tenant          {tenant.id}")
        typer.echo(f"API key         {key}")
        typer.echo(f"signing secret  {secret}")

    run(work())


@app.command("list")
def list_() -> None:
    """List tenants."""

    async def work() -> None:
        async with ready_store() as store:
            cells = {placement.tenant_id: placement for placement in await store.tenants.placements()}
            rows = [["id", "name", "cell", "shard", "weight", "max in flight", "per endpoint"]]
            after = None
            while page := await store.tenants.listing(after, _PAGE):
                rows += [_row(tenant, cells.get(tenant.id)) for tenant in page]
                after = page[-1].id
        table(rows)

    run(work())


def _row(tenant: Tenant, placement: Placement | None) -> list[str]:
    cell = "shared" if placement is None else placement.cell + (" (closing)" if placement.closing else "")
    numbers = f"{tenant.weight:g}", str(tenant.max_in_flight), str(tenant.max_in_flight_per_endpoint or "no limit")
    return [str(tenant.id), tenant.name, cell, str(tenant.shard), *numbers]


@app.command()
def promote(
    name: Name,
    executors: Annotated[int, typer.Option(min=1, max=64, help="Executors of its own.")] = 1,
) -> None:
    """Give a tenant a cell of its own; the Supervisor carries it out."""

    async def work() -> None:
        async with ready_store() as store:
            tenant = await find_tenant(store, name)
            if executors > tenant.max_in_flight:
                most = tenant.max_in_flight
                raise ConflictError(f"{name} may have {most} calls in flight, so no more executors than that")
            if any(placement.tenant_id == tenant.id for placement in await store.tenants.placements()):
                raise ConflictError(f"{name} has a cell of its own, or is about to leave it: demote it first, and wait")
            typer.echo(f"{name} gets the cell {await store.tenants.open_cell(tenant.id, executors)}")

    run(work())


@app.command()
def demote(name: Name) -> None:
    """Bring a tenant back to the shared cell; the Supervisor carries it out."""

    async def work() -> None:
        async with ready_store() as store:
            tenant = await find_tenant(store, name)
            for placement in await store.tenants.placements():
                if placement.tenant_id == tenant.id:
                    await store.tenants.close_cell(placement.cell, tenant.id)
                    await store.tasks.notify("tenants")
                    typer.echo(f"{name} leaves the cell {placement.cell}")
                    return
            raise NotFoundError(f"{name} has no cell of its own")

    run(work())


async def find_tenant(store: PostgresStore, name: str) -> Tenant:
    """Raises:
    NotFoundError: no tenant has this name.
    """
    tenant = await store.tenants.find(name=name)
    if tenant is None:
        raise NotFoundError(f"no tenant is named {name!r}; `tocsin tenant list` shows all")
    return tenant
