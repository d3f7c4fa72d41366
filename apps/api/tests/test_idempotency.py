"""One Idempotency-Key, one task."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Mapping
from uuid import UUID

import pytest

from api_client import Client, Connection, definition
from database_proxy import Proxy
from tocsin.api.json_text import encode
from tocsin.common.store.postgres.tasks import PostgresTaskTransaction

KEY = {"Idempotency-Key": "order 1"}


async def count(sql: Connection) -> int:
    found = await sql.fetchval("select count(*) from tasks")
    assert isinstance(found, int)
    return found


async def test_b44_parallel_creates_with_one_key_make_one_task(client: Client, sql: Connection) -> None:
    answers = await asyncio.gather(*(client.call("POST", "/v1/tasks", definition(), headers=KEY) for _ in range(50)))
    assert {answer.status for answer in answers} == {201}
    assert len({answer.document["id"] for answer in answers}) == 1
    assert sum("Idempotency-Replayed" not in answer.headers for answer in answers) == 1
    assert await count(sql) == 1
    assert await sql.fetchval("select count(*) from pending") == 1


async def test_without_a_key_each_create_makes_a_task(client: Client, sql: Connection) -> None:
    """The broken twin: the check above would see what a server without keys does."""
    answers = await asyncio.gather(*(client.create() for _ in range(5)))
    assert len({answer.document["id"] for answer in answers}) == await count(sql) == 5


async def check_one_of_two_bodies_wins(client: Client, sql: Connection) -> None:
    bodies = [definition(name=f"body {n % 2}") for n in range(50)]
    answers = await asyncio.gather(*(client.call("POST", "/v1/tasks", body, headers=KEY) for body in bodies))
    assert await count(sql) == 1
    won = await sql.fetchval("select name from tasks")
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.status == (201 if body["name"] == won else 422), answer.text
    assert len({answer.document["id"] for answer in answers if answer.status == 201}) == 1
    assert await sql.fetchval("select count(*) from pending") == 1


async def test_b44_of_two_bodies_at_the_same_moment_one_wins(client: Client, sql: Connection) -> None:
    await check_one_of_two_bodies_wins(client, sql)


async def test_b44_who_looks_first_and_then_inserts_is_caught(
    client: Client, sql: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: whoever has found no key goes on, though another may have put it in meanwhile."""
    claim = PostgresTaskTransaction.claim_key

    async def looks_first(
        self: PostgresTaskTransaction, tenant_id: UUID, key: str, request_hash: bytes, task_id: UUID
    ) -> bool:
        if await self.key_holder(tenant_id, key) is not None:
            return False
        await claim(self, tenant_id, key, request_hash, task_id)
        return True

    monkeypatch.setattr(PostgresTaskTransaction, "claim_key", looks_first)
    with pytest.raises(AssertionError):
        await check_one_of_two_bodies_wins(client, sql)


async def test_b44_another_request_with_the_same_key_is_refused(client: Client, sql: Connection) -> None:
    first = await client.call("POST", "/v1/tasks", definition(), headers=KEY)
    other = await client.call("POST", "/v1/tasks", definition(name="other"), headers=KEY)
    assert other.status == 422
    assert other.document["type"].endswith("idempotency-key-reused")
    reordered = dict(reversed(definition().items()))
    again = await client.call("POST", "/v1/tasks", content=json.dumps(reordered, indent=4).encode(), headers=KEY)
    assert again.document == first.document
    assert await count(sql) == 1


async def test_b44_tenants_have_keys_of_their_own(client: Client, other: Client, sql: Connection) -> None:
    mine = await client.call("POST", "/v1/tasks", definition(), headers=KEY)
    theirs = await other.call("POST", "/v1/tasks", definition(), headers=KEY)
    assert mine.document["id"] != theirs.document["id"]
    assert await count(sql) == 2


async def test_a_refused_request_does_not_use_up_its_key(client: Client) -> None:
    refused = await client.call("POST", "/v1/tasks", definition(end="2020-01-01T00:00:00Z"), headers=KEY)
    assert refused.status == 422
    assert (await client.call("POST", "/v1/tasks", definition(), headers=KEY)).status == 201


async def test_a_key_answers_after_its_instant_has_passed(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    document = definition(schedule={"at": "2020-01-01T00:00:00Z"})
    assert (await client.call("POST", "/v1/tasks", document, headers=KEY)).status == 422
    request_hash = hashlib.sha256(encode(document, sort_keys=True).encode()).digest()
    await sql.execute(
        "insert into idempotency_keys (tenant_id, key, request_hash, task_id) values ($1, $2, $3, $4)",
        client.tenant_id,
        KEY["Idempotency-Key"],
        request_hash,
        task_id,
    )
    answer = await client.call("POST", "/v1/tasks", document, headers=KEY)
    assert (answer.status, answer.document["id"]) == (201, task_id)


async def test_a_deleted_task_is_still_what_its_key_made(client: Client) -> None:
    first = (await client.call("POST", "/v1/tasks", definition(), headers=KEY)).document
    await client.call("DELETE", f"/v1/tasks/{first['id']}")
    again = await client.call("POST", "/v1/tasks", definition(), headers=KEY)
    assert (again.status, again.document) == (201, {"id": first["id"], "state": "deleted"})


@pytest.mark.parametrize("key", ["", "x" * 256, "k\u00e9", "a\tb"])
async def test_keys_that_are_refused(client: Client, sql: Connection, key: str) -> None:
    answer = await client.call("POST", "/v1/tasks", definition(), headers={"Idempotency-Key": key})
    assert (answer.status, answer.fields) == (422, ["Idempotency-Key"])
    assert await count(sql) == 0


async def test_b44_a_client_cut_off_before_the_answer_gets_it_at_the_retry(client: Client, sql: Connection) -> None:
    await sql.execute("begin; lock table idempotency_keys in access exclusive mode")
    await cut_off(client, sql, KEY)
    await sql.execute("rollback")
    retried = await client.call("POST", "/v1/tasks", definition(), headers=KEY)
    assert retried.status == 201
    assert retried.headers["Idempotency-Replayed"] == "true"
    assert await count(sql) == 1


async def test_b44_a_lost_commit_is_said_to_be_unknown_and_the_key_tells(
    proxied: Client, proxy: Proxy, sql: Connection
) -> None:
    await proxied.call("GET", "/v1/tasks")
    proxy.cut_at = b"COMMIT"
    lost = await proxied.call("POST", "/v1/tasks", definition(), headers=KEY)
    assert (lost.status, lost.document["type"]) == (503, "urn:tocsin:problem:outcome-unknown")
    assert int(lost.headers["Retry-After"]) > 0
    retried = await proxied.call("POST", "/v1/tasks", definition(), headers=KEY)
    assert retried.status == 201
    assert await count(sql) == 1


async def cut_off(client: Client, sql: Connection, headers: Mapping[str, str]) -> None:
    """Sends a create, waits until its transaction waits for a lock, and hangs up."""
    content = json.dumps(definition()).encode()
    lines = {**client.authorization, **headers, "Host": "x", "Content-Length": str(len(content))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    _, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(f"POST /v1/tasks HTTP/1.1\r\n{head}\r\n".encode() + content)
    await writer.drain()
    async with asyncio.timeout(10):
        while not await sql.fetchval("select count(*) from pg_locks where not granted"):
            pass
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
