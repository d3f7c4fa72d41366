"""What a request's handler has at hand, and how it reads the request."""

import asyncio
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from aiohttp import hdrs, web  # noqa: TID251 - this app serves HTTP

from tocsin.api.auth import KeyFinder, Keys
from tocsin.api.json_text import decode, encode, join
from tocsin.api.notifier import Notifier
from tocsin.api.problems import InvalidError, Problem, not_json
from tocsin.common.errors import FieldError, NotFoundError
from tocsin.common.ids import Ids
from tocsin.common.store.ports import TaskStore
from tocsin.common.tasks import Tasks

MAX_REQUEST_BYTES: Final = 1024 * 1024
READ_SECONDS: Final = 30.0
"""How long a client may take to send its content."""

_INTEGER = re.compile(r"[0-9]{1,9}")


class Store(Protocol):
    """What of the store the API needs."""

    @property
    def tasks(self) -> TaskStore: ...
    @property
    def tenants(self) -> KeyFinder: ...
    async def now(self) -> datetime:
        """The database's time."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    store: Store
    writes: Tasks
    keys: Keys
    ids: Ids
    notifier: Notifier


CONTEXT: Final = web.AppKey("context", Context)
TENANT: Final = web.RequestKey("tenant", UUID)


def context_of(request: web.Request) -> Context:
    return request.app[CONTEXT]


def tenant_of(request: web.Request) -> UUID:
    return request[TENANT]


def id_of(request: web.Request, what: str) -> UUID:
    """The id in the path.

    Raises:
        NotFoundError: it has not the form of one.
    """
    text = request.match_info["id"]
    try:
        found = UUID(text)
    except ValueError:
        found = None
    if found is None or str(found) != text.lower():
        raise NotFoundError(f"no such {what}")
    return found


def answer(document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=encode(document).encode(), content_type="application/json", headers=headers)


async def read_object(
    request: web.Request, media_types: Collection[str] = ("application/json",), *, empty: bool = False
) -> dict[str, Any]:
    """The JSON object in the request; with `empty`, no content counts as one without fields.

    Raises:
        Problem: it is not JSON, not of these types, too large, or did not come in time.
        InvalidError: it is no object, or something in it is refused.
    """
    _check_coding(request)
    try:
        async with asyncio.timeout(READ_SECONDS):
            data = await request.read()
    except TimeoutError:
        raise Problem(408, "too-slow", f"the content did not come within {READ_SECONDS:.0f} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise Problem(400, "broken-content", "the request's content did not come whole") from error
    if not data:
        if empty:
            return {}
        raise not_json("must not be empty")
    _check_type(request, media_types)
    document = decode(data)
    if not isinstance(document, dict):
        raise InvalidError([FieldError("(document)", "must be a JSON object")])
    return document


def refuse_unknown(given: Collection[str], known: Collection[str]) -> None:
    """Raises:
    InvalidError: one of the given names is not known.
    """
    unknown = [FieldError(join("", name), "is not a known field") for name in given if name not in known]
    if unknown:
        raise InvalidError(unknown)


def query_of(request: web.Request, known: Collection[str]) -> dict[str, str]:
    """The parameters of the query, each given once.

    Raises:
        InvalidError: one is unknown or given twice.
    """
    query = request.query
    refuse_unknown(query, known)
    twice = [FieldError(name, "must be given once") for name in set(query) if len(query.getall(name)) > 1]
    if twice:
        raise InvalidError(twice)
    return dict(query)


def whole_number(query: dict[str, str], name: str, default: int, highest: int) -> int:
    """A parameter from 1 to `highest`.

    Raises:
        FieldError: it is not.
    """
    if name not in query:
        return default
    number = int(query[name]) if _INTEGER.fullmatch(query[name]) else 0
    if not 1 <= number <= highest:
        raise FieldError(name, f"must be a whole number from 1 to {highest}")
    return number


def _check_coding(request: web.Request) -> None:
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise Problem(415, "unsupported-coding", "the content must not be compressed")


def _check_type(request: web.Request, media_types: Collection[str]) -> None:
    given = request.headers.get(hdrs.CONTENT_TYPE)
    if given is None:
        return
    media_type, _, parameters = given.lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    if media_type.strip() not in media_types or charset not in ("", "charset=utf-8"):
        wanted = " or ".join(media_types)
        raise Problem(415, "unsupported-type", f"the content must be {wanted}, in UTF-8")
