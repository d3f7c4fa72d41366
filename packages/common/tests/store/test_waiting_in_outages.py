"""How long a process waits for a database from which nothing comes: for a connection and for an answer, each once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import pytest

from holding_proxy import proxied
from store_bench import PostgresBench
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.postgres import database as module
from tocsin.common.store.postgres.database import Database

STATEMENT = 1.0


@asynccontextmanager
async def a_port_that_never_answers() -> AsyncIterator[int]:
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _reader, writer: held.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in held:
            writer.transport.abort()
        server.close()


async def gives_up_connecting_within(seconds: float) -> bool:
    async with a_port_that_never_answers() as port:
        database = Database(f"postgresql://nobody@127.0.0.1:{port}/none", "test", size=1, timeout=60.0)
        try:
            async with asyncio.timeout(seconds):
                with pytest.raises(StoreUnavailableError):
                    await database.open()
        except TimeoutError:
            return False
        return True


async def test_a_connection_is_given_up_long_before_a_statement_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.CONNECT_SECONDS <= 2.0
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.1)
    assert await gives_up_connecting_within(10)
    monkeypatch.setattr(module, "CONNECT_SECONDS", 60.0)
    assert not await gives_up_connecting_within(0.5)


async def seconds_without_an_answer(bench: PostgresBench) -> float:
    """Of a statement that is cut off from its answer, and of the giving back of its connection."""
    loop = asyncio.get_running_loop()
    async with proxied(bench.url) as (proxy, url):
        database = Database(url, "test", size=1, timeout=STATEMENT)
        await database.open()
        proxy.hold()
        began = loop.time()
        with pytest.raises(OutcomeUnknownError):
            await database.fetch("now")
        waited = loop.time() - began
        proxy.release()
        assert len(await database.fetch("now")) == 1, "over another connection"
        await database.close()
    return waited


async def test_an_answer_is_waited_for_once(postgres_bench: PostgresBench) -> None:
    """Not again when its connection is given back: that would wait for the cancelling of the same statement."""
    assert await seconds_without_an_answer(postgres_bench) < 1.6 * STATEMENT


async def test_the_check_catches_a_connection_that_is_waited_for_again(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_drop", nullcontext)
    assert await seconds_without_an_answer(postgres_bench) > 1.6 * STATEMENT
