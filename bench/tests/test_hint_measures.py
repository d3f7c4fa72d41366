"""The parts of `bench hints`, each once and small: both ways find the same rows, both claims claim all."""

import random
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from bench import hint_rival
from bench.frame import Options
from bench.hint_auto import Chosen
from bench.hint_reads import DUE_EACH, Cell, measure
from bench.hints import auto_figures, cells, redis
from bench.ledger import Judgement
from bench.reach import REDIS_REACHES
from bench.system import connected
from tocsin.cli.redis_server import RedisServer
from tocsin.common.clock import SystemClock
from tocsin.common.ids import Ids

CLAIMED = 1000


@pytest.fixture
async def index() -> AsyncIterator[RedisServer]:
    async with redis() as server:
        yield server


@pytest.mark.parametrize("pinned", [False, True])
async def test_both_ways_find_what_is_due(index: RedisServer, database_url: str, pinned: bool) -> None:
    ids = Ids(SystemClock(), random.Random(1))
    tenants = [ids.new() for _ in range(6)]
    async with connected(database_url) as connection:
        scans, hints = await measure(database_url, connection, index.url, tenants, Cell(5, 0, 2, pinned), 2)
    assert [read.found for read in (*scans, *hints)] == 4 * [5 * DUE_EACH]
    assert all(read.named == read.found and read.seconds > 0 for read in (*scans, *hints))


@pytest.mark.parametrize("by_redis", [False, True])
async def test_the_other_shape_claims_each_row_once(index: RedisServer, database_url: str, by_redis: bool) -> None:
    async with connected(database_url) as connection:
        await hint_rival.fill(connection, CLAIMED)
        for pinned in (False, True):
            rate = await hint_rival.rate(
                *(database_url, connection, index.url, 4), by_redis=by_redis, pinned=pinned, seconds=60.0
            )
            assert rate > 0
            left = await connection.fetchval("select count(*) from rival.runs where status = 0")
            assert left == 0


async def test_redis_is_as_far_away_as_the_network_has_it(index: RedisServer) -> None:
    async with (
        REDIS_REACHES["az"](index.url) as reached,
        Redis.from_url(reached.dsn) as far,
        Redis.from_url(index.url) as near,
    ):
        assert await far.set("key", "value")
        assert await near.get("key") == b"value"
        assert reached.calibration is not None
        assert reached.calibration.delayed_ms > reached.calibration.proxy_ms
        assert reached.calibration.asked == "ping"
    async with REDIS_REACHES["direct"](index.url) as reached:
        assert (reached.dsn, reached.calibration) == (index.url, None)


def test_every_combination_is_a_cell() -> None:
    assert len(set(cells(Options(short=True)))) == 8
    assert {str(cell) for cell in cells(Options(short=True))} >= {"t=1000 b=10000 x=4 pinned", "t=100 b=0 x=4"}
    assert len(set(cells(Options()))) == 36


def test_what_auto_chose_is_told() -> None:
    nothing = Judgement(0, 0, 0, 0, 0, 0, 0, 0, ())
    chosen = Chosen(1.0, {"hints": 1.23456}, {"hints": 7}, nothing)
    assert auto_figures(chosen) == {
        "auto chose": "the index",
        "auto ms a read, hints": 1.235,
        "auto reads, hints": 7,
    }
