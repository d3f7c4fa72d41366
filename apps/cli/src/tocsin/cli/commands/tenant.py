"""`tocsin tenant ...`"""

from dataclasses import replace
from typing import Annotated

import typer

from tocsin.cli.commands.run import ready_store, run, table
from tocsin.cli.tenants import MAX_IN_FLIGHT, TENANTS_CHANGED, make_key, make_tenant, set_limits
from tocsin.common.clock import SystemClock
from tocsin.common.errors import FieldError, NotFoundError
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.tenants import Placement, Tenant

app = typer.Typer(help="Tenants: the customers of this platform.", no_args_is_help=True)

_PAGE = 500
_MOST = 1_000_000
"""Of a weight and of a cap: far more than is of use, and what the database can hold."""

_NO_LIMIT = "none"


def _weight(value: float | None) -> float | None:
    if value is not None and not 0.001 <= value <= _MOST:  # neither holds for NaN
        raise typer.BadParameter(f"must be a number from 0.001 to {_MOST}")
    return value


Name = Annotated[str, typer.Argument(help="The tenant's name.")]
_Weight = typer.Option(callback=_weight, help="Its share where tenants compete.")
_MaxInFlight = typer.Option(min=1, max=_MOST, help="Calls in flight at most.")


@app.command()
def create(
    name: Name,
    weight: Annotated[float, _Weight] = 1.0,
    max_in_flight: Annotated[int, _MaxInFlight] = MAX_IN_FLIGHT,
    max_per_endpoint: Annotated[
        int | None,
        typer.Option(
            "--max-in-flight-per-endpoint",
            min=1,
            max=_MOST,
            help="Calls in flight to one host and port at most; no limit by default.",
        ),
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


@app.command("set")
def set_(
    name: Name,
    weight: Annotated[float | None, _Weight] = None,
    max_in_flight: Annotated[int | None, _MaxInFlight] = None,
    max_per_endpoint: Annotated[
        str | None,
        typer.Option(
            "--max-in-flight-per-endpoint",
            metavar=f"INTEGER|{_NO_LIMIT}",
            help=f"Calls in flight to one host and port at most; {_NO_LIMIT}: no limit.",
        ),
    ] = None,
) -> None:
    """Change a tenant's limits; executors take them up within seconds. What is not given stays as it is."""

    def change(tenant: Tenant) -> Tenant:
        if weight is not None:
            tenant = replace(tenant, weight=weight)
        if max_in_flight is not None:
            tenant = replace(tenant, max_in_flight=max_in_flight)
        if max_per_endpoint is not None:
            tenant = replace(tenant, max_in_flight_per_endpoint=_endpoint_cap(max_per_endpoint))
        return tenant

    async def work() -> None:
        if weight is None and max_in_flight is None and max_per_endpoint is None:
            raise FieldError("tenant set", "give --weight, --max-in-flight or --max-in-flight-per-endpoint")
        async with ready_store() as store:
            tenant = await set_limits(store, (await find_tenant(store, name)).id, change)
            cells = {placement.tenant_id: placement for placement in await store.tenants.placements()}
        table([_HEADING, _row(tenant, cells.get(tenant.id))])

    run(work())


def _endpoint_cap(text: str) -> int | None:
    """Raises:
    FieldError: it is neither a whole number of at least 1 nor `none`.
    """
    if text == _NO_LIMIT:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) and 1 <= int(text) <= _MOST):
        raise FieldError(
            "--max-in-flight-per-endpoint", f"must be a whole number from 1 to {_MOST}, or {_NO_LIMIT} for no limit"
        )
    return int(text)


_HEADING = ["id", "name", "cell", "shard", "weight", "max in flight", "per endpoint"]


@app.command("list")
def list_() -> None:
    """List tenants."""

    async def work() -> None:
        async with ready_store() as store:
            cells = {placement.tenant_id: placement for placement in await store.tenants.placements()}
            rows = [_HEADING]
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
                    await store.tasks.notify(TENANTS_CHANGED)
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
