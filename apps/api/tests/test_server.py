"""The process around the application: its socket, its stop, and what is not HTTP."""

import asyncio
import json
from collections.abc import Callable

import aiohttp
import pytest

from api_client import Client, Connection, add_tenant, serving
from tocsin.api.main import ListenError, Settings, listen, run


async def exchange(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and content of the first answer on a connection that is then at its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        content = await reader.readexactly(int(headers["content-length"]))
    writer.close()
    return int(lines[0].split()[1]), headers, content


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=range(8),
)
async def test_what_is_not_http_gets_a_problem_document(
    server: int, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    status, headers, content = await exchange(server, request_bytes)
    assert status == 400
    assert headers["content-type"] == "application/problem+json"
    assert headers["server"] == "tocsin"
    assert json.loads(content)["request_id"] == headers["x-request-id"]
    assert b"aiohttp" not in content
    assert not caplog.records


async def test_a_broken_content_is_the_clients_fault(client: Client) -> None:
    head = f"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.key}\r\n"
    status, headers, _ = await exchange(
        client.port, f"{head}Transfer-Encoding: chunked\r\n\r\nnot a length\r\n".encode()
    )
    assert (status, headers["content-type"]) == (400, "application/problem+json")


async def test_an_error_on_our_side_shows_nothing_of_the_inside(
    client: Client, sql: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await sql.execute("alter table tasks rename column fault to flaw")
    answer = await client.call("GET", "/v1/tasks")
    assert answer.status == 500
    assert "fault" not in answer.text
    (record,) = caplog.records
    line = record.getMessage()
    assert f"request_id={answer.headers['X-Request-Id']}" in line
    assert f"tenant={client.tenant_id}" in line


async def test_a_taken_port_is_said_in_one_sentence(database_url: str, server: int) -> None:
    with pytest.raises(ListenError, match=f"port {server} on 127.0.0.1 is taken by another program"):
        await run(Settings(database_url, port=server), ready=lambda _: None, stop=asyncio.Event())


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_that_is_not_ours(host: str) -> None:
    with pytest.raises(ListenError):
        listen(host, 0)


async def test_several_servers_share_a_port_where_asked(database_url: str, session: aiohttp.ClientSession) -> None:
    async with (
        serving(Settings(database_url, port=0, reuse_port=True)) as port,
        serving(Settings(database_url, port=port, reuse_port=True)) as second,
        session.get(f"http://127.0.0.1:{port}/healthz") as answer,
    ):
        assert second == port
        assert answer.status == 200


async def test_a_stop_lets_requests_end(database_url: str, sql: Connection, session: aiohttp.ClientSession) -> None:
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(run(Settings(database_url, port=0), ready=port.set_result, stop=stop))
    client = Client(session, await port, *await add_tenant(sql, "slow"))
    task_id = await client.made()
    await sql.execute("begin; lock table pending in access exclusive mode")
    running = asyncio.create_task(client.call("POST", f"/v1/tasks/{task_id}/run-now"))
    await until(sql, lambda waiting: waiting > 0)
    stop.set()
    await refused(client.port)
    assert not running.done()
    await sql.execute("rollback")
    assert (await running).status == 202
    await server
    assert await sql.fetchval("select count(*) from pending where kind = 'now'") == 1


async def test_a_stop_does_not_wait_for_ever(
    database_url: str, sql: Connection, session: aiohttp.ClientSession
) -> None:
    await sql.execute("begin; lock table tasks in access exclusive mode")
    tenant = None
    async with serving(Settings(database_url, port=0, grace=0.2)) as port:
        await sql.execute("rollback")
        tenant = await add_tenant(sql, "stuck")
        client = Client(session, port, *tenant)
        await sql.execute("begin; lock table tasks in access exclusive mode")
        running = asyncio.create_task(client.call("GET", "/v1/tasks"))
        await until(sql, lambda waiting: waiting > 0)
    with pytest.raises(aiohttp.ClientError):
        await running
    await sql.execute("rollback")


async def until(sql: Connection, enough: Callable[[int], bool]) -> None:
    """Returns when that many statements wait for locks."""
    async with asyncio.timeout(10):
        while not enough(await sql.fetchval("select count(*) from pg_locks where not granted")):
            pass


async def refused(port: int) -> None:
    """Returns when connections to the port are refused."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                return
            writer.close()
