"""`/v1/runs`."""

from typing import Final

from aiohttp import web  # noqa: TID251 - this app serves HTTP

from tocsin.api.context import answer, context_of, id_of, query_of, read_object, refuse_unknown, tenant_of
from tocsin.api.views import run_document
from tocsin.common.errors import NotFoundError
from tocsin.common.states import RunState


async def get_run(request: web.Request) -> web.Response:
    query_of(request, ())
    run = await context_of(request).store.tasks.run(tenant_of(request), id_of(request, "run"))
    if run is None:
        raise NotFoundError("no such run")
    return answer(run_document(run))


async def cancel_run(request: web.Request) -> web.Response:
    """202 with the state in which the run was found: one that was running is aborted, and ends soon after."""
    query_of(request, ())
    run_id = id_of(request, "run")
    refuse_unknown(await read_object(request, empty=True), ())
    context = context_of(request)
    found = await context.writes.cancel(tenant_of(request), run_id)
    if found is RunState.RUNNING:
        context.notifier.cancelled(run_id)
    return answer({"run_id": str(run_id), "found": found}, status=202)


ROUTES: Final = (
    web.get("/v1/runs/{id}", get_run),
    web.post("/v1/runs/{id}/cancel", cancel_run),
)
