"""A task's definition as JSON: read into what is stored, and shown again.

The rules of the fields are those of `tocsin.common.models`; here is only what JSON looks like:
the schedule without a `kind`, the priority by name, timestamps as RFC 3339, the call under `request`.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from tocsin.api.json_text import Raw, decode, encode, join
from tocsin.api.problems import InvalidError, Problem
from tocsin.api.timestamps import parse_timestamp
from tocsin.common.errors import FieldError
from tocsin.common.models import (
    EARLIEST,
    AtSchedule,
    CallSpec,
    CronSchedule,
    EverySchedule,
    PlanSpec,
    Priority,
)
from tocsin.common.store.faulty import FaultyTask
from tocsin.common.store.rows import Task

MAX_BODY_BYTES: Final = 256 * 1024
MAX_NAME: Final = 200

_SCHEDULES: Final[Mapping[str, type[CronSchedule | EverySchedule | AtSchedule]]] = {
    "cron": CronSchedule,
    "every_seconds": EverySchedule,
    "at": AtSchedule,
}
_PLAN: Final = frozenset(PlanSpec.model_fields) - {"schedule"}
_REQUEST: Final = ("url", "method", "headers")
_CALL: Final = frozenset(CallSpec.model_fields) - {*_REQUEST, "json_body"}
_FIELDS: Final = frozenset({"name", "schedule", "request"}) | _PLAN | _CALL
_INSTANTS: Final = ("start", "end", "at", "anchor")
_PRIORITIES: Final = {priority.name.lower(): priority for priority in Priority}
_UNKNOWN: Final = "is not a known field"
_REQUIRED: Final = "is required"

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition that keeps every rule that can be checked without knowing the time."""

    name: str
    plan: PlanSpec
    call: CallSpec
    body: bytes | None
    anchored: bool

    def plan_at(self, now: datetime, before: PlanSpec | None = None) -> PlanSpec:
        """The plan as it is stored at `now`: an interval without an anchor is anchored at that second.

        `before` is the plan that this one replaces; a past `at` that is its own may stay.

        Raises:
            FieldError: `at` is not in the future.
        """
        if not self.anchored:
            anchored = self.plan.schedule.model_copy(update={"anchor": now.replace(microsecond=0)})
            return self.plan.model_copy(update={"schedule": anchored})
        schedule = self.plan.schedule
        kept = before is not None and before.schedule == schedule
        if isinstance(schedule, AtSchedule) and schedule.at <= now and not kept:
            raise FieldError("schedule.at", "must lie in the future")
        return self.plan


def read_definition(document: Mapping[str, Any]) -> Definition:
    """What a JSON object defines.

    Raises:
        InvalidError: every rule that it breaks.
    """
    reader = _Reader()
    reader.refuse_unknown(document, _FIELDS, "")
    name = reader.name(document)
    schedule, anchored = reader.schedule(document.get("schedule"))
    values = {field: document[field] for field in _PLAN if field in document}
    plan = reader.plan(schedule, values)
    call, body = reader.call(document)
    if reader.errors or plan is None or call is None:
        raise InvalidError(reader.errors)
    return Definition(name, plan, call, body, anchored)


def definition_document(task: Task, *, for_patch: bool = False, with_body: bool = True) -> dict[str, Any]:
    """The definition of a task as `read_definition` reads it, defaults included.

    `for_patch`: a JSON body as a value; else as the text it is stored as.
    """
    plan = task.plan.model_dump(mode="json")
    call = task.call.model_dump(mode="json")
    request: dict[str, Any] = {field: call[field] for field in _REQUEST}
    if task.body is not None and with_body:
        text = task.body.decode("utf-8", "replace")
        value = _json_value(task)
        if value is None:
            request["body"] = text
        else:
            request["json"] = value.value if for_patch else Raw(text)
    return {
        "name": task.name,
        "schedule": {field: value for field, value in plan["schedule"].items() if field != "kind"},
        "request": request,
        **{field: call[field] for field in CallSpec.model_fields if field in _CALL},
        **{field: plan[field] for field in PlanSpec.model_fields if field in _PLAN},
        "priority": task.plan.priority.name.lower(),
    }


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any


def _json_value(task: Task) -> _Value | None:
    """The body as a JSON value, if it was given as one and still is one: a row put in by hand may say so wrongly."""
    if not task.call.json_body or task.body is None:
        return None
    try:
        return _Value(decode(task.body))
    except (InvalidError, Problem):
        return None


def mended_definition(faulty: FaultyTask, patch: Mapping[str, Any]) -> Definition:
    """A definition of which a part cannot be read, once a merge patch has replaced that part: with a value, or with
    null for its default.

    Raises:
        InvalidError: the patch leaves such a part as it is, or breaks a rule.
    """
    document = definition_document(faulty.task, for_patch=True)
    given = patch.get("request")
    left = []
    for field, reason in faulty.faults.items():
        of_request = field in _REQUEST or field == "json_body"
        names = ("body", "json") if field == "json_body" else (field,)
        for name in names:
            (document["request"] if of_request else document).pop(name, None)
        mending = given if of_request and isinstance(given, dict) else patch
        if not any(name in mending for name in names):
            path = f"request.{names[0]}" if of_request else field
            left.append(FieldError(path, f"cannot be read as it is stored, so it must be given anew: {reason}"))
    if left:
        raise InvalidError(left)
    return read_definition(merge_patch(document, patch))


def merge_patch(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7396): null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


class _Reader:
    """Reads the parts of a definition and gathers every error, so that a client can mend them all at once."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def refuse(self, field: str, rule: str) -> None:
        self.errors.append(FieldError(field, rule))

    def refuse_unknown(self, document: Mapping[str, Any], known: Iterable[str], path: str) -> None:
        for field in document:
            if field not in known:
                self.refuse(join(path, field), _UNKNOWN)

    def name(self, document: Mapping[str, Any]) -> str:
        name = document.get("name")
        if name is None:
            self.refuse("name", _REQUIRED)
        elif not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME:
            self.refuse("name", f"must be a text of 1 to {MAX_NAME} characters")
        elif any(unicodedata.category(character) == "Cc" for character in name):
            self.refuse("name", "must not contain control characters")
        else:
            return name
        return ""

    def schedule(self, value: Any) -> tuple[CronSchedule | EverySchedule | AtSchedule, bool]:
        """The schedule, and whether it has all that it needs: False for an interval without an anchor."""
        placeholder = AtSchedule(at=EARLIEST)
        if value is None:
            self.refuse("schedule", _REQUIRED)
            return placeholder, True
        found = [field for field in _SCHEDULES if field in value] if isinstance(value, dict) else []
        if len(found) != 1:
            self.refuse(
                "schedule",
                "must be an object with exactly one of cron, every_seconds and at (a merge patch removes one by null)",
            )
            return placeholder, True
        anchored = found[0] != "every_seconds" or value.get("anchor") is not None
        values = self._instants(value if anchored else {**value, "anchor": "1970-01-01T00:00:00Z"}, "schedule")
        self.refuse_unknown(value, set(_SCHEDULES[found[0]].model_fields) - {"kind"}, "schedule")
        values = {field: item for field, item in values.items() if field in _SCHEDULES[found[0]].model_fields}
        values.pop("kind", None)
        return self._validate(_SCHEDULES[found[0]], values, "schedule") or placeholder, anchored

    def plan(self, schedule: CronSchedule | EverySchedule | AtSchedule, given: Mapping[str, Any]) -> PlanSpec | None:
        values = self._instants(given, "")
        if "priority" in values:
            name = values.pop("priority")
            priority = _PRIORITIES.get(name) if isinstance(name, str) else None
            if priority is None:
                self.refuse("priority", f"must be one of {', '.join(_PRIORITIES)}")
            else:
                values["priority"] = priority
        return self._validate(PlanSpec, {**values, "schedule": schedule}, "")

    def call(self, document: Mapping[str, Any]) -> tuple[CallSpec | None, bytes | None]:
        request = document.get("request")
        if not isinstance(request, dict):
            self.refuse("request", _REQUIRED if request is None else "must be an object")
            return None, None
        self.refuse_unknown(request, (*_REQUEST, "body", "json"), "request")
        body = self._body(request)
        values = {field: document[field] for field in _CALL if field in document}
        values |= {field: request[field] for field in _REQUEST if field in request}
        return self._validate(CallSpec, {**values, "json_body": "json" in request}, ""), body

    def _body(self, request: Mapping[str, Any]) -> bytes | None:
        if "json" in request and "body" in request:
            self.refuse("request.body", "must not be given beside json (a merge patch removes one by null)")
            return None
        field = "request.json" if "json" in request else "request.body"
        text: Any = encode(request["json"]) if "json" in request else request.get("body")
        if text is None:
            return None
        if not isinstance(text, str):
            self.refuse(field, "must be a text; a JSON value belongs into json")
            return None
        body = text.encode()
        if len(body) > MAX_BODY_BYTES:
            self.refuse(field, f"must not exceed {MAX_BODY_BYTES:,} bytes")
        return body

    def _instants(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Timestamps parsed by our own rules: pydantic would take numbers and other forms too."""
        read = dict(values)
        for field in _INSTANTS:
            if read.get(field) is not None:
                try:
                    read[field] = parse_timestamp(read[field])
                except ValueError as error:
                    self.refuse(join(path, field), str(error))
                    read[field] = EARLIEST if path else None
        return read

    def _validate(self, model: type[Model], values: Mapping[str, Any], path: str) -> Model | None:
        try:
            return model.model_validate(values)
        except ValidationError as error:
            for found in error.errors(include_url=False, include_input=False):
                self.refuse(*_field_and_rule(found["loc"], found["type"], found["msg"], path))
        return None


def _field_and_rule(location: tuple[int | str, ...], kind: str, message: str, path: str) -> tuple[str, str]:
    if not location:
        path = path or "end"  # the one rule over several fields: end lies after start
    elif location[0] in _REQUEST:
        path = "request"
    for step in location:
        path = join(path, step)
    if kind == "extra_forbidden":
        return path, _UNKNOWN
    if kind == "missing":
        return path, _REQUIRED
    rule = message.removeprefix("Value error, ").replace("Input should", "must")
    return path, rule
