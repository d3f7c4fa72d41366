"""`tocsin task ...`: a look at tasks, whosoever they are. Tenants use the API."""

import typer

from tocsin.cli.commands.run import ready_store, run, table
from tocsin.cli.commands.tenant import Name, find_tenant
from tocsin.common.clock import PARKED
from tocsin.common.store.views import TaskView

app = typer.Typer(help="Tasks of a tenant.", no_args_is_help=True)

_PAGE = 500


@app.command("list")
def list_(tenant: Name) -> None:
    """List a tenant's tasks, newest first."""

    async def work() -> None:
        rows = [["id", "name", "state", "next due", "fault"]]
        async with ready_store() as store:
            tenant_id = (await find_tenant(store, tenant)).id
            before = None
            while page := await store.tasks.listing(tenant_id, before, _PAGE):
                rows += [_row(view) for view in page]
                before = page[-1].id
        table(rows)

    run(work())


def _row(view: TaskView) -> list[str]:
    state = "faulty" if view.task is None else view.task.state.value
    due = view.next_due_at
    following = "-" if due is None or due == PARKED else due.isoformat(timespec="milliseconds")
    return [str(view.id), view.name, state, following, view.fault or ""]
