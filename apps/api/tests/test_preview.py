"""The slots to come, with what a change of the clocks does to them."""

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from api_client import Client, Connection, definition


async def preview(client: Client, document: Any, query: str) -> Any:
    answer = await client.call("POST", f"/v1/preview?{query}", document)
    assert answer.status == 200, answer.text
    return answer.document["slots"]


def new_york(cron: str, **more: Any) -> dict[str, Any]:
    return {"schedule": {"cron": cron, "zone": "America/New_York"}, **more}


async def test_a_gap_shifts(client: Client) -> None:
    slots = await preview(client, new_york("30 2 * * *"), "count=2&after=2025-03-08T17:00:00Z")
    assert [(slot["scheduled_for"], slot["local"], slot["effect"]) for slot in slots] == [
        ("2025-03-09T07:00:00Z", "2025-03-09T03:00:00-04:00", "gap_shifted"),
        ("2025-03-10T06:30:00Z", "2025-03-10T02:30:00-04:00", None),
    ]


async def test_a_gap_skips_where_asked(client: Client) -> None:
    document = new_york("30 2 * * *", dst_gap="skip")
    slots = await preview(client, document, "count=2&after=2025-03-08T17:00:00Z")
    assert [(slot["scheduled_for"], slot["due_at"], slot["effect"]) for slot in slots] == [
        (None, None, "gap_skipped"),
        ("2025-03-10T06:30:00Z", "2025-03-10T06:30:00Z", None),
    ]


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("first", ["2025-11-02T05:30:00Z"]),
        ("last", ["2025-11-02T06:30:00Z"]),
        ("both", ["2025-11-02T05:30:00Z", "2025-11-02T06:30:00Z"]),
    ],
)
async def test_a_fold_is_shown(client: Client, fold: str, expected: list[str]) -> None:
    document = new_york("30 1 * * *", dst_fold=fold)
    after = quote("2025-11-01T12:00:00-04:00")
    slots = await preview(client, document, f"count={len(expected)}&after={after}")
    assert [slot["scheduled_for"] for slot in slots] == expected
    assert all(slot["effect"].startswith("fold_") for slot in slots)


async def test_a_tasks_preview_shows_its_spread(client: Client) -> None:
    created = (await client.create(schedule={"every_seconds": 3600}, spread_seconds=600)).document
    answer = await client.call("GET", f"/v1/tasks/{created['id']}/preview?count=3")
    slots = answer.document["slots"]
    assert len(slots) == 3
    assert {key: slots[0][key] for key in ("scheduled_for", "due_at")} == created["next"]
    scheduled_for, due_at = (datetime.fromisoformat(slots[0][at]) for at in ("scheduled_for", "due_at"))
    assert scheduled_for <= due_at <= scheduled_for + timedelta(seconds=600)


async def test_an_unsaved_spread_is_not_known(client: Client) -> None:
    (slot,) = await preview(client, {"schedule": {"cron": "@daily"}, "spread_seconds": 60}, "count=1")
    assert slot["scheduled_for"] is not None
    assert slot["due_at"] is None


async def test_a_whole_definition_may_be_previewed_and_is_not_stored(client: Client, sql: Connection) -> None:
    slots = await preview(client, definition(), "")
    assert len(slots) == 10
    assert await sql.fetchval("select count(*) from tasks") == 0


async def test_an_ended_schedule_has_no_slots(client: Client) -> None:
    document = {"schedule": {"cron": "@daily"}, "end": "2026-01-01T00:00:00Z"}
    assert await preview(client, document, "") == []


@pytest.mark.parametrize(
    ("query", "document", "field"),
    [
        ("count=0", {"schedule": {"cron": "@daily"}}, "count"),
        ("count=101", {"schedule": {"cron": "@daily"}}, "count"),
        ("after=now", {"schedule": {"cron": "@daily"}}, "after"),
        ("after=2026-01-01T00:00:00+01:00", {"schedule": {"cron": "@daily"}}, "after"),
        ("after=1969-01-01T00:00:00Z", {"schedule": {"cron": "@daily"}}, "after"),
        ("after=9999-12-31T23:59:59Z", {"schedule": {"cron": "@daily"}}, "after"),
        ("n=5", {"schedule": {"cron": "@daily"}}, "n"),
        ("", {}, "schedule"),
        ("", {"schedule": {"cron": "R R * * *"}}, "schedule.cron"),
        ("", {"schedule": {"cron": "@daily"}, "name": ""}, "name"),
        ("", {"schedule": {"cron": "@daily"}, "count": 5}, "count"),
    ],
)
async def test_refused_previews(client: Client, query: str, document: Any, field: str) -> None:
    answer = await client.call("POST", f"/v1/preview?{query}", document)
    assert (answer.status, answer.fields) == (422, [field])


async def test_the_same_text_gives_the_same_preview(client: Client) -> None:
    document = {"schedule": {"cron": "*/7 3-5 * * MON#1"}}
    shown = [await preview(client, document, "after=2026-01-01T00:00:00Z") for _ in range(5)]
    assert all(slots == shown[0] for slots in shown)
