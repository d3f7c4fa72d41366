"""Errors as the API answers them: problem documents (RFC 9457) that show nothing of the inside."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web  # noqa: TID251 - this app serves HTTP

from tocsin.common.errors import (
    ConflictError,
    FaultyDefinitionError,
    FieldError,
    NotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TocsinError,
)
from tocsin.common.tasks import KeyReusedError

CONTENT_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 2
"""`Retry-After` of a 503: a failover takes longer, a restarted connection does not."""

_MAX_ERRORS = 50


class InvalidError(TocsinError):
    """A request breaks rules: each with the path of its field."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)[:_MAX_ERRORS]
        super().__init__("; ".join(str(error) for error in self.errors))


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818 - the RFC's word
    """One answer that is an error. `kind` ends the problem's type, `urn:tocsin:problem:<kind>`."""

    status: int
    kind: str
    detail: str
    errors: tuple[FieldError, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self, request_id: str) -> web.Response:
        document: dict[str, object] = {
            "type": f"urn:tocsin:problem:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
        }
        if self.errors:
            document["errors"] = [{"field": error.field, "rule": error.rule} for error in self.errors]
        return web.Response(
            status=self.status,
            body=json.dumps(document).encode(),
            headers={**self.headers, hdrs.CONTENT_TYPE: CONTENT_TYPE},
        )


def unauthorized() -> Problem:
    return Problem(
        401,
        "unauthorized",
        "give a valid API key as `Authorization: Bearer tocsin_...`",
        headers={hdrs.WWW_AUTHENTICATE: 'Bearer realm="tocsin"'},
    )


def not_json(rule: str) -> Problem:
    return Problem(400, "not-json", f"the request's content {rule}")


def too_large(limit: int) -> Problem:
    return Problem(413, "too-large", f"the request's content must not exceed {limit:,} bytes")


def problem_of(error: Exception) -> Problem:
    """What a client is told of an error; of one that was not foreseen, nothing but that it happened."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, web.HTTPException):
        return _of_http(error)
    if isinstance(error, StoreUnavailableError):
        return _of_store(error)
    return _of_refusal(error) or Problem(500, "internal", "an error on our side; it was logged under this request id")


def _of_refusal(error: Exception) -> Problem | None:
    problem = None
    match error:
        case InvalidError(errors=errors):
            problem = Problem(422, "invalid", "some fields break a rule; see errors", errors)
        case FieldError():
            problem = Problem(422, "invalid", "a field breaks a rule; see errors", (error,))
        case KeyReusedError():
            problem = Problem(422, "idempotency-key-reused", str(error))
        case NotFoundError():
            problem = Problem(404, "not-found", str(error))
        case ConflictError():
            problem = Problem(409, "conflict", str(error))
        case FaultyDefinitionError(reason=reason):
            detail = f"the stored definition cannot be read ({reason}): mend it by a PATCH, or delete the task"
            problem = Problem(409, "faulty-definition", detail)
    return problem


def _of_store(error: StoreUnavailableError) -> Problem:
    headers = {"Retry-After": str(RETRY_SECONDS)}
    if isinstance(error, OutcomeUnknownError):
        detail = (
            "the database's answer was lost: the request may or may not have taken effect. Look before you"
            " repeat it, or repeat a create that had an Idempotency-Key with the same key"
        )
        return Problem(503, "outcome-unknown", detail, headers=headers)
    detail = "the database does not answer; the request did not take effect"
    return Problem(503, "unavailable", detail, headers=headers)


def _of_http(error: web.HTTPException) -> Problem:
    kept = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    phrase = HTTPStatus(error.status).phrase
    details = {404: "there is nothing at this path", 405: "this path does not take this method"}
    return Problem(
        error.status,
        phrase.lower().replace(" ", "-"),
        details.get(error.status, phrase.lower()),
        headers=kept,
    )
