"""Bad input: always 4xx, always naming the field, and nothing stored."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from api_client import Answer, Client, Connection, definition
from tocsin.api.context import MAX_REQUEST_BYTES
from tocsin.api.definitions import MAX_BODY_BYTES


async def assert_nothing_stored(sql: Connection) -> None:
    assert await sql.fetchval("select (select count(*) from tasks) + (select count(*) from pending)") == 0


def cron(text: str) -> dict[str, Any]:
    return {"schedule": {"cron": text}}


def url(text: str) -> dict[str, Any]:
    return {"request": {"url": text}}


def at(value: Any) -> dict[str, Any]:
    return {"schedule": {"at": value}}


NEVER_FIRES = ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 1 1 * 0 1980"]
BAD_STEPS = [
    "*/0 * * * *",
    "*/00 * * * *",
    "* * * 1/00 *",
    "*/-2 * * * *",
    "1,,2 * * * *",
    "1-2-3 * * * *",
    "1.5 * * * *",
    "-1 * * * *",
    "1_0 * * * *",
    "\u0661 * * * *",
    "\uff11 * * * *",
    "0," * 500_000 + "0 * * * *",
]
BAD_TOKENS = [
    "0\u00a00 * * * *",
    "@reboot",
    "@every 5m",
    "TZ=UTC 0 0 * * *",
    "R R * * *",
    "H H * * *",
    "5kevin * * * *",
    "",
]
BAD_URLS = [
    "http://2130706433",
    "http://0x7f000001",
    "http://127.1",
    "http://0177.0.0.1",
    "http://0",
    "http://[fe80::1%25eth0]/",
    "http://a.example:0/",
    "http://a.example:65536/",
    "http:///x",
    "http://exa mple.com/",
    "http://..example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1#@example.com/",
    "http://a.example/\r\nX: 1",
    "http://a.example/%zz",
    "ftp://a.example/",
    "//a.example/x",
    "http://a.example/" + "a" * 10_000,
    "http://a.example/#fragment",
    "http://user:secret@a.example/",
]
BAD_INSTANTS = [
    "2016-12-31T23:59:60Z",
    "2126-01-01T24:00:00Z",
    "2126-01-01T00:00:00",
    "2126-01-01",
    "2126-W01-1",
    "21260101T000000Z",
    "2126-01-01T00:00:00.1234567Z",
    "2126-01-01T00:00:00.5Z",
    "2126-02-29T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2020-01-01T00:00:00Z",
    "2200-01-01T00:00:00Z",
    4_102_444_800,
    True,
    None,
    ["2126-01-01T00:00:00Z"],
]


def fields() -> Iterator[tuple[dict[str, Any], str]]:
    """Changes of a definition, and the field that the answer must name."""
    no_schedules: list[Any] = [None, [], "x", {}, {"zone": "UTC"}]
    yield from (({"schedule": value}, "schedule") for value in no_schedules)
    yield {"schedule": {"cron": "@daily", "at": "2126-01-01T00:00:00Z"}}, "schedule"
    yield {"schedule": {"cron": "@daily", "kind": "cron"}}, "schedule.kind"
    yield {"schedule": {"cron": "@daily", "zone": "europe/berlin"}}, "schedule.zone"
    yield {"schedule": {"cron": "@daily", "zone": None}}, "schedule.zone"
    yield {"schedule": {"cron": "@daily", "zone": "a\0b"}}, "schedule.zone"
    yield {"schedule": {"cron": 5}}, "schedule.cron"
    yield {"schedule": {"every_seconds": 60, "zone": "UTC"}}, "schedule.zone"
    for every in (0, -1, 1.5, 60.0, "60", True, None, 10**30, [60]):
        yield {"schedule": {"every_seconds": every}}, "schedule.every_seconds"
    yield {"schedule": {"every_seconds": 60, "anchor": "yesterday"}}, "schedule.anchor"
    yield {"schedule": {"every_seconds": 60, "anchor": "2026-01-01T00:00:00.5Z"}}, "schedule.anchor"
    yield from (({"name": name}, "name") for name in (None, "", "x" * 201, 5, "a\0b", "a\nb", ["x"]))
    no_requests: list[Any] = [None, [], "http://a.example/"]
    yield from (({"request": request}, "request") for request in no_requests)
    yield {"request": {}}, "request.url"
    yield {"request": {"url": None}}, "request.url"
    yield {"request": {"url": "http://a.example/", "method": "post"}}, "request.method"
    yield {"request": {"url": "http://a.example/", "timeout_seconds": 5}}, "request.timeout_seconds"
    yield {"request": {"url": "http://a.example/", "body": "1", "json": 1}}, "request.body"
    yield {"request": {"url": "http://a.example/", "body": {"a": 1}}}, "request.body"
    yield {"request": {"url": "http://a.example/", "body": "a\0b"}}, "request.body"
    yield {"request": {"url": "http://a.example/", "body": "x" * (MAX_BODY_BYTES + 1)}}, "request.body"
    yield {"request": {"url": "http://a.example/", "json": "\u00fc" * (MAX_BODY_BYTES // 2)}}, "request.json"
    yield {"request": {"url": "http://a.example/", "json": {"a": "\0"}}}, "request.json.a"
    yield {"request": {"url": "http://a.example/", "json": {"a\0": 1}}}, 'request.json."a\\u0000"'
    yield {"request": {"url": "http://a.example/", "headers": {"X-A": "a\0b"}}}, "request.headers.X-A"
    yield {"request": {"url": "http://a.example/", "headers": {"X-A": "a\nb"}}}, "request.headers"
    yield {"request": {"url": "http://a.example/", "headers": {"X-A": 1}}}, "request.headers.X-A"
    yield {"request": {"url": "http://a.example/", "headers": {"Host": "b"}}}, "request.headers"
    yield {"request": {"url": "http://a.example/", "headers": ["X-A"]}}, "request.headers"
    for seconds in (0, -1, 901, "30", True, None, 10**400):
        yield {"timeout_seconds": seconds}, "timeout_seconds"
    yield {"retry": 3}, "retry"
    yield {"retry": {"max_attempts": 0}}, "retry.max_attempts"
    yield {"retry": {"max_attempts": 1.0}}, "retry.max_attempts"
    yield {"retry": {"factor": 1e300}}, "retry.factor"
    yield {"retry": {"tries": 3}}, "retry.tries"
    yield {"priority": "urgent"}, "priority"
    yield {"priority": 0}, "priority"
    yield {"overlap": "forbid"}, "overlap"
    yield {"misfire": 1}, "misfire"
    yield {"spread_seconds": 86_401}, "spread_seconds"
    yield {"start": "2026-01-01"}, "start"
    yield {"start": 0}, "start"
    yield {"start": "2126-01-01T00:00:00Z", "end": "2125-01-01T00:00:00Z"}, "end"
    yield {"end": "2020-01-01T00:00:00Z"}, "schedule"
    yield {"kind": "cron"}, "kind"
    yield {"json_body": True}, "json_body"
    yield {"id": "x"}, "id"
    yield {"plan": {}}, "plan"
    yield from ((cron(text), "schedule.cron") for text in NEVER_FIRES + BAD_STEPS + BAD_TOKENS)
    yield from ((url(text), "request.url") for text in BAD_URLS)
    yield from ((at(value), "schedule.at") for value in BAD_INSTANTS)


async def test_refused_fields_are_named_and_nothing_is_stored(client: Client, sql: Connection) -> None:
    for change, field in fields():
        answer = await client.create(**change)
        assert answer.status == 422, (str(change)[:200], answer.text[:500])
        assert field in answer.fields, (str(change)[:200], answer.text[:500])
        assert all(error["rule"] for error in answer.document["errors"])
        assert "pydantic" not in answer.text
    await assert_nothing_stored(sql)


async def test_all_errors_are_named_at_once(client: Client) -> None:
    answer = await client.create(name="", priority="x", schedule={"cron": "x"}, request={"url": "x"}, extra=1)
    assert set(answer.fields) == {"name", "priority", "schedule.cron", "request.url", "extra"}


@pytest.mark.parametrize("text", ["0 0 12 9 * ", "0\t0  12 9 *", "0 0 12 9 *\n", "@daily", "@DAILY", " @daily"])
async def test_blanks_and_macros_mean_what_they_should(client: Client, text: str) -> None:
    created = await client.create(**cron(text))
    assert created.document["schedule"]["cron"] == " ".join(text.split()).lower()


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("http://b\u00fccher.example/", "http://xn--bcher-kva.example/"),
        ("http://fa\u00df.de/", "http://xn--fa-hia.de/"),
        ("http://under_score.example/", "http://under_score.example/"),
        ("http://" + "a" * 63 + ".example:8080/", "http://" + "a" * 63 + ".example:8080/"),
        ("HTTP://A.example.", "http://a.example./"),
        ("http://127.0.0.1/", "http://127.0.0.1/"),  # decided at each call, on the address called
    ],
)
async def test_odd_legal_urls_are_stored_as_they_are_called(client: Client, given: str, stored: str) -> None:
    assert (await client.create(**url(given))).document["request"]["url"] == stored


def body(text: str) -> bytes:
    request = f'{{"url":"http://a.example/","json":{text}}}'
    return f'{{"name":"x","schedule":{{"cron":"@daily"}},"request":{request}}}'.encode()


CONTENTS = [
    (body("NaN"), 422),
    (body("Infinity"), 422),
    (body("1e999"), 422),
    (body("1e200000"), 422),
    (body("1" * 5_000), 422),
    (body('{"a":1,"a":2}'), 422),
    (body("[" * 20_000), 422),
    (body("[" * 20_000 + "]" * 20_000), 422),
    (body('{"a":' * 900 + "1" + "}" * 900), 422),
    (body(r'"\ud800"'), 422),
    (body("[" + "1," * 200_000 + "1]"), 422),
    (body('"' + "x" * 10_000_000 + '"'), 413),
    (body("1")[:-1], 400),
    (b"\xef\xbb\xbf" + body("1"), 400),
    (b"", 400),
    (b"\xff\xfe", 400),
    (b'"scalar"', 422),
    (b"[]", 422),
    (b"null", 422),
]


@pytest.mark.parametrize(("content", "status"), CONTENTS, ids=range(len(CONTENTS)))
async def test_b50_extreme_contents(client: Client, sql: Connection, content: bytes, status: int) -> None:
    answer = await client.call("POST", "/v1/tasks", content=content)
    assert answer.status == status, answer.text[:300]
    if status == 422:
        assert all(field.startswith(("request.json", "(document)")) for field in answer.fields)
    await assert_nothing_stored(sql)


async def test_b50_extreme_contents_of_other_requests(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    stored = await sql.fetch("select * from tasks")
    for content, status in CONTENTS:
        for method, path in (("POST", "/v1/preview"), ("PATCH", f"/v1/tasks/{task_id}")):
            answer = await client.call(method, path, content=content)
            assert answer.status == status, (method, content[:60], answer.text[:300])
    assert await sql.fetch("select * from tasks") == stored


async def test_the_largest_body_fits(client: Client) -> None:
    answer = await client.create(request={"url": "http://a.example/", "json": "x" * (MAX_BODY_BYTES - 2)})
    assert answer.status == 201


async def test_a_chunked_content_is_cut_at_the_limit(client: Client) -> None:
    url = f"http://127.0.0.1:{client.port}/v1/tasks"

    async def endless() -> Any:
        for _ in range(2 * MAX_REQUEST_BYTES // 65_536):
            yield b" " * 65_536

    async with client.session.post(url, data=endless(), headers=client.authorization) as answer:
        assert answer.status == 413


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "deflate"},
    ],
)
async def test_other_contents_than_plain_json_are_refused(client: Client, headers: dict[str, str]) -> None:
    content = json.dumps(definition()).encode()
    answer = await client.call("POST", "/v1/tasks", content=content, headers=headers)
    assert answer.status == 415


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/tasks", 404),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/tasks/1", 404),
        ("GET", "/v1/tasks/00000000-0000-0000-0000-000000000000", 404),
        ("GET", "/v1/tasks/%00", 404),
        ("GET", "/v1/tasks/{00000000-0000-0000-0000-000000000000}", 404),
        ("GET", "/v1/runs/x", 404),
        ("GET", "/v1/tasks/..%2f..%2fhealthz", 404),
        ("PUT", "/v1/tasks", 405),
        ("DELETE", "/healthz", 405),
        ("GET", "/v1/tasks?limt=1", 422),
        ("GET", "/v1/tasks?limit=1&limit=2", 422),
        ("GET", "/v1/tasks?limit=\u0661", 422),
        ("GET", "/v1/tasks?cursor=%00%ff", 422),
        ("GET", "/v1/tasks?%00=1", 422),
    ],
)
async def test_odd_paths_and_queries(client: Client, method: str, path: str, status: int) -> None:
    assert (await client.call(method, path)).status == status


async def test_b8_slow_texts_do_not_hold_up_others(client: Client) -> None:
    """The longest cron text is refused before it is parsed, so that a probe beside it is answered at once."""

    async def probe() -> Answer:
        return await client.call("GET", "/healthz")

    refused = [asyncio.create_task(client.create(**cron("0," * 500_000 + "0 * * * *"))) for _ in range(5)]
    async with asyncio.timeout(5):
        while not all(task.done() for task in refused):
            assert (await probe()).status == 200
    assert {(await task).status for task in refused} == {422}
