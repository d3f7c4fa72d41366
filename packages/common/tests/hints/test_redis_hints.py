"""The index in Redis: the suite of every index, what bounds it, and what it does when Redis does not do its part."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from redis.exceptions import RedisError

from hint_checks import KEPT, MINE, NOW, OF_USE, OTHER, Check, a_row, named
from redis_bench import Gate, RedisBench
from tocsin.common.clock import ManualClock
from tocsin.common.hints import redis_index
from tocsin.common.hints.port import HORIZON
from tocsin.common.hints.redis_index import REMEMBERED, RedisHints

LIMIT = 20.0


@pytest.mark.parametrize("check", [*KEPT, *OF_USE], ids=lambda check: check.__name__)
async def test_promise_11_it_is_a_hint_index_of_use(redis: RedisBench, check: Check) -> None:
    clock = ManualClock(NOW)
    await check(redis.index(clock.now), clock)


async def test_a_thousand_tenants_are_asked_at_once(redis: RedisBench) -> None:
    index = redis.index(lambda: NOW)
    tenants = [UUID(int=n) for n in range(1, 1_201)]
    rows = [a_row(tenant=tenant) for tenant in tenants]
    await index.add(rows)
    assert set(await index.due(tenants, 5.0, 2_000)) == {row.run_id for row in rows}
    assert len(await index.due(tenants, 5.0, 100)) <= 100


async def test_nobodys_backlog_takes_the_place_of_anothers(redis: RedisBench) -> None:
    index = redis.index(lambda: NOW)
    backlog = [a_row(-n / 50) for n in range(300)]
    other = a_row(4, tenant=OTHER)
    await index.add([*backlog, other])
    found = await named(index, MINE, OTHER, limit=100)
    assert other.run_id in found
    assert len(found) == 100
    first = {row.run_id for row in sorted(backlog, key=lambda row: row.due_at)[:99]}
    assert set(found) == first | {other.run_id}


async def test_two_installations_on_one_redis_do_not_mix(redis: RedisBench) -> None:
    index, another = redis.index(lambda: NOW, name="one"), redis.index(lambda: NOW, name="another")
    await index.add([a_row()])
    assert await named(another, MINE) == []
    await another.remove([(MINE, run_id) for run_id in await named(index, MINE)])
    assert len(await named(index, MINE)) == 1


async def test_its_memory_is_bounded(redis: RedisBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_index, "MOST", 10)
    clock = ManualClock(NOW)
    index = redis.index(clock.now)
    (far, near), rows = (a_row(HORIZON.total_seconds() + n) for n in (1, -1)), [a_row(n) for n in range(20)]
    await index.add([far])
    assert await redis.ask("DBSIZE") == 0
    await index.add([near, *rows])
    (key,) = await redis.ask("KEYS", "*")
    assert await redis.ask("ZCARD", key) == 10
    assert set(await named(index, MINE, lead=1e5)) == {row.run_id for row in rows[:10]}
    assert 0 < await redis.ask("TTL", key) <= 2 * HORIZON.total_seconds()
    clock.advance(3_600)
    await index.add([last := a_row(3_600)])
    assert await named(index, MINE) == [last.run_id]


async def test_a_run_that_is_put_off_for_long_is_forgotten(redis: RedisBench) -> None:
    index = redis.index(lambda: NOW)
    await index.add([row := a_row()])
    await index.add([replace(row, due_at=NOW + 2 * HORIZON)])
    assert await named(index, MINE, lead=1e6) == []


# --- faults


async def test_a_flush_loses_hints_only(redis: RedisBench) -> None:
    index = redis.index(lambda: NOW)
    await index.add([a_row()])
    await redis.ask("FLUSHALL")
    await redis.ask("SCRIPT", "FLUSH")
    assert await named(index, MINE) == []
    await index.add([row := a_row()])
    assert await named(index, MINE) == [row.run_id]


async def test_one_that_is_killed_fails_and_serves_again_once_it_is_back(redis: RedisBench) -> None:
    index = redis.index(lambda: NOW)
    await index.add([a_row()])
    await redis.kill()
    for ask in (lambda: named(index, MINE), lambda: index.add([a_row()]), lambda: index.remove([(MINE, MINE)])):
        with pytest.raises(RedisError):
            await ask()
    await redis.start_again()
    await index.add([row := a_row()])
    assert await named(index, MINE) == [row.run_id]


async def test_one_that_is_frozen_fails_and_is_not_waited_for(redis: RedisBench) -> None:
    index = redis.index(lambda: NOW, timeout=0.05)
    redis.freeze()
    async with asyncio.timeout(LIMIT):
        with pytest.raises(RedisError):
            await named(index, MINE)
    redis.thaw()
    again = redis.index(lambda: NOW)
    await again.add([row := a_row()])
    assert await named(again, MINE) == [row.run_id]


async def test_an_old_state_comes_back_as_hints_that_are_out_of_date(redis: RedisBench) -> None:
    index = redis.index(lambda: NOW)
    await index.add([row := a_row()])
    state = await redis.state()
    await index.remove([(MINE, row.run_id)])
    await index.add([a_row()])
    await redis.roll_back(state)
    assert await named(index, MINE) == [row.run_id]


async def _asked_again(redis: RedisBench, tmp: Path, make: Callable[[str], RedisHints]) -> tuple[list[UUID], UUID]:
    """Who asks for one tenant gives up, and asks for the other while the first answer is still on its way: what is
    said then, and what should have been."""
    async with Gate(tmp, redis.socket) as gate:
        index = make(gate.url)
        await index.add([a_row(), other := a_row(tenant=OTHER)])
        await named(index, MINE)
        gate.shut()
        asking = asyncio.create_task(named(index, MINE))
        async with asyncio.timeout(LIMIT):
            await gate.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        gate.open()
        return await named(index, OTHER), other.run_id


async def test_who_gives_up_does_not_leave_his_answer_to_the_next(redis: RedisBench, tmp_path: Path) -> None:
    found, wanted = await _asked_again(redis, tmp_path, lambda url: redis.index(lambda: NOW, url=url))
    assert found == [wanted]


async def test_a_client_that_keeps_its_connection_would_hear_the_wrong_answer(
    redis: RedisBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redis.asyncio.connection import AbstractConnection

    async def keeps(*_: object, **__: object) -> None:
        """Broken: whoever gave up, the connection stays."""

    def make(url: str) -> RedisHints:
        index = redis.index(lambda: NOW, url=url)
        monkeypatch.setattr(AbstractConnection, "disconnect", keeps)
        return index

    found, wanted = await _asked_again(redis, tmp_path, make)
    assert found != [wanted]
    monkeypatch.undo()


async def test_a_wrong_password_is_told_without_it(redis: RedisBench) -> None:
    await redis.ask("CONFIG", "SET", "requirepass", "s3cret")
    url = redis.server.url.replace("unix://", "unix://:wr0ng@")
    with pytest.raises(RedisError) as refused:
        await named(redis.index(lambda: NOW, url=url), MINE)
    assert "wr0ng" not in f"{refused.value!r} {refused.value}"
    right = redis.index(lambda: NOW, url=redis.server.url.replace("unix://", "unix://:s3cret@"))
    await right.add([row := a_row()])
    assert await named(right, MINE) == [row.run_id]


async def test_whatever_is_told_in_whatever_order_it_says_the_same_as_an_honest_one(redis: RedisBench) -> None:
    from honest_hints import HonestHints

    rng = random.Random(3)
    clock = ManualClock(NOW)
    index, honest = redis.index(clock.now), HonestHints(clock)
    rows = [a_row(rng.uniform(-60, 120), tenant=rng.choice([MINE, OTHER])) for _ in range(60)]
    for _ in range(80):
        some = rng.sample(rows, 5)
        if rng.random() < 0.6:
            moved = [replace(row, due_at=row.due_at + timedelta(seconds=rng.uniform(-9, 9))) for row in some]
            await index.add(moved)
            await honest.add(moved)
        else:
            gone = [(row.tenant_id, row.run_id) for row in some]
            await index.remove(gone)
            await honest.remove(gone)
        clock.advance(rng.uniform(0, 2))
        asked = rng.choice([(MINE,), (OTHER,), (MINE, OTHER)])
        wanted = {run_id for run_id in await named(honest, *asked) if honest.due_at(run_id) >= clock.now() - REMEMBERED}
        assert set(await named(index, *asked)) == wanted
