"""B68: a connection whose other end is gone without a word. It is given up in time, and the pool is whole again."""

import asyncio

import pytest

from faulty_network import Line, Network
from node_bench import NodeBench
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.postgres.database import Database
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.tasks import Tasks

STATEMENT_SECONDS = 0.5
STUCK = """select count(*) from pg_stat_activity
            where datname = current_database() and application_name like 'tocsin%'
              and (state = 'idle in transaction' or wait_event_type = 'Lock')"""


def set_timeout(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    defaults = Database.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "timeout", seconds)


async def check_pool_is_whole(bench: NodeBench, store: PostgresStore) -> None:
    """Every connection can be had and answers, and no session holds on to anything."""
    pool = store._work._pool
    assert pool is not None
    taken = [await pool.acquire(timeout=2 * STATEMENT_SECONDS) for _ in range(pool.get_max_size())]
    assert await asyncio.gather(*(connection.fetchval("select 1") for connection in taken)) == [1] * len(taken)
    for connection in taken:
        await pool.release(connection)

    async def nothing_is_stuck() -> bool:
        (stuck,) = await bench.fetch(STUCK)
        return bool(stuck[0] == 0)

    await bench.until(nothing_is_stuck, "no session is in a transaction or waits")


async def runs_whose_begins_get_stuck(bench: NodeBench, network: Network, url: str) -> None:
    """On some connections the answer to a begin never comes, nor anything else after it. Each run is called once."""
    node = bench.start(url=url)
    task = await bench.an_idle_task(await bench.a_tenant(), "/hook")
    await bench.until_ended(await bench.run_now(task))
    runs = []
    for _ in range(2):
        run_id = bench.ids.new()
        network.trap = (run_id.bytes, Line.hold)
        await bench.run_now_as(run_id, task)
        runs += await bench.until_ended(run_id, within=6 * STATEMENT_SECONDS)
    assert [row["state"] for row in runs] == ["succeeded"] * 2
    await bench.until_ended(await bench.run_now(task), within=1.0)
    await bench.check(task)
    assert node.executor._store is not None
    await check_pool_is_whole(bench, node.executor._store)


async def test_b68_a_connection_that_is_stuck_is_given_up_and_replaced(
    bench: NodeBench, network: Network, faulty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timeout(monkeypatch, STATEMENT_SECONDS)
    await runs_whose_begins_get_stuck(bench, network, faulty_url)


async def test_b68_a_statement_that_is_waited_for_without_end_is_caught(
    bench: NodeBench, network: Network, faulty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timeout(monkeypatch, 60)
    with pytest.raises(AssertionError, match="have ended"):
        await runs_whose_begins_get_stuck(bench, network, faulty_url)
    for line in network.lines:
        line.cut()


@pytest.mark.parametrize("cancelled", [False, True], ids=["waited for", "cancelled"])
@pytest.mark.parametrize("at", [b"BEGIN", b"insert into tasks", b"COMMIT"])
async def test_b68_a_write_that_gets_stuck_leaves_the_pool_whole(
    bench: NodeBench, network: Network, faulty_url: str, monkeypatch: pytest.MonkeyPatch, at: bytes, *, cancelled: bool
) -> None:
    """At any of its statements; and where its client has hung up meanwhile."""
    set_timeout(monkeypatch, STATEMENT_SECONDS)
    tenant = await bench.a_tenant()
    await bench.store.close()
    bench.store = PostgresStore(faulty_url, name="tocsin api", size=2)
    await bench.store.open()
    bench.tasks = Tasks(bench.store.tasks, bench.ids, lambda *_: None)
    for _ in range(3):
        network.trap = (at, Line.hold)
        creating = asyncio.create_task(bench.an_idle_task(tenant))
        await bench.until(lambda: network.sprung, "its answer is held")
        if cancelled:
            creating.cancel()
        (outcome,) = await asyncio.wait_for(asyncio.gather(creating, return_exceptions=True), 8 * STATEMENT_SECONDS)
        assert isinstance(outcome, asyncio.CancelledError if cancelled else StoreUnavailableError | OutcomeUnknownError)
    await check_pool_is_whole(bench, bench.store)
    await bench.an_idle_task(tenant)
