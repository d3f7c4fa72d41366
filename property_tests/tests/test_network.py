"""The proxy before a real PostgreSQL: what it passes on, delays, holds and cuts; and how it knows one message from
another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest

from property_tests.chaos.up_behind_proxy import at_port
from property_tests.network.proxy import Cut, Proxy, Trap
from property_tests.network.wire import COMMIT, Execution, Message, Session, Splitter
from tocsin.common.clock import SystemClock
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.postgres.database import Database

RUN = UUID(int=1000)
LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)
INSERT = (
    "insert into history (run_id, tenant_id, task_id, ended_at, fence, losses, sent, kind, outcome)"
    " values (gen_random_uuid(), $1, $1, now(), 1, 0, true, 'slot', 'success')"
)
Through = asyncpg.Connection


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    parts = urlsplit(database_url)
    assert parts.hostname is not None
    assert parts.port is not None
    address = parts.hostname, parts.port
    async with Proxy(lambda: address, SystemClock()) as made:
        yield made


@pytest.fixture
async def through(database_url: str, proxy: Proxy) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    connection = await asyncpg.connect(at_port(database_url, proxy.port), server_settings={"application_name": "mine"})
    yield connection
    connection.terminate()


@pytest.fixture
async def database(database_url: str, proxy: Proxy) -> AsyncIterator[Database]:
    """The product's own door, through the proxy."""
    made = Database(at_port(database_url, proxy.port), "test", size=2)
    await made.open()
    yield made
    await made.close()


@asynccontextmanager
async def beside(database_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """A connection past the proxy."""
    connection = await asyncpg.connect(database_url)
    try:
        yield connection
    finally:
        await connection.close()


async def count_of(database_url: str) -> int:
    async with beside(database_url) as connection:
        return int(await connection.fetchval("select count(*) from history"))


async def executors_of(database_url: str) -> int:
    async with beside(database_url) as connection:
        return int(await connection.fetchval("select executors from placements where cell = 'shared'"))


async def test_the_proxy_passes_everything_on(through: "Through[asyncpg.Record]") -> None:
    assert await through.fetchval("select sum(length(repeat('x', 1000) || n)) from generate_series(1, 9) n") == 9009
    large = await through.fetch("select repeat('x', 1000) from generate_series(1, 2000)")
    assert len(large) == 2000


@pytest.mark.parametrize("mode", ["prefer", "disable"])
async def test_a_client_may_ask_for_encryption_first(
    database_url: str, proxy: Proxy, mode: Literal["prefer", "disable"]
) -> None:
    connection = await asyncpg.connect(at_port(database_url, proxy.port), ssl=mode)
    assert await connection.fetchval("select 1") == 1
    connection.terminate()


async def test_an_answer_to_a_commit_is_dropped_after_it_took_effect(
    through: "Through[asyncpg.Record]", proxy: Proxy, database_url: str
) -> None:
    trap = proxy.trap = Trap(None, Cut.AFTER)
    assert await through.fetchval("select 1") == 1  # no write: it is answered
    with pytest.raises(LOST):
        await through.execute(INSERT, RUN)
    assert trap.done.is_set()
    assert await count_of(database_url) == 1


async def test_of_a_transaction_only_the_commits_answer_is_dropped(
    through: "Through[asyncpg.Record]", proxy: Proxy, database_url: str
) -> None:
    trap = proxy.trap = Trap(None, Cut.AFTER)
    transaction = through.transaction()
    await transaction.start()
    await through.execute(INSERT, RUN)
    assert not trap.sprung
    with pytest.raises(LOST):
        await transaction.commit()
    assert trap.done.is_set()
    assert await count_of(database_url) == 1


@pytest.mark.parametrize("cut", list(Cut))
async def test_a_statement_is_cut_off_before_or_after_it_takes_effect(
    database: Database, proxy: Proxy, database_url: str, cut: Cut
) -> None:
    await database.fetch("placement_size", "shared", 5)
    trap = proxy.trap = Trap("placement_size", cut)
    await database.fetch("placement_list")  # another one passes
    assert not trap.sprung
    with pytest.raises(OutcomeUnknownError):
        await database.fetch("placement_size", "shared", 7)
    await asyncio.wait_for(trap.done.wait(), 5)
    assert trap.struck is not None
    assert await executors_of(database_url) == (5 if cut is Cut.BEFORE else 7)
    assert proxy.unanswered("placement_size") == 0
    await database.fetch("placement_size", "shared", 9)  # on a new connection
    assert await executors_of(database_url) == 9


@pytest.mark.parametrize("cut", list(Cut))
async def test_a_commit_is_cut_off_before_or_after_it_takes_effect(
    database: Database, proxy: Proxy, database_url: str, cut: Cut
) -> None:
    proxy.trap = Trap(COMMIT, cut)
    with pytest.raises((OutcomeUnknownError, StoreUnavailableError)):
        async with database.transaction() as transaction:
            await transaction.fetch("placement_size", "shared", 7)
    assert await executors_of(database_url) == (1 if cut is Cut.BEFORE else 7)


async def test_what_the_server_has_not_answered_is_on_the_wire(
    database: Database, proxy: Proxy, database_url: str
) -> None:
    await database.fetch("placement_size", "shared", 5)
    async with beside(database_url) as connection:
        async with connection.transaction():
            await connection.execute("select from placements where cell = 'shared' for update")
            waiting = asyncio.create_task(database.fetch("placement_size", "shared", 7))
            while not await connection.fetchval("select exists (select from pg_locks where not granted)"):
                pass
            assert proxy.unanswered("placement_size") == 1
        await waiting
    assert proxy.unanswered("placement_size") == 0


async def test_a_cut_resets_what_is_connected_and_a_refusal_takes_nothing_new(
    through: "Through[asyncpg.Record]", proxy: Proxy, database_url: str
) -> None:
    assert proxy.cut() == 1
    with pytest.raises(LOST):
        await through.fetchval("select 1")
    proxy.refusing = True
    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        await asyncpg.connect(at_port(database_url, proxy.port))
    proxy.refusing = False
    again = await asyncpg.connect(at_port(database_url, proxy.port))
    assert await again.fetchval("select 1") == 1
    again.terminate()


async def test_in_a_black_hole_nothing_arrives_until_it_is_released(
    through: "Through[asyncpg.Record]", proxy: Proxy, database_url: str
) -> None:
    proxy.hold(lambda name: name == "mine")
    asked = asyncio.create_task(through.execute(INSERT, RUN))
    other = await asyncpg.connect(at_port(database_url, proxy.port), server_settings={"application_name": "other"})
    assert await other.fetchval("select count(*) from history") == 0  # others get through, and ours has not
    other.terminate()
    assert not asked.done()
    proxy.release()
    await asked
    assert await count_of(database_url) == 1


@pytest.mark.parametrize("turns", range(12))
async def test_nothing_stays_connected_when_it_is_closed(turns: int) -> None:
    """Whatever a connection is at: at its beginning, in use, or on its way to its end since the client has gone."""
    ended: list[asyncio.Task[bytes]] = []
    came = asyncio.Event()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def end() -> bytes:
            try:
                return await reader.read()
            except OSError:
                return b""
            finally:
                writer.transport.abort()

        ended.append(asyncio.create_task(end()))
        came.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address: tuple[str, int] = server.sockets[0].getsockname()
    proxy = Proxy(lambda: address, SystemClock())
    await proxy.open()
    clients = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(2)]
    await asyncio.wait_for(came.wait(), 5)
    clients[0][1].transport.abort()
    for _ in range(turns):
        await asyncio.sleep(0)
    await proxy.close()
    clients[1][1].transport.abort()
    await asyncio.wait_for(asyncio.gather(*ended), 5)
    server.close()


async def test_a_delay_is_added_each_way(through: "Through[asyncpg.Record]", proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    await through.fetchval("select 1")
    proxy.delay = 0.05
    began = loop.time()
    await through.fetchval("select 1")
    assert loop.time() - began >= 0.1


def message(kind: bytes, body: bytes) -> Message:
    return Message(kind, kind + (4 + len(body)).to_bytes(4, "big") + body)


SSL = message(b"", (80877103).to_bytes(4, "big"))
STARTUP = message(b"", (196608).to_bytes(4, "big") + b"user\0me\0application_name\0mine\0\0")


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_messages_are_told_apart_however_they_are_cut(size: int) -> None:
    sent = [SSL, STARTUP, message(b"B", b"\0s1\0"), message(b"S", b"")]
    stream = b"".join(each.raw for each in sent)
    splitter = Splitter(opening=True)
    assert [m for at in range(0, len(stream), size) for m in splitter.feed(stream[at : at + size])] == sent
    assert sent[2].body == b"\0s1\0"
    answers = Splitter(opening=False)
    answers.expect_byte()
    stream = b"N" + message(b"Z", b"I").raw
    found = [m for at in range(0, len(stream), size) for m in answers.feed(stream[at : at + size])]
    assert found == [Message(b"", b"N"), message(b"Z", b"I")]


def test_a_session_is_asked_for_once_and_answered_once() -> None:
    session = Session({})
    assert SSL.asks_for_encryption
    assert not SSL.opens
    assert session.sees(SSL) is None
    assert session.ends(SSL) is None
    assert session.sees(STARTUP) is None
    assert session.ends(STARTUP) == ""
    assert session.application == "mine"


def test_a_statement_is_known_by_its_text() -> None:
    session = Session({"select 1": "one"})
    assert session.sees(message(b"P", b"s1\0select 1\0\0\0")) is None
    assert session.sees(message(b"B", b"\0s1\0")) == Execution("one", False)
    assert session.ends(message(b"E", b"\0\0\0\0\0")) is None
    assert session.ends(message(b"S", b"")) == "one"
    assert session.ends(message(b"S", b"")) == ""
    commit = message(b"Q", b"COMMIT;\0")
    assert session.sees(commit) == Execution(COMMIT, True)
    assert session.ends(commit) == COMMIT
    assert session.sees(message(b"Q", b"BEGIN;\0")) == Execution("", False)


def test_a_write_commits_at_once_or_with_its_transaction() -> None:
    session = Session({})
    session.sees(message(b"P", b"read\0select 1\0\0\0"))
    session.sees(message(b"P", b"write\0with x as (delete from  running) select 1\0\0\0"))
    read, write = message(b"B", b"\0read\0\0\0\0\0\0\0"), message(b"B", b"\0write\0\0\0\0\0\0\0")
    begin, commit, rollback = (message(b"Q", text) for text in (b"BEGIN;\0", b"COMMIT;\0", b"ROLLBACK;\0"))

    def commits(*messages: Message) -> list[bool]:
        return [(execution := session.sees(each)) is not None and execution.commits for each in messages]

    assert commits(read, write) == [False, True]
    assert commits(begin, write, commit) == [False, False, True]
    assert commits(begin, write, rollback, write) == [False, False, False, True]
