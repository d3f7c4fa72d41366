"""How long a process waits for a database from which nothing comes, or which is slow to let anybody in: for a
connection and for an answer, each once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import asyncpg
import pytest

from holding_proxy import Proxy, proxied
from store_bench import PostgresBench
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.postgres import database as module
from tocsin.common.store.postgres.database import Database

STATEMENT = 1.0
FIRST = 0.05
"""What a connection may take at first, here."""

SLOW = 5 * FIRST
"""What the server takes to let somebody in: more than the first attempt may take, and the two after it."""

ROUNDS = 9
"""Of attempts: the last one may take 256 times as long as the first."""

LONG = 60.0
"""The time of a statement where it must not matter."""

HANGS = 30.0
"""Nothing here takes so long but a wait that must not be."""


@asynccontextmanager
async def opened(
    bench: PostgresBench, *, kind: type[Database] = Database, size: int = 1, delay: float = 0.0, timeout: float = LONG
) -> AsyncIterator[tuple[Proxy, Database]]:
    async with proxied(bench.url) as (proxy, url):
        proxy.delay = delay
        database = kind(url, "test", size=size, timeout=timeout)
        await database.open()
        try:
            yield proxy, database
        finally:
            await database.close()


async def gives_up_within(seconds: float, database: Database) -> bool:
    """Whether a statement is told so soon that no connection is to be had."""
    try:
        async with asyncio.timeout(seconds):
            with pytest.raises(StoreUnavailableError):
                await database.fetch("now")
    except TimeoutError:
        return False
    return True


async def test_a_connection_is_given_up_long_before_a_statement_would_be(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.CONNECT_SECONDS <= 2.0
    monkeypatch.setattr(module, "CONNECT_SECONDS", FIRST)
    async with opened(postgres_bench) as (proxy, database):
        await proxy.cut()
        proxy.hold()
        assert await gives_up_within(HANGS, database)
        proxy.release()
        assert await attempts_until_let_in(database), "over another connection"


async def test_the_check_catches_a_connection_that_is_waited_for_as_long_as_a_statement(
    postgres_bench: PostgresBench,
) -> None:
    async with opened(postgres_bench) as (proxy, database):
        await proxy.cut()
        proxy.hold()
        assert not await gives_up_within(0.5, database)


Check = Callable[["asyncpg.Connection[asyncpg.Record]"], Awaitable[None]]


async def gives_up_after_the_login(
    bench: PostgresBench, monkeypatch: pytest.MonkeyPatch, check: Check, seconds: float
) -> bool:
    """Whether a connection is given up, and closed, whose server lets in and then falls silent."""
    checked = asyncio.Event()

    async def noted(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        checked.set()
        await check(connection)

    monkeypatch.setattr(module, "CONNECT_SECONDS", FIRST)
    async with opened(bench) as (proxy, database):
        monkeypatch.setattr(module, "_require_own_session", noted)
        await proxy.cut()
        proxy.hold_when_ready = True
        while not checked.is_set():  # on a busy machine the first attempts may not get through the login
            proxy.release()
            if not await gives_up_within(seconds, database):
                return False
        async with asyncio.timeout(HANGS):
            await proxy.left()
    return True


async def test_a_server_that_falls_silent_after_the_login_is_given_up_as_soon(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await gives_up_after_the_login(postgres_bench, monkeypatch, module._require_own_session, HANGS)


async def test_the_check_catches_a_leave_that_is_taken_of_a_silent_server(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = module._require_own_session

    async def taking_leave(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """As asyncpg does where a pool's `init` fails."""
        try:
            await check(connection)
        except BaseException:
            await connection.close()
            raise

    assert not await gives_up_after_the_login(postgres_bench, monkeypatch, taking_leave, 10 * FIRST)


async def attempts_until_let_in(database: Database, together: int = 1) -> int | None:
    """How often so many statements at once had to be sent until all got a connection."""
    for attempt in range(1, ROUNDS + 1):
        answers = await asyncio.gather(*(database.fetch("now") for _ in range(together)), return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if not failures:
            return attempt
        assert all(type(failure) is StoreUnavailableError for failure in failures), failures
    return None


async def test_the_first_connection_may_take_as_long_as_a_statement(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", FIRST)
    async with opened(postgres_bench, delay=SLOW) as (proxy, database):
        assert proxy.made == 1
        await proxy.cut()
        with pytest.raises(StoreUnavailableError):  # the delay would be too long for any but the first
            await database.fetch("now")


@pytest.mark.parametrize("size", [1, 3])
async def test_a_slow_server_is_given_twice_as_long_each_time_until_it_lets_in(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Attempts that fail together count once; and a success forgets those before it."""
    monkeypatch.setattr(module, "CONNECT_SECONDS", FIRST)
    async with opened(postgres_bench, size=size, delay=SLOW) as (proxy, database):
        for _ in range(2):
            await proxy.cut()
            attempts = await attempts_until_let_in(database, together=size)
            assert attempts is not None
            assert attempts > 3


class Impatient(Database):
    """Broken: every attempt may take as long as the first."""

    async def _connect(self, *args: Any, **kwargs: Any) -> "asyncpg.Connection[asyncpg.Record]":
        if self._pool is not None:
            self._connect_timeout = module.CONNECT_SECONDS
        return await super()._connect(*args, **kwargs)


async def test_the_check_catches_attempts_that_all_begin_anew(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", FIRST)
    async with opened(postgres_bench, kind=Impatient, delay=SLOW) as (proxy, database):
        await proxy.cut()
        assert await attempts_until_let_in(database) is None


async def connections_for_a_statement_without_an_answer(bench: PostgresBench) -> int:
    """How many are made for a statement that is cut off from its answer, and for the next one."""
    async with opened(bench, timeout=STATEMENT) as (proxy, database):
        proxy.made = 0
        proxy.hold()
        async with asyncio.timeout(HANGS):
            with pytest.raises(OutcomeUnknownError):
                await database.fetch("now")
        proxy.release()
        assert await attempts_until_let_in(database), "over another connection"
        return proxy.made


async def test_an_answer_is_waited_for_once(postgres_bench: PostgresBench) -> None:
    """Not again when its connection is given back: that would wait for the cancelling of the same statement, which
    goes over a connection of its own."""
    assert await connections_for_a_statement_without_an_answer(postgres_bench) == 1


async def test_the_check_catches_a_connection_that_is_waited_for_again(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_drop", nullcontext)
    assert await connections_for_a_statement_without_an_answer(postgres_bench) > 1
