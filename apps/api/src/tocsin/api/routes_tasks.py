"""`/v1/tasks`, and what a task's owner does to it."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from aiohttp import web  # noqa: TID251 - this app serves HTTP

from tocsin.api.context import (
    Context,
    answer,
    context_of,
    id_of,
    query_of,
    read_object,
    refuse_unknown,
    tenant_of,
    whole_number,
)
from tocsin.api.cursors import decode_cursor, encode_cursor
from tocsin.api.definitions import (
    Definition,
    definition_document,
    mended_definition,
    merge_patch,
    read_definition,
)
from tocsin.api.json_text import encode
from tocsin.api.timestamps import format_timestamp
from tocsin.api.views import run_summary_document, task_document
from tocsin.common.errors import FieldError, NotFoundError, StoreUnavailableError
from tocsin.common.models import PlanSpec, TaskState
from tocsin.common.store.faulty import FaultyTask
from tocsin.common.store.rows import Task
from tocsin.common.tasks import Created, Idempotency, NewTask

PAGE: Final = 50
MAX_PAGE: Final = 100
MAX_IDEMPOTENCY_KEY: Final = 255
PATCH_TYPES: Final = ("application/merge-patch+json", "application/json")


async def create_task(request: web.Request) -> web.Response:
    """201 with the task; with an Idempotency-Key used before for the same request, with the task of then."""
    context, tenant_id = context_of(request), tenant_of(request)
    query_of(request, ())
    document = await read_object(request)
    idempotency = _idempotency(request, document)
    definition = read_definition(document)
    new = NewTask(definition.name, definition.plan_at, definition.call, definition.body)
    created = await context.writes.create(tenant_id, new, idempotency)
    headers = {"Location": f"/v1/tasks/{created.task_id}"}
    if created.replayed:
        headers["Idempotency-Replayed"] = "true"
    return answer(await _created_document(context, tenant_id, created), status=201, headers=headers)


async def list_tasks(request: web.Request) -> web.Response:
    """A page of the tenant's tasks, newest first, without their bodies."""
    tenant_id = tenant_of(request)
    query = query_of(request, ("limit", "cursor"))
    limit = whole_number(query, "limit", PAGE, MAX_PAGE)
    before = decode_cursor(query["cursor"], "tasks", tenant_id) if "cursor" in query else None
    found = await context_of(request).store.tasks.listing(tenant_id, before, limit + 1)
    page = found[:limit]
    more = len(found) > limit
    return answer(
        {
            "tasks": [task_document(view, with_body=False) for view in page],
            "next_cursor": encode_cursor(page[-1].id, "tasks", tenant_id) if more else None,
        }
    )


async def get_task(request: web.Request) -> web.Response:
    query_of(request, ())
    return answer(await _document(context_of(request), tenant_of(request), id_of(request, "task")))


async def patch_task(request: web.Request) -> web.Response:
    """A merge patch (RFC 7396) over the definition as GET shows it; of one that cannot be read, over what can."""
    context, tenant_id, task_id = context_of(request), tenant_of(request), id_of(request, "task")
    query_of(request, ())
    patch = await read_object(request, PATCH_TYPES)

    def change(task: Task, now: datetime) -> Task:
        definition = read_definition(merge_patch(definition_document(task, for_patch=True), patch))
        return _defined(task, definition, definition.plan_at(now, task.plan))

    def mend(faulty: FaultyTask, now: datetime) -> Task:
        definition = mended_definition(faulty, patch)
        before = None if "schedule" in faulty.faults else faulty.task.plan
        return _defined(faulty.task, definition, definition.plan_at(now, before))

    await context.writes.edit(tenant_id, task_id, change, mend)
    return answer(await _document(context, tenant_id, task_id))


def _defined(task: Task, definition: Definition, plan: PlanSpec) -> Task:
    return replace(task, name=definition.name, plan=plan, call=definition.call, body=definition.body)


async def delete_task(request: web.Request) -> web.Response:
    query_of(request, ())
    await context_of(request).writes.delete(tenant_of(request), id_of(request, "task"))
    return web.Response(status=204)


async def pause_task(request: web.Request) -> web.Response:
    return await _act(request, context_of(request).writes.pause)


async def resume_task(request: web.Request) -> web.Response:
    return await _act(request, context_of(request).writes.resume)


async def skip_next(request: web.Request) -> web.Response:
    """Skips the next slot; says which it was, and the task as it then is."""
    context, tenant_id, task_id = context_of(request), tenant_of(request), id_of(request, "task")
    await _no_fields(request)
    skipped = await context.writes.skip_next(tenant_id, task_id)
    document = await _document(context, tenant_id, task_id)
    return answer({"skipped": format_timestamp(skipped), "task": document})


async def run_now(request: web.Request) -> web.Response:
    """202 with the id of a run that is due at once. `ignore_overlap`: whatever else of the task runs."""
    query_of(request, ())
    fields = await read_object(request, empty=True)
    refuse_unknown(fields, ("ignore_overlap",))
    force = fields.get("ignore_overlap", False)
    if not isinstance(force, bool):
        raise FieldError("ignore_overlap", "must be true or false")
    run_id = await context_of(request).writes.run_now(tenant_of(request), id_of(request, "task"), force=force)
    return answer({"run_id": str(run_id)}, status=202, headers={"Location": f"/v1/runs/{run_id}"})


async def list_runs(request: web.Request) -> web.Response:
    """A page of a task's runs, the last planted first, the next row among them; of a deleted task too."""
    context, tenant_id, task_id = context_of(request), tenant_of(request), id_of(request, "task")
    query = query_of(request, ("limit", "cursor"))
    limit = whole_number(query, "limit", PAGE, MAX_PAGE)
    before = decode_cursor(query["cursor"], "runs", tenant_id, task_id) if "cursor" in query else None
    found = await context.store.tasks.runs(tenant_id, task_id, before, limit + 1)
    if not found and await context.store.tasks.get(tenant_id, task_id) is None:
        raise NotFoundError("no such task")
    page = found[:limit]
    more = len(found) > limit
    return answer(
        {
            "runs": [run_summary_document(run) for run in page],
            "next_cursor": encode_cursor(page[-1].run_id, "runs", tenant_id, task_id) if more else None,
        }
    )


async def _act(request: web.Request, act: Callable[[UUID, UUID], Awaitable[Task]]) -> web.Response:
    task_id = id_of(request, "task")
    await _no_fields(request)
    await act(tenant_of(request), task_id)
    return answer(await _document(context_of(request), tenant_of(request), task_id))


async def _no_fields(request: web.Request) -> None:
    query_of(request, ())
    refuse_unknown(await read_object(request, empty=True), ())


async def _document(context: Context, tenant_id: UUID, task_id: UUID) -> dict[str, Any]:
    view = await context.store.tasks.get(tenant_id, task_id)
    if view is None:
        raise NotFoundError("no such task")
    return task_document(view)


async def _created_document(context: Context, tenant_id: UUID, created: Created) -> dict[str, Any]:
    """The task; its id alone where it cannot be read now: it exists, and an error would deny that."""
    try:
        return await _document(context, tenant_id, created.task_id)
    except StoreUnavailableError:
        return {"id": str(created.task_id)}
    except NotFoundError:
        return {"id": str(created.task_id), "state": TaskState.DELETED}


def _idempotency(request: web.Request, document: dict[str, Any]) -> Idempotency | None:
    given = request.headers.getall("Idempotency-Key", [])
    if not given:
        return None
    key = given[0]
    if len(given) > 1 or not 1 <= len(key) <= MAX_IDEMPOTENCY_KEY or not key.isascii() or not key.isprintable():
        raise FieldError(
            "Idempotency-Key", f"must be given once, as 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters"
        )
    return Idempotency(key, hashlib.sha256(encode(document, sort_keys=True).encode()).digest())


ROUTES: Final = (
    web.post("/v1/tasks", create_task),
    web.get("/v1/tasks", list_tasks),
    web.get("/v1/tasks/{id}", get_task),
    web.patch("/v1/tasks/{id}", patch_task),
    web.delete("/v1/tasks/{id}", delete_task),
    web.post("/v1/tasks/{id}/pause", pause_task),
    web.post("/v1/tasks/{id}/resume", resume_task),
    web.post("/v1/tasks/{id}/run-now", run_now),
    web.post("/v1/tasks/{id}/skip-next", skip_next),
    web.get("/v1/tasks/{id}/runs", list_runs),
)
