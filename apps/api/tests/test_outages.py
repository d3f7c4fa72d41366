"""The database goes and comes back; clients hang up."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from api_client import Client, Connection, add_tenant, definition, serving
from database_proxy import Proxy
from tocsin.api.main import Settings
from tocsin.cli.postgres import EmbeddedPostgres, throwaway_settings
from tocsin.common.store.postgres.migrate import migrate
from tocsin.common.store.postgres.tasks import PostgresTasks, PostgresTaskTransaction


async def until_ready(client: Client) -> None:
    async with asyncio.timeout(20):
        while (await client.call("GET", "/readyz")).status != 200:
            pass


async def check_unavailable(client: Client, task_id: str) -> None:
    """What every request gets while the database is away."""
    for method, path, document in (
        ("GET", "/v1/tasks", None),
        ("POST", "/v1/tasks", definition()),
        ("PATCH", f"/v1/tasks/{task_id}", {"name": "renamed"}),
        ("POST", f"/v1/tasks/{task_id}/run-now", None),
        ("GET", f"/v1/runs/{task_id}", None),
        ("GET", "/readyz", None),
    ):
        answer = await client.call(method, path, document)
        assert answer.status == 503, answer.text
        assert int(answer.headers["Retry-After"]) > 0
        assert "127.0.0.1" not in answer.text
        assert "connect" not in answer.text.lower().replace("database", "")
    assert (await client.call("GET", "/healthz")).status == 200
    assert (await client.call("GET", "/v1/version")).status == 200


async def test_requests_get_503_during_an_outage_and_work_after_it(
    proxied: Client, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = await proxied.made()
    await proxy.close()
    with caplog.at_level(logging.ERROR):
        await check_unavailable(proxied, task_id)
    lines = [record.getMessage() for record in caplog.records if "request_failed" in record.getMessage()]
    assert len(lines) == 6
    assert f"tenant={proxied.tenant_id}" in lines[0]
    assert "route=/v1/tasks/{id}/run-now" in lines[3]
    assert all("request_id=" in line and "\n" not in line for line in lines)
    await proxy.open()
    await until_ready(proxied)
    assert (await proxied.call("GET", f"/v1/tasks/{task_id}")).status == 200
    assert (await proxied.create()).status == 201


async def test_a_server_that_starts_before_its_database(
    proxy: Proxy,
    proxied_url: str,
    sql: Connection,
    session: aiohttp.ClientSession,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tenant = await add_tenant(sql, "early")
    await proxy.close()
    with caplog.at_level(logging.INFO, "tocsin.api.main"):
        async with serving(Settings(proxied_url, port=0)) as port:
            client = Client(session, port, *tenant)
            await check_unavailable(client, "00000000-0000-7000-8000-000000000000")
            await proxy.open()
            await until_ready(client)
            assert (await client.create()).status == 201
    messages = [record.getMessage() for record in caplog.records if record.name == "tocsin.api.main"]
    assert [message.split(";")[0] for message in messages] == ["the database does not answer", "the database answers"]


@pytest.fixture
async def own_postgres(open_tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A server of this test's own, to stop and start."""
    server = EmbeddedPostgres(open_tmp_path / "stopped-and-started", settings=throwaway_settings())
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)


async def test_a_stopped_and_started_database(own_postgres: EmbeddedPostgres, session: aiohttp.ClientSession) -> None:
    await migrate(own_postgres.dsn)
    connection = await asyncpg.connect(own_postgres.dsn)
    tenant = await add_tenant(connection, "first")
    await connection.close()
    async with serving(Settings(own_postgres.dsn, port=0)) as port:
        client = Client(session, port, *tenant)
        task_id = await client.made()
        await asyncio.to_thread(own_postgres.stop)
        await check_unavailable(client, task_id)
        await asyncio.to_thread(own_postgres.start)
        await until_ready(client)
        assert (await client.call("GET", f"/v1/tasks/{task_id}")).status == 200


POOL = 4
BUSY = """select count(*) from pg_stat_activity where datname = current_database() and state <> 'idle'
and application_name like 'tocsin%'"""


async def check_pool_survives_disconnects(
    database_url: str, sql: Connection, session: aiohttp.ClientSession, patience: float = 20
) -> None:
    """1,000 clients that hang up after 1 to 20 ms; then every connection of the pool is at hand and idle."""
    async with serving(Settings(database_url, port=0, pool=POOL, grace=0.2)) as port:
        client = Client(session, port, *await add_tenant(sql, "hasty"))
        task_id = await client.made()
        for hasty in range(0, 1000, 20):
            await asyncio.gather(*(hang_up(client, task_id, (hasty + n) % 20 / 1000 + 0.001) for n in range(20)))
        blocked = "begin; lock table tasks in access exclusive mode"
        async with asyncio.timeout(patience):
            await sql.execute(blocked)
            # each of these holds a connection of its own until the lock is gone
            waiting = [asyncio.create_task(client.call("GET", f"/v1/tasks/{task_id}")) for _ in range(POOL)]
            while await sql.fetchval("select count(*) from pg_locks where not granted") < POOL:
                assert not any(task.done() for task in waiting)
            await sql.execute("rollback")
            assert [(await task).status for task in waiting] == [200] * POOL
            while await sql.fetchval(BUSY):
                pass


async def hang_up(client: Client, task_id: str, after: float) -> None:
    content = json.dumps(definition()).encode()
    path = "/v1/tasks" if after > 0.01 else f"/v1/tasks/{task_id}/run-now"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.key}\r\n"
    content = content if after > 0.01 else b""
    _, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), after)  # the client's patience is what is tested
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_b68_clients_that_hang_up_leave_the_pool_whole(
    database_url: str, sql: Connection, session: aiohttp.ClientSession
) -> None:
    await check_pool_survives_disconnects(database_url, sql, session)


async def test_b68_a_pool_that_leaks_is_caught(
    database_url: str, sql: Connection, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: some writes keep a connection, as one whose release was cancelled would."""
    kept: list[AbstractAsyncContextManager[PostgresTaskTransaction]] = []
    whole = PostgresTasks.write

    @contextlib.asynccontextmanager
    async def leaking(self: PostgresTasks) -> AsyncIterator[PostgresTaskTransaction]:
        if len(kept) < POOL - 1:
            leaked = whole(self)
            await leaked.__aenter__()
            kept.append(leaked)
        async with whole(self) as transaction:
            yield transaction

    monkeypatch.setattr(PostgresTasks, "write", leaking)
    with pytest.raises((AssertionError, TimeoutError)):
        await check_pool_survives_disconnects(database_url, sql, session, patience=1)
