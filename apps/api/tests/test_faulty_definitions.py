"""Definitions put in by hand, or by a version with other rules: shown with their fault, and mended by a PATCH."""

from typing import Any

import pytest

from api_client import Client, Connection, definition

HOURLY = {"every_seconds": 3600}
FAULTS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "a cron that never fires": (
        """plan = jsonb_set(plan, '{schedule,cron}', '"0 0 30 2 *"')""",
        {"schedule": HOURLY},
        ["schedule"],
    ),
    "a schedule of an unknown kind": (
        """plan = jsonb_set(plan, '{schedule}', '{"kind": "moon"}')""",
        {"schedule": HOURLY},
        ["schedule"],
    ),
    "an empty plan": ("plan = '{}'", {"schedule": HOURLY}, ["schedule"]),
    "a plan that is no object": ("plan = '[1]'", {"schedule": HOURLY}, ["schedule"]),
    "a plan too deep to read": (
        "plan = (repeat('{\"a\":', 4000) || '1' || repeat('}', 4000))::jsonb",
        {"schedule": HOURLY},
        ["schedule"],
    ),
    "a number too great to read": (
        "plan = jsonb_set(plan, '{grace_seconds}', ('1' || repeat('0', 5000))::jsonb)",
        {"schedule": HOURLY},
        ["schedule"],
    ),
    "a number without end": (
        "plan = jsonb_set(plan, '{spread_seconds}', '1e400')",
        {"spread_seconds": 5},
        ["spread_seconds"],
    ),
    "two unknown policies": (
        """plan = plan || '{"misfire": "never", "overlap": 7}'""",
        {"misfire": None, "overlap": "skip"},
        ["misfire", "overlap"],
    ),
    "an unknown priority": ("plan = jsonb_set(plan, '{priority}', '9')", {"priority": "high"}, ["priority"]),
    "an end before its start": (
        """plan = plan || '{"start": "2031-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z"}'""",
        {"end": None},
        ["end"],
    ),
    "instants beyond what a datetime holds": (
        """plan = plan || '{"start": "0001-01-01T00:00:00+14:00", "end": "9999-12-31T23:59:59-14:00"}'""",
        {"start": None, "end": None},
        ["start", "end"],
    ),
    "a schedule of an instant that no datetime holds": (
        """plan = jsonb_set(plan, '{schedule}', '{"kind": "at", "at": "0001-01-01T00:00:00+14:00"}')""",
        {"schedule": HOURLY},
        ["schedule"],
    ),
    "an anchor that no datetime holds": (
        """plan = jsonb_set(plan, '{schedule}',
                            '{"kind": "every", "every_seconds": 60, "anchor": "9999-12-31T23:59:59-14:00"}')""",
        {"schedule": HOURLY},
        ["schedule"],
    ),
    "an empty call": ("call = '{}'", {"request": {"url": "https://example.com/new"}}, ["request.url"]),
    "an address that is refused": (
        """call = jsonb_set(call, '{url}', '"ftp://example.com"')""",
        {"request": {"url": "https://example.com/new"}},
        ["request.url"],
    ),
    "headers that are refused": (
        """call = jsonb_set(call, '{headers}', '{"Tocsin-Fence": "1"}')""",
        {"request": {"headers": {"X-Mine": "1"}}},
        ["request.headers"],
    ),
    "a retry that is refused": (
        """call = jsonb_set(call, '{retry,max_attempts}', '0')""",
        {"retry": {"max_attempts": 2}},
        ["retry"],
    ),
    "a body of an unknown kind": (
        """call = jsonb_set(call, '{json_body}', '"perhaps"')""",
        {"request": {"json": {"a": 1}}},
        ["request.body"],
    ),
    "both parts": (
        "plan = 'null', call = 'null'",
        definition(),
        ["schedule", "request.url"],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_cannot_be_read_is_shown_as_faulty_and_mended(client: Client, sql: Connection, fault: str) -> None:
    change, patch, fields = FAULTS[fault]
    task_id = await client.made(misfire="skip", request={"url": "https://example.com/hook", "body": "x"})
    await sql.execute(f"update tasks set {change}")
    got = (await client.call("GET", f"/v1/tasks/{task_id}")).document
    assert (got["state"], got["name"], bool(got["fault"])) == ("faulty", "report", True)
    assert [task["id"] for task in (await client.call("GET", "/v1/tasks")).document["tasks"]] == [task_id]
    refused = await client.call("PATCH", f"/v1/tasks/{task_id}", {"name": "other"})
    assert (refused.status, refused.fields) == (422, fields)
    mended = await client.call("PATCH", f"/v1/tasks/{task_id}", patch)
    assert mended.status == 200, mended.text
    assert (mended.document["state"], mended.document["fault"], mended.document["version"]) == ("active", None, 2)
    assert (await client.call("GET", f"/v1/tasks/{task_id}")).document == mended.document
    for name, value in patch.items():
        assert value is None or mended.document[name] == value or mended.document[name].items() >= value.items()
    [row] = await sql.fetch("select p.slot, p.plan_version from pending p where kind = 'next'")
    assert (row["slot"] is None, row["plan_version"]) == (False, 2)


async def test_what_can_be_read_is_kept(client: Client, sql: Connection) -> None:
    task_id = await client.made(misfire="fire_all", timeout_seconds=7.5, priority="low")
    await sql.execute("""update tasks set plan = jsonb_set(plan, '{schedule}', '{}') || '{"newer": 1}'""")
    mended = (await client.call("PATCH", f"/v1/tasks/{task_id}", {"schedule": HOURLY})).document
    assert (mended["misfire"], mended["timeout_seconds"], mended["priority"]) == ("fire_all", 7.5, "low")
    assert mended["schedule"]["every_seconds"] == 3600


async def test_a_field_of_a_later_version_hinders_nobody_for_ever(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    await sql.execute("""update tasks set plan = plan || '{"newer": 1}', call = call || '{"newer": 1}'""")
    assert (await client.call("GET", f"/v1/tasks/{task_id}")).document["state"] == "faulty"
    mended = await client.call("PATCH", f"/v1/tasks/{task_id}", {"name": "other"})
    assert (mended.status, mended.document["name"], mended.document["state"]) == (200, "other", "active")
    assert await sql.fetchval("select plan ? 'newer' or call ? 'newer' from tasks") is False


async def test_a_patch_that_mends_must_keep_every_rule(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    await sql.execute("update tasks set plan = '{}'")
    for patch, fields in (
        ({"schedule": {"zone": "UTC"}}, ["schedule"]),
        ({"schedule": {"cron": "0 0 30 2 *"}}, ["schedule.cron"]),
        ({"schedule": {"at": "2001-01-01T00:00:00Z"}}, ["schedule.at"]),
        ({"schedule": None}, ["schedule"]),
        ({"schedule": HOURLY, "request": None}, ["request"]),
        ({"schedule": HOURLY, "request": 7}, ["request"]),
        ({"schedule": HOURLY, "no such": 7}, ["['no such']"]),
    ):
        answer = await client.call("PATCH", f"/v1/tasks/{task_id}", patch)
        assert answer.status == 422, (patch, answer.text)
        assert len(answer.fields) == len(fields), (patch, answer.fields)
    assert await sql.fetchval("select version from tasks") == 1


async def test_other_writes_say_how_to_mend(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    await sql.execute("update tasks set call = '{}'")
    for method, path in (
        ("GET", "preview"),
        ("POST", "pause"),
        ("POST", "resume"),
        ("POST", "run-now"),
        ("POST", "skip-next"),
    ):
        answer = await client.call(method, f"/v1/tasks/{task_id}/{path}")
        assert answer.status == 409
        assert "mend it by a PATCH" in answer.document["detail"]
    assert (await client.call("GET", f"/v1/tasks/{task_id}/runs")).status == 200
    assert (await client.call("DELETE", f"/v1/tasks/{task_id}")).status == 204


async def test_a_paused_task_is_mended_and_stays_paused(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    await client.call("POST", f"/v1/tasks/{task_id}/pause")
    await sql.execute("update tasks set plan = '{}'")
    mended = await client.call("PATCH", f"/v1/tasks/{task_id}", {"schedule": HOURLY})
    assert (mended.status, mended.document["state"], mended.document["next"]) == (200, "paused", None)
    resumed = await client.call("POST", f"/v1/tasks/{task_id}/resume")
    assert resumed.document["next"] is not None


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"a": 1, "a": 2}', b"\x00"])
async def test_a_body_that_is_no_json_after_all_is_shown_as_text(client: Client, sql: Connection, body: bytes) -> None:
    task_id = await client.made(request={"url": "https://example.com/hook", "json": {"a": 1}})
    await sql.execute("update tasks set body = $1", body)
    got = (await client.call("GET", f"/v1/tasks/{task_id}")).document
    assert got["request"]["body"] == body.decode("utf-8", "replace")
    renamed = await client.call("PATCH", f"/v1/tasks/{task_id}", {"name": "other", "request": {"json": [1]}})
    assert renamed.status == 422
    mended = await client.call("PATCH", f"/v1/tasks/{task_id}", {"request": {"json": [1], "body": None}})
    assert (mended.status, mended.document["request"]["json"]) == (200, [1])
