"""What can be read of a stored definition that cannot be read whole."""

import json

import pytest

from tocsin.common.models import CallSpec, Misfire, PlanSpec, Priority, RetrySpec
from tocsin.common.store.faulty import NO_SCHEDULE, readable_call, readable_plan

PLAN = {
    "schedule": {"kind": "cron", "cron": "0 9 * * *", "zone": "UTC"},
    "misfire": "fire_all",
    "priority": 1,
    "spread_seconds": 60,
}
CALL = {"url": "https://example.com/hook", "headers": {"X-Mine": "1"}, "retry": {"max_attempts": 7}}


def test_what_can_be_read_whole_is() -> None:
    assert readable_plan(json.dumps(PLAN)) == (PlanSpec.model_validate(PLAN), {})
    assert readable_call(json.dumps(CALL)) == (CallSpec.model_validate(CALL), {})


def test_each_field_is_read_by_itself() -> None:
    plan, faults = readable_plan(json.dumps(PLAN | {"schedule": {"kind": "moon"}, "spread_seconds": -1, "new": 1}))
    assert set(faults) == {"schedule", "spread_seconds"}
    assert (plan.schedule, plan.misfire, plan.priority) == (NO_SCHEDULE, Misfire.FIRE_ALL, Priority.HIGH)
    assert plan.spread_seconds == 0
    call, faults = readable_call(json.dumps(CALL | {"url": "ftp://x", "retry": {"max_attempts": 0}}))
    assert faults["url"] == "the URL must begin with http:// or https://"
    assert (set(faults), call.headers, call.retry) == ({"url", "retry"}, {"X-Mine": "1"}, RetrySpec())


def test_the_rule_over_two_fields_leaves_the_first() -> None:
    bounds = {"start": "2031-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z"}
    plan, faults = readable_plan(json.dumps(PLAN | bounds))
    assert faults == {"end": "end must be later than start"}
    assert (plan.start is None, plan.end) == (False, None)


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "null", "7", '"text"', '{"a":' * 100_000 + "1" + "}" * 100_000, '{"schedule": ' + "1" * 5_000 + "}"],
    ids=["empty", "list", "null", "number", "text", "deep", "long"],
)
def test_what_is_no_definition_at_all_lacks_what_is_required(text: str) -> None:
    assert readable_plan(text)[0] == PlanSpec(schedule=NO_SCHEDULE)
    assert set(readable_plan(text)[1]) == {"schedule"}
    assert set(readable_call(text)[1]) == {"url"}
