"""The slots to come of a task, or of a definition that is not stored."""

from datetime import datetime
from typing import Final

from aiohttp import web  # noqa: TID251 - this app serves HTTP

from tocsin.api.context import answer, context_of, id_of, query_of, read_object, tenant_of, whole_number
from tocsin.api.definitions import read_definition
from tocsin.api.timestamps import parse_timestamp
from tocsin.api.views import preview_document
from tocsin.common.errors import FaultyDefinitionError, FieldError, NotFoundError
from tocsin.common.models import EARLIEST, LATEST
from tocsin.common.time.schedule import preview

SLOTS: Final = 10
MAX_SLOTS: Final = 100

_STANDS_FOR_REST: Final = {"name": "preview", "request": {"url": "http://preview.invalid/"}}


async def preview_task(request: web.Request) -> web.Response:
    query = query_of(request, ("count", "after"))
    count, after = whole_number(query, "count", SLOTS, MAX_SLOTS), _after(query)
    context = context_of(request)
    view = await context.store.tasks.get(tenant_of(request), id_of(request, "task"))
    if view is None:
        raise NotFoundError("no such task")
    if view.task is None:
        raise FaultyDefinitionError(view.id, view.fault or "unreadable")
    slots = preview(view.task.plan, view.id, after or await context.store.now(), count)
    return answer(preview_document(slots, saved=True, spread=view.task.plan.spread_seconds > 0))


async def preview_definition(request: web.Request) -> web.Response:
    """Of an unsaved definition; of its fields only the schedule is required."""
    query = query_of(request, ("count", "after"))
    count, after = whole_number(query, "count", SLOTS, MAX_SLOTS), _after(query)
    definition = read_definition({**_STANDS_FOR_REST, **await read_object(request)})
    context = context_of(request)
    now = await context.store.now()
    plan = definition.plan_at(now)
    slots = preview(plan, context.ids.new(), after or now, count)
    return answer(preview_document(slots, saved=False, spread=plan.spread_seconds > 0))


def _after(query: dict[str, str]) -> datetime | None:
    if "after" not in query:
        return None
    try:
        after = parse_timestamp(query["after"])
    except ValueError as error:
        raise FieldError("after", f"{error} (in a URL, + is written %2B)") from None
    if not EARLIEST <= after < LATEST:
        raise FieldError("after", "must lie between 1970 and 2200")
    return after


ROUTES: Final = (
    web.get("/v1/tasks/{id}/preview", preview_task),
    web.post("/v1/preview", preview_definition),
)
