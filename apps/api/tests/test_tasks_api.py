"""What a tenant does to tasks and runs, and what it leaves in the rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_client import Client, Connection, begin_waiting

FULL: dict[str, Any] = {
    "name": "every field \U0001f514",
    "schedule": {"cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin"},
    "request": {
        "url": "https://example.com/hook?a=1",
        "method": "PUT",
        "headers": {"X-Own": "1"},
        "json": {"big": 9007199254740993, "list": [1.5, None, True, "x"]},
    },
    "timeout_seconds": 12.5,
    "retry": {
        "max_attempts": 7,
        "base_seconds": 1.5,
        "factor": 3.0,
        "cap_seconds": 60.0,
        "deadline_seconds": 600,
    },
    "on_lease_lost": "dead",
    "start": "2026-01-01T00:00:00Z",
    "end": "2199-01-01T00:00:00Z",
    "spread_seconds": 30,
    "dst_gap": "skip",
    "dst_fold": "both",
    "misfire": "fire_all",
    "grace_seconds": 120,
    "max_catchup": 5,
    "overlap": "skip",
    "priority": "high",
}


ANSWER = b"\xff\0ok"


async def pending(sql: Connection, task_id: str, kind: str = "next") -> list[Any]:
    return await sql.fetch("select * from pending where task_id = $1 and kind = $2", task_id, kind)


async def skips(sql: Connection, task_id: str) -> list[Any]:
    return await sql.fetch("select * from history where task_id = $1 and state = 'skipped'", task_id)


async def test_a_task_is_shown_as_it_was_given(client: Client) -> None:
    created = await client.create(FULL)
    assert created.status == 201
    task_id = created.document["id"]
    assert created.headers["Location"] == f"/v1/tasks/{task_id}"
    got = (await client.call("GET", f"/v1/tasks/{task_id}")).document
    assert got == created.document
    assert {field: got[field] for field in FULL} == FULL
    own = {"id", "state", "version", "created_at", "updated_at", "fault", "next"}
    assert set(got) == set(FULL) | own
    assert (got["state"], got["version"], got["fault"]) == ("active", 1, None)
    scheduled_for, due_at = (datetime.fromisoformat(got["next"][at]) for at in ("scheduled_for", "due_at"))
    assert scheduled_for <= due_at <= scheduled_for + timedelta(seconds=30)


async def test_defaults_are_shown(client: Client) -> None:
    got = (await client.create()).document
    assert got["request"] == {"url": "https://example.com/hook", "method": "POST", "headers": {}}
    assert (got["priority"], got["overlap"], got["misfire"], got["retry"]["max_attempts"]) == (
        "normal",
        "allow",
        "fire_once",
        3,
    )


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993",
        "1" * 900,
        "0.12345678901234567890123",
        "1.10",
        '{"a":[]}',
        '"text"',
        "null",
        "[" * 60 + "]" * 60,
    ],
)
async def test_a_json_body_is_sent_and_shown_as_it_was_given(client: Client, sql: Connection, text: str) -> None:
    request = f'{{"url":"http://a.example/","json":{text}}}'
    content = f'{{"name":"x","schedule":{{"cron":"@daily"}},"request":{request}}}'
    created = await client.call("POST", "/v1/tasks", content=content.encode())
    assert created.status == 201, created.text
    assert f'"json":{text}' in created.text
    assert await sql.fetchval("select body from tasks") == text.encode()


async def test_a_text_body_stays_a_text(client: Client, sql: Connection) -> None:
    created = await client.create(request={"url": "http://a.example/", "body": '{ "a": 1 }\nü'})
    assert created.document["request"]["body"] == '{ "a": 1 }\nü'
    assert await sql.fetchval("select body from tasks") == '{ "a": 1 }\nü'.encode()


async def test_an_interval_without_anchor_is_anchored_at_the_databases_second(client: Client, sql: Connection) -> None:
    before = await sql.fetchval("select date_trunc('second', clock_timestamp())")
    got = (await client.create(schedule={"every_seconds": 120})).document
    after = await sql.fetchval("select clock_timestamp()")
    anchor = datetime.fromisoformat(got["schedule"]["anchor"])
    assert before <= anchor <= after
    assert anchor.microsecond == 0
    assert datetime.fromisoformat(got["next"]["scheduled_for"]) == anchor + timedelta(seconds=120)
    stored = await sql.fetchval("select plan -> 'schedule' ->> 'anchor' from tasks")
    assert stored == got["schedule"]["anchor"]


async def test_an_anchor_and_an_instant_keep_their_instant(client: Client) -> None:
    got = (await client.create(schedule={"every_seconds": 7, "anchor": "2020-01-01T01:00:00+01:00"})).document
    assert got["schedule"] == {"every_seconds": 7, "anchor": "2020-01-01T00:00:00Z"}
    got = (await client.create(schedule={"at": "2199-01-01t01:00:00-00:00"})).document
    assert got["schedule"] == {"at": "2199-01-01T01:00:00Z"}
    assert got["next"] == {"scheduled_for": "2199-01-01T01:00:00Z", "due_at": "2199-01-01T01:00:00Z"}


async def test_the_list_shows_tasks_newest_first_without_bodies(client: Client) -> None:
    first = await client.made(request={"url": "http://a.example/", "body": "12345"})
    second = await client.made()
    tasks = (await client.call("GET", "/v1/tasks")).document["tasks"]
    assert [task["id"] for task in tasks] == [second, first]
    assert tasks[1]["request"] == {
        "url": "http://a.example/",
        "method": "POST",
        "headers": {},
        "body_bytes": 5,
    }


async def test_a_merge_patch_changes_what_it_names(client: Client, sql: Connection) -> None:
    task_id = (await client.create(FULL)).document["id"]
    row = (await pending(sql, task_id))[0]
    patch = {
        "name": "renamed",
        "request": {"headers": {"X-Own": None, "X-New": "2"}, "json": {"big": None, "list": [1]}},
        "retry": {"max_attempts": 2},
    }
    patched = await client.call(
        "PATCH", f"/v1/tasks/{task_id}", patch, headers={"Content-Type": "application/merge-patch+json"}
    )
    assert patched.status == 200, patched.text
    expected = FULL | {"name": "renamed", "retry": FULL["retry"] | {"max_attempts": 2}}
    expected["request"] = FULL["request"] | {"headers": {"X-New": "2"}, "json": {"list": [1]}}
    assert {field: patched.document[field] for field in FULL} == expected
    assert patched.document["version"] == 2
    assert (await pending(sql, task_id))[0]["run_id"] == row["run_id"]  # nothing that the plan reads has changed


async def test_a_patch_of_the_schedule_replaces_the_next_row(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    old = (await pending(sql, task_id))[0]
    patch = {"schedule": {"cron": None, "zone": None, "every_seconds": 3600}}
    patched = await client.call("PATCH", f"/v1/tasks/{task_id}", patch)
    assert set(patched.document["schedule"]) == {"every_seconds", "anchor"}
    rows = await pending(sql, task_id)
    assert len(rows) == 1
    assert rows[0]["run_id"] != old["run_id"]
    assert rows[0]["plan_version"] == patched.document["version"] == 2


async def test_a_null_sets_a_field_back(client: Client) -> None:
    task_id = (await client.create(FULL)).document["id"]
    patch = {"end": None, "priority": None, "retry": None, "request": {"json": None, "body": "text"}}
    patched = (await client.call("PATCH", f"/v1/tasks/{task_id}", patch)).document
    assert (patched["end"], patched["priority"], patched["retry"]["max_attempts"]) == (None, "normal", 3)
    assert patched["request"]["body"] == "text"
    assert "json" not in patched["request"]


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"schedule": {"every_seconds": 60}}, "schedule"),
        ({"schedule": {"cron": "0 0 30 2 *"}}, "schedule.cron"),
        ({"schedule": {"cron": None, "zone": None, "at": "2020-01-01T00:00:00Z"}}, "schedule.at"),
        ({"state": "paused"}, "state"),
        ({"id": "x"}, "id"),
        ({"name": None}, "name"),
        ({"request": {"body": "beside json"}}, "request.body"),
        ({"request": None}, "request"),
        ({"end": "2026-01-01T00:00:00Z"}, "end"),
    ],
)
async def test_a_refused_patch_changes_nothing(client: Client, sql: Connection, patch: Any, field: str) -> None:
    task_id = (await client.create(FULL)).document["id"]
    rows = await sql.fetch("select t, p from tasks t, pending p")
    answer = await client.call("PATCH", f"/v1/tasks/{task_id}", patch)
    assert answer.status == 422
    assert field in answer.fields
    assert await sql.fetch("select t, p from tasks t, pending p") == rows


async def test_an_empty_patch_changes_nothing(client: Client) -> None:
    created = (await client.create()).document
    assert (await client.call("PATCH", f"/v1/tasks/{created['id']}", {})).document == created


async def test_a_task_whose_instant_has_passed_can_still_be_renamed(client: Client, sql: Connection) -> None:
    task_id = await client.made(schedule={"at": "2199-01-01T00:00:00Z"})
    past = """{"at": "2020-01-01T00:00:00Z", "kind": "at"}"""
    await sql.execute("update tasks set plan = jsonb_set(plan, '{schedule}', $1::jsonb)", past)
    await sql.execute("delete from pending")
    patched = await client.call("PATCH", f"/v1/tasks/{task_id}", {"name": "renamed"})
    assert patched.status == 200
    assert patched.document["next"] is None


async def test_pause_parks_and_resume_replants(client: Client, sql: Connection) -> None:
    task_id = await client.made(schedule={"every_seconds": 3600})
    await client.call("POST", f"/v1/tasks/{task_id}/run-now")
    paused = await client.call("POST", f"/v1/tasks/{task_id}/pause")
    assert (paused.status, paused.document["state"], paused.document["next"]) == (200, "paused", None)
    assert [row["slot"] for row in await pending(sql, task_id)] == [None]
    assert await pending(sql, task_id, "now") == []
    assert [row["reason"] for row in await skips(sql, task_id)] == ["paused"]
    assert (await client.call("POST", f"/v1/tasks/{task_id}/run-now")).status == 409
    assert (await client.call("POST", f"/v1/tasks/{task_id}/skip-next")).status == 409
    resumed = await client.call("POST", f"/v1/tasks/{task_id}/resume")
    assert (resumed.status, resumed.document["state"]) == (200, "active")
    assert [row["slot"] for row in await pending(sql, task_id)] == [
        datetime.fromisoformat(resumed.document["next"]["scheduled_for"])
    ]


async def test_run_now_plants_a_run_that_is_due(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    answer = await client.call("POST", f"/v1/tasks/{task_id}/run-now")
    assert answer.status == 202
    run_id = answer.document["run_id"]
    assert answer.headers["Location"] == f"/v1/runs/{run_id}"
    (row,) = await pending(sql, task_id, "now")
    assert str(row["run_id"]) == run_id
    assert row["due_at"] <= await sql.fetchval("select clock_timestamp()")
    run = (await client.call("GET", f"/v1/runs/{run_id}")).document
    assert (run["state"], run["kind"], run["task_id"], run["attempts"]) == ("pending", "now", task_id, [])


async def test_run_now_may_ignore_overlap(client: Client, sql: Connection) -> None:
    task_id = await client.made(overlap="skip")
    answer = await client.call("POST", f"/v1/tasks/{task_id}/run-now", {"ignore_overlap": True})
    assert answer.status == 202
    assert len(await pending(sql, task_id, "forced")) == 1
    for fields, field in ({"ignore_overlap": 1}, "ignore_overlap"), ({"force": True}, "force"):
        answer = await client.call("POST", f"/v1/tasks/{task_id}/run-now", fields)
        assert (answer.status, answer.fields) == (422, [field])


async def test_skip_next_moves_to_the_slot_after(client: Client, sql: Connection) -> None:
    created = (await client.create(schedule={"every_seconds": 3600})).document
    slot = datetime.fromisoformat(created["next"]["scheduled_for"])
    answer = await client.call("POST", f"/v1/tasks/{created['id']}/skip-next")
    assert answer.status == 200
    assert datetime.fromisoformat(answer.document["skipped"]) == slot
    assert datetime.fromisoformat(answer.document["task"]["next"]["scheduled_for"]) == slot + timedelta(hours=1)
    (skip,) = await skips(sql, created["id"])
    assert (skip["slot"], skip["skip_count"], skip["reason"]) == (slot, 1, "skipped_by_user")
    runs = (await client.call("GET", f"/v1/tasks/{created['id']}/runs")).document["runs"]
    assert [run["state"] for run in runs] == ["pending", "skipped"]
    assert runs[1]["skipped"]["count"] == 1


async def test_delete_ends_a_task(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    await client.call("POST", f"/v1/tasks/{task_id}/run-now")
    assert (await client.call("DELETE", f"/v1/tasks/{task_id}")).status == 204
    assert await sql.fetchval("select count(*) from pending") == 0
    assert await sql.fetchval("select state from tasks") == "deleted"
    for method, path in ("GET", ""), ("DELETE", ""), ("PATCH", ""), ("POST", "/pause"), ("GET", "/preview"):
        document: Any = {} if method == "PATCH" else None
        assert (await client.call(method, f"/v1/tasks/{task_id}{path}", document)).status == 404
    runs = (await client.call("GET", f"/v1/tasks/{task_id}/runs")).document["runs"]
    assert [run["state"] for run in runs] == ["skipped"]  # what has happened can still be read


async def test_cancel_of_a_waiting_run_ends_it(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    run_id = (await client.call("POST", f"/v1/tasks/{task_id}/run-now")).document["run_id"]
    answer = await client.call("POST", f"/v1/runs/{run_id}/cancel")
    assert (answer.status, answer.document) == (202, {"run_id": run_id, "found": "pending"})
    run = (await client.call("GET", f"/v1/runs/{run_id}")).document
    assert (run["state"], run["attempts"]) == ("cancelled", [])
    assert (await client.call("POST", f"/v1/runs/{run_id}/cancel")).status == 409
    assert await pending(sql, task_id, "now") == []


async def test_cancel_of_the_next_row_plants_the_slot_after(client: Client, sql: Connection) -> None:
    created = (await client.create(schedule={"every_seconds": 3600})).document
    (row,) = await pending(sql, created["id"])
    assert (await client.call("POST", f"/v1/runs/{row['run_id']}/cancel")).status == 202
    (after,) = await pending(sql, created["id"])
    assert after["slot"] == row["slot"] + timedelta(hours=1)
    assert after["last_slot"] == row["slot"]


async def test_cancel_of_a_running_run_marks_it(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    run_id = (await client.call("POST", f"/v1/tasks/{task_id}/run-now")).document["run_id"]
    await begin_waiting(sql)
    answer = await client.call("POST", f"/v1/runs/{run_id}/cancel")
    assert (answer.status, answer.document["found"]) == (202, "running")
    assert await sql.fetchval("select cancelled from running")
    run = (await client.call("GET", f"/v1/runs/{run_id}")).document
    assert (run["state"], run["cancel_requested"]) == ("running", True)


async def test_a_run_shows_every_attempt(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    run_id = "01980000-0000-7000-8000-000000000001"
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for fence, losses, state, outcome, status, stale in (
        (1, 0, None, "http_error", 500, False),
        (2, 0, None, "lost", None, False),
        (2, 0, None, "success", 200, True),
        (3, 1, "succeeded", "success", 200, False),
    ):
        start += timedelta(seconds=1)
        await sql.execute(
            """insert into history (run_id, tenant_id, task_id, ended_at, started_at, due_at, fence, losses,
            sent, kind, state, outcome, http_status, response, stale, lease_id)
            values ($1, $2, $3, $4, $4, $4, $5, $6, true, 'slot', $7, $8, $9, $10, $11, gen_random_uuid())""",
            run_id, client.tenant_id, task_id, start, fence, losses, state, outcome, status, ANSWER, stale,
        )  # fmt: skip
    run = (await client.call("GET", f"/v1/runs/{run_id}")).document
    assert run["state"] == "succeeded"
    assert [(a["attempt"], a["outcome"], a["stale"]) for a in run["attempts"]] == [
        (1, "http_error", False),
        (2, "lost", False),
        (2, "success", True),
        (2, "success", False),
    ]
    assert run["attempts"][0]["response"] == "\ufffd\0ok"
    (summary, _) = (await client.call("GET", f"/v1/tasks/{task_id}/runs")).document["runs"][::-1]
    assert (summary["id"], summary["state"], summary["http_status"]) == (run_id, "succeeded", 200)
