"""A stored definition that cannot be read whole: put in by hand, or by a version with other rules. What can be read of
it is, so that its tenant can mend the rest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from tocsin.common.models import EARLIEST, AtSchedule, CallSpec, PlanSpec
from tocsin.common.store.rows import Task

_Model = TypeVar("_Model", bound=BaseModel)

NO_SCHEDULE: Final = AtSchedule(at=EARLIEST)
"""Stands for a schedule that cannot be read: it has no slot that could be accounted for."""

_NO_URL: Final = "http://unreadable.invalid/"
_LATER: Final = "end"
"""The field that the one rule over several fields is about: a plan's end lies after its start."""


@dataclass(frozen=True, slots=True)
class FaultyTask:
    """`task` has a default, `NO_SCHEDULE` or an address of nowhere in the place of each field that `faults` names,
    with the reason why it cannot be read. Fields that this version does not know are left out of both."""

    task: Task
    faults: Mapping[str, str]


def readable_plan(text: str) -> tuple[PlanSpec, dict[str, str]]:
    """A stored plan as far as it can be read, and why the rest cannot."""
    return _readable(PlanSpec, text, "schedule", NO_SCHEDULE.model_dump(mode="json"))


def readable_call(text: str) -> tuple[CallSpec, dict[str, str]]:
    """A stored call as far as it can be read, and why the rest cannot."""
    return _readable(CallSpec, text, "url", _NO_URL)


def _readable(model: type[_Model], text: str, required: str, stand_in: Any) -> tuple[_Model, dict[str, str]]:
    given = _object(text)
    faults: dict[str, str] = {}
    while True:
        try:
            return model.model_validate(given), faults
        except ValidationError as error:
            for found in error.errors(include_url=False, include_input=False):
                field = str(found["loc"][0]) if found["loc"] else _LATER
                given.pop(field, None)
                if field in model.model_fields:
                    faults[field] = found["msg"].removeprefix("Value error, ")
            if required in faults:
                given[required] = stand_in


def _object(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):  # a number too long, or too deep a nesting: JSON it is
        return {}
    return given if isinstance(given, dict) else {}
