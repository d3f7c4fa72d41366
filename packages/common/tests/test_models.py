"""Instants of a definition lie where sums cannot leave what a datetime holds, in whichever zone they are written."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from tocsin.common.models import AtSchedule, CallSpec, EverySchedule, PlanSpec

BEYOND = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z", "2200-01-01T00:00:00Z")


@pytest.mark.parametrize("instant", BEYOND)
def test_an_instant_beyond_the_bounds_is_refused(instant: str) -> None:
    fields = {
        ("start",): {"schedule": {"kind": "cron", "cron": "0 9 * * *"}, "start": instant},
        ("end",): {"schedule": {"kind": "cron", "cron": "0 9 * * *"}, "end": instant},
        ("schedule", "at", "at"): {"schedule": {"kind": "at", "at": instant}},
        ("schedule", "every", "anchor"): {"schedule": {"kind": "every", "every_seconds": 60, "anchor": instant}},
    }
    for place, plan in fields.items():
        with pytest.raises(ValidationError) as refused:
            PlanSpec.model_validate(plan)
        [found] = refused.value.errors()
        assert (found["loc"], found["msg"]) == (place, "Value error, must lie between 1970 and 2200")


def test_an_instant_within_the_bounds_is_taken_in_utc() -> None:
    assert AtSchedule.model_validate({"at": "2199-12-31T23:59:59Z"}).at == datetime(
        2199, 12, 31, 23, 59, 59, tzinfo=UTC
    )
    anchor = EverySchedule.model_validate({"every_seconds": 60, "anchor": "1970-01-01T14:00:00+14:00"}).anchor
    assert (anchor, anchor.tzinfo) == (datetime(1970, 1, 1, tzinfo=UTC), UTC)


def test_a_calls_target_is_worked_out_once_and_is_no_part_of_its_value() -> None:
    call, other = CallSpec(url="https://Example.com:8443/a?b"), CallSpec(url="https://example.com:8443/a?b")
    stored = call.model_dump_json()
    assert (call.target.host, call.target.port, call.target.path_and_query) == ("example.com", 8443, "/a?b")
    assert call.endpoint == "example.com:8443"
    assert call.target is call.target
    assert call == other
    assert hash(call.url) == hash(other.url)
    assert call.model_dump_json() == stored == other.model_dump_json()


def test_a_url_stored_past_its_rules_is_refused_where_it_is_used() -> None:
    call = CallSpec.model_construct(url="ftp://example.com/")
    with pytest.raises(ValueError, match="http"):
        _ = call.target
