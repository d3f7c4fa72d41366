"""B48: NUL, wherever a client can put a text. Refused by the field's name, stored nowhere, and no error of ours."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from api_client import Client, Connection, definition
from tocsin.api import json_text

WHOLE: dict[str, Any] = {
    "name": "report",
    "schedule": {"cron": "0 9 * * *", "zone": "Europe/Berlin"},
    "request": {
        "url": "https://example.com/hook",
        "method": "PUT",
        "headers": {"X-Token": "abc"},
        "json": {"a": ["b", {"c": "d"}]},
    },
    "timeout_seconds": 30,
    "retry": {"max_attempts": 3},
    "on_lease_lost": "retry",
    "start": "2126-01-01T00:00:00Z",
    "end": "2127-01-01T00:00:00Z",
    "spread_seconds": 0,
    "dst_gap": "shift",
    "dst_fold": "first",
    "misfire": "skip",
    "grace_seconds": 60,
    "max_catchup": 1,
    "overlap": "allow",
    "priority": "low",
}
OTHER_SCHEDULES: list[dict[str, Any]] = [
    {"every_seconds": 60, "anchor": "2026-01-01T00:00:00Z"},
    {"at": "2126-01-01T00:00:00Z"},
]


def with_nul(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Copies of a document with a NUL in one of its texts or names, and where that is."""
    match value:
        case str():
            middle = len(value) // 2
            for text in (f"\0{value}", f"{value[:middle]}\0{value[middle:]}", f"{value}\0", "\0"):
                yield path, text
        case dict():
            for name, item in value.items():
                inner = json_text.join(path, name)
                for where, changed in with_nul(item, inner):
                    yield where, {**value, name: changed}
                for _, renamed in with_nul(name):
                    others = {key: kept for key, kept in value.items() if key != name}
                    yield json_text.join(path, renamed), {**others, renamed: item}
        case list():
            for index, item in enumerate(value):
                for where, changed in with_nul(item, json_text.join(path, index)):
                    yield where, [*value[:index], changed, *value[index + 1 :]]


def changed_definitions() -> Iterator[tuple[str, Any]]:
    yield from with_nul(WHOLE)
    yield from with_nul({**WHOLE, "request": {"url": "https://example.com/", "body": "text"}})
    for schedule in OTHER_SCHEDULES:
        yield from with_nul(definition(schedule=schedule))


async def assert_refused(client: Client, sql: Connection) -> None:
    """By every request that takes a definition; each answer names the place."""
    task_id = await client.made()
    before = await sql.fetch("select * from tasks")
    for method, path in (
        ("POST", "/v1/tasks"),
        ("POST", "/v1/preview"),
        ("PATCH", f"/v1/tasks/{task_id}"),
    ):
        for where, document in changed_definitions():
            answer = await client.call(method, path, document)
            assert answer.status == 422, (method, path, where, answer.text[:300])
            assert where in answer.fields, (method, path, where, answer.fields)
    assert await sql.fetch("select * from tasks") == before


async def test_b48_a_nul_in_any_text_of_a_definition_is_refused(client: Client, sql: Connection) -> None:
    accepted = (await client.create(WHOLE)).status
    assert accepted == 201, "but for the NUL, the definition is a good one"
    await assert_refused(client, sql)


async def test_b48_a_reader_that_lets_nul_through_is_caught(
    client: Client, sql: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_text, "_text_errors", lambda _text, _path: iter(()))
    with pytest.raises(AssertionError):
        await assert_refused(client, sql)


async def raw_status(client: Client, head: bytes, content: bytes = b"") -> int:
    """The status of an answer to bytes that a client library would not send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    length = f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
    writer.write(head + length + content)
    async with asyncio.timeout(10):
        line = await reader.readline()
        await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(line.split(b" ")[1])


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/v1/tasks", "Idempotency-Key: a\0b"),
        ("/v1/tasks", "Idempotency-Key: \0"),
        ("/v1/tasks", "X-Request-Id: a\0b"),
        ("/v1/tasks", "X-A\0: b"),
        ("/v1/tasks", "Content-Type: application/json\0"),
        ("/v1/tasks\0", "X-A: b"),
        ("/v1/tasks%00", "X-A: b"),
        ("/v1/tasks?%00=1", "X-A: b"),
        ("/v1/tasks?limit=%00", "X-A: b"),
        ("/v1/runs/%00/cancel", "X-A: b"),
        ("/v1/runs/01980000-0000-7000-8000-00000000000%00/cancel", "X-A: b"),
    ],
)
async def test_b48_a_nul_beside_the_content_is_the_clients_fault(
    client: Client, sql: Connection, path: str, header: str
) -> None:
    lines = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.key}\r\n"
    head = f"{lines}Content-Type: application/json\r\n{header}\r\n".encode()
    assert 400 <= await raw_status(client, head, json.dumps(definition()).encode()) < 500
    assert await sql.fetchval("select count(*) from tasks") == 0


@pytest.mark.parametrize("key", ["\0", "tk\0", "{key}\0", "\0{key}"])
async def test_b48_a_nul_in_a_key_opens_nothing(client: Client, key: str) -> None:
    said = key.format(key=client.key)
    head = f"GET /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {said}\r\n".encode()
    assert await raw_status(client, head) in (400, 401)


async def test_b48_bytes_of_an_answer_are_stored_and_shown(client: Client, sql: Connection) -> None:
    """What an endpoint answered may hold any byte: it is kept as bytes, and shown as JSON can."""
    task_id = await client.made()
    run_id = "01980000-0000-7000-8000-000000000001"
    await sql.execute(
        """insert into history (run_id, tenant_id, task_id, ended_at, due_at, fence, losses, sent, kind, state,
        outcome, http_status, response)
        values ($1, $2, $3, now(), now(), 1, 0, true, 'slot', 'succeeded', 'success', 200, $4)""",
        run_id,
        client.tenant_id,
        task_id,
        b"\0a\0\xff",
    )
    run = (await client.call("GET", f"/v1/runs/{run_id}")).document
    assert run["attempts"][0]["response"] == "\0a\0\ufffd"
