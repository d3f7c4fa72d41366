"""B72, for PostgreSQL's connections: a statement that is cancelled leaves no answer behind for the next caller."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from holding_proxy import Proxy, proxied
from store_bench import PostgresBench
from store_builders import a_task, a_tenant
from tocsin.common.store.postgres.store import PostgresStore

ROUNDS = 30
Ask = Callable[[UUID], Awaitable[set[UUID]]]
"""The tasks of a tenant, as a store says."""


async def foreign_answers(bench: PostgresBench, proxy: Proxy, ask: Ask) -> int:
    """Two tenants ask in turns over few connections, and the first one's asking is cancelled at different moments:
    before its answer came, while it is on its way, and in the steps of the loop in which it arrives. How many answers
    were another's, or none."""
    tasks: dict[UUID, set[UUID]] = {}
    for _ in range(2):
        tenant = await a_tenant(bench)
        tasks[tenant] = {(await a_task(bench, tenant)).id for _ in range(3)}
    one, two = tasks
    wrong = 0
    for number in range(ROUNDS):
        proxy.hold()
        asking = asyncio.ensure_future(ask(one))
        if number % 3:
            await proxy.answered.wait()
        else:
            await asyncio.sleep(0)
        if number % 3 == 2:
            proxy.release()
            for _ in range(number % 7):
                await asyncio.sleep(0)
        asking.cancel()
        proxy.release()
        next_ones = await asyncio.gather(ask(two), ask(one), ask(two))
        await asyncio.gather(asking, return_exceptions=True)
        wrong += sum(found != tasks[tenant] for found, tenant in zip(next_ones, (two, one, two), strict=True))
    return wrong


@pytest.mark.parametrize("size", [1, 2])
async def test_b72_a_cancelled_statement_leaves_no_answer_to_the_next_caller(
    postgres_bench: PostgresBench, size: int
) -> None:
    async with proxied(postgres_bench.url) as (proxy, url):
        store = PostgresStore(url, name="test", size=size)
        await store.open()

        async def ask(tenant_id: UUID) -> set[UUID]:
            return {view.id for view in await store.tasks.listing(tenant_id, None, 10)}

        assert await foreign_answers(postgres_bench, proxy, ask) == 0
        await store.close()


class OffByOne:
    """Broken: one connection, whose answers come in the order of its requests; who is cancelled leaves his behind."""

    def __init__(self, bench: PostgresBench) -> None:
        self._bench = bench
        self._answers: asyncio.Queue[set[UUID]] = asyncio.Queue()
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask(self, tenant_id: UUID) -> set[UUID]:
        task = asyncio.create_task(self._answer(tenant_id))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await self._answers.get()

    async def _answer(self, tenant_id: UUID) -> None:
        found = await self._bench.store.tasks.listing(tenant_id, None, 10)
        await self._answers.put({view.id for view in found})


async def test_b72_the_check_catches_a_connection_that_is_off_by_one(postgres_bench: PostgresBench) -> None:
    async with proxied(postgres_bench.url) as (proxy, _url):
        proxy.answered.set()
        proxy.hold = lambda: None  # type: ignore[method-assign]  # its own connection does not go through it
        assert await foreign_answers(postgres_bench, proxy, OffByOne(postgres_bench).ask) > 0
