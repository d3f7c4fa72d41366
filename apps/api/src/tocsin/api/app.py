"""The application: routes, and what holds for every request."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import hdrs, web  # noqa: TID251 - this app serves HTTP
from aiohttp.typedefs import Handler

from tocsin.api import routes_health, routes_preview, routes_runs, routes_tasks
from tocsin.api.auth import Keys, authenticate
from tocsin.api.context import CONTEXT, MAX_REQUEST_BYTES, TENANT, Context, Store
from tocsin.api.notifier import Notifier
from tocsin.api.problems import Problem, problem_of, too_large
from tocsin.common.clock import Clock
from tocsin.common.ids import Ids
from tocsin.common.tasks import Tasks

REQUEST_ID: Final = web.RequestKey("request_id", str)
REQUEST_ID_HEADER: Final = "X-Request-Id"
FLUSH_SECONDS: Final = 1.0

_OPEN: Final = frozenset(route.handler for route in routes_health.ROUTES)

log = logging.getLogger(__name__)


def create_app(store: Store, clock: Clock, ids: Ids) -> web.Application:
    """The API over a store. All but the open routes ask for a key; unknown paths under `/v1/` too."""
    notifier = Notifier(store.tasks.notify, clock)
    context = Context(
        store=store,
        writes=Tasks(store.tasks, ids.separate(), notifier.wake),
        keys=Keys(store.tenants, clock),
        ids=ids,
        notifier=notifier,
    )
    app = web.Application(middlewares=[_answer_errors, _ask_for_key], client_max_size=MAX_REQUEST_BYTES)
    app[CONTEXT] = context
    app.cleanup_ctx.append(_notifying)
    for routes in (routes_health, routes_tasks, routes_runs, routes_preview):
        app.router.add_routes(routes.ROUTES)
    return app


def finish(response: web.StreamResponse, request_id: str) -> None:
    """The headers of every answer."""
    response.headers[REQUEST_ID_HEADER] = request_id
    response.headers[hdrs.SERVER] = "tocsin"
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    request_id = str(request.app[CONTEXT].ids.new())
    request[REQUEST_ID] = request_id
    response: web.StreamResponse
    try:
        response = await handler(request)
    except web.HTTPRequestEntityTooLarge:
        response = too_large(MAX_REQUEST_BYTES).response(request_id)
    except Exception as error:
        problem = problem_of(error)
        if problem.status >= 500:
            _log_failure(request, request_id, problem, error)
        response = problem.response(request_id)
    finish(response, request_id)
    return response


def _log_failure(request: web.Request, request_id: str, problem: Problem, error: Exception) -> None:
    resource = request.match_info.route.resource
    log.error(
        "request_failed request_id=%s tenant=%s method=%s route=%s status=%d error=%s",
        request_id,
        request.get(TENANT),
        request.method,
        resource.canonical if resource is not None else None,
        problem.status,
        type(error).__name__,
        exc_info=error if problem.status == 500 else None,
    )


@web.middleware
async def _ask_for_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    found = request.match_info.http_exception is None
    if (found or request.path.startswith("/v1/")) and request.match_info.handler not in _OPEN:
        request[TENANT] = await authenticate(request, request.app[CONTEXT].keys)
    return await handler(request)


async def _notifying(app: web.Application) -> AsyncIterator[None]:
    """Sends wake-ups while the application lives, and those that are left when it ends."""
    notifier = app[CONTEXT].notifier
    running = asyncio.create_task(notifier.run(), name="notifier")
    yield
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await notifier.flush(FLUSH_SECONDS)
