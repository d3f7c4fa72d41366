"""A real server on a loopback port, over a real database."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))  # pytest's importlib mode adds no folder itself

from api_client import Client, Connection, add_tenant, serving
from database_proxy import Proxy
from tocsin.api.main import Settings


@pytest.fixture
async def sql(database_url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as made:
        yield made


@pytest.fixture
async def server(database_url: str) -> AsyncIterator[int]:
    """The port of a server over the test's database."""
    async with serving(Settings(database_url, port=0)) as port:
        yield port


@pytest.fixture
async def client(server: int, session: aiohttp.ClientSession, sql: Connection) -> Client:
    return Client(session, server, *await add_tenant(sql, "first"))


@pytest.fixture
async def other(server: int, session: aiohttp.ClientSession, sql: Connection) -> Client:
    """Another tenant's client, of the same server."""
    return Client(session, server, *await add_tenant(sql, "second"))


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """A proxy before the test's database, open."""
    parts = urlsplit(database_url)
    assert parts.hostname is not None
    made = Proxy((parts.hostname, parts.port or 5432))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def proxied_url(database_url: str, proxy: Proxy) -> str:
    parts = urlsplit(database_url)
    return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl()


@pytest.fixture
async def proxied(proxied_url: str, session: aiohttp.ClientSession, sql: Connection) -> AsyncIterator[Client]:
    """A client of a server that reaches its database through the proxy."""
    async with serving(Settings(proxied_url, port=0, pool=4)) as port:
        yield Client(session, port, *await add_tenant(sql, "proxied"))
