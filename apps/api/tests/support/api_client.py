"""The API as its clients meet it: over sockets, with a key."""

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import aiohttp
import asyncpg

from tocsin.api.main import Settings, run
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids, shard_of
from tocsin.common.keys import new_key

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)

    @property
    def fields(self) -> list[str]:
        """The fields that the problem document names."""
        return [error["field"] for error in self.document["errors"]]


@dataclass
class Client:
    """One tenant's client. `port` of the server; `key` may be changed."""

    session: aiohttp.ClientSession
    port: int
    tenant_id: UUID
    key: str

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    async def call(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        if document is not None:
            content = json.dumps(document).encode()
        sent = {**self.authorization, **({} if content is None else {"Content-Type": "application/json"})}
        url = f"http://127.0.0.1:{self.port}{path}"
        sent_content = None if content is None else io.BytesIO(content)
        async with self.session.request(method, url, data=sent_content, headers={**sent, **(headers or {})}) as got:
            answer = Answer(got.status, got.headers.copy(), await got.text())
        assert got.headers["X-Request-Id"]
        assert got.headers["Server"] == "tocsin"
        if got.status >= 400:
            assert got.content_type == "application/problem+json"
            assert answer.document["status"] == got.status
        return answer

    async def create(self, document: Any = None, **changes: Any) -> Answer:
        return await self.call("POST", "/v1/tasks", (document or definition()) | changes)

    async def made(self, **changes: Any) -> str:
        """The id of a new task."""
        answer = await self.create(**changes)
        assert answer.status == 201, answer.text
        task_id = answer.document["id"]
        assert isinstance(task_id, str)
        return task_id


def definition(**changes: Any) -> dict[str, Any]:
    """A small valid definition."""
    return {
        "name": "report",
        "schedule": {"cron": "0 9 * * *", "zone": "Europe/Berlin"},
        "request": {"url": "https://example.com/hook"},
    } | changes


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[int]:
    """A running server's port; stopped, and its end awaited, at the end of the block."""
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.create_task(run(settings, ready=port.set_result, stop=stop))
    waiter = asyncio.ensure_future(port)
    await asyncio.wait([server, waiter], return_when=asyncio.FIRST_COMPLETED)
    if server.done():
        waiter.cancel()
        await server
    try:
        yield await waiter
    finally:
        stop.set()
        await server


async def add_tenant(connection: Connection, name: str) -> tuple[UUID, str]:
    """A new tenant's id and key."""
    ids = Ids(SystemClock(), random.Random())
    tenant_id = ids.new()
    text, key_hash = new_key()
    await connection.execute(
        "insert into tenants (id, name, shard) values ($1, $2, $3)", tenant_id, name, shard_of(tenant_id)
    )
    await connection.execute(
        "insert into api_keys (id, tenant_id, name, hash) values ($1, $2, 'test', $3)",
        ids.new(),
        tenant_id,
        key_hash,
    )
    return tenant_id, text


async def begin_waiting(sql: Connection) -> None:
    """Moves every waiting run to running, as some owner's begin would."""
    await sql.execute(
        """with gone as (delete from pending where kind = 'now' returning *),
        owner as (
            insert into leases (id, cell, generation, node, boot, pid_namespace, pid, process_started, zone_data, ttl)
            values (gen_random_uuid(), 'shared', 0, 'n', 'b', 'p', 1, 1, '2026a', interval '10 s') returning id
        )
        insert into running (run_id, tenant_id, task_id, lease_id, due_at, fence, version, plan_version,
                             priority, lane, losses, kind)
        select run_id, tenant_id, task_id, owner.id, due_at, 1, 1, 1, priority, lane, 0, kind
          from gone, owner"""
    )
