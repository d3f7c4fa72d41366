"""The lean pool: who gets which connection, and that none is lost, kept too long, or one too many."""

import asyncio

import pytest

from lean_bench import ScriptedPool, manual_clock, peer, turns
from tocsin.executor.transport import lean_pool
from tocsin.executor.transport.lean_pool import PeerKey
from tocsin.executor.transport.lean_protocol import Connection


class Calls:
    """Calls that wait for connections."""

    def __init__(self, open_limit: int = 1_000) -> None:
        self.clock = manual_clock()
        self.pool = ScriptedPool(self.clock, open_limit)

    async def wait(
        self, key: PeerKey, *, fresh: bool = False, limit: float | None = None
    ) -> "asyncio.Task[Connection]":
        task = asyncio.create_task(self.pool.wait(key, limit=limit, fresh=fresh))
        await turns()
        return task

    async def open(self, key: PeerKey) -> Connection:
        task = await self.wait(key)
        await self.pool.let()
        return task.result()


@pytest.fixture
async def calls() -> Calls:
    return Calls()


async def test_a_waiter_gets_the_connection_that_was_opened_for_it(calls: Calls) -> None:
    connection = await calls.open(peer())
    assert not connection.reused
    assert calls.pool.take(peer()) is None
    await calls.pool.close()


async def test_what_is_released_is_taken_again_the_last_one_first(calls: Calls) -> None:
    first, second = await calls.open(peer()), await calls.open(peer())
    calls.pool.release(first)
    calls.pool.release(second)
    assert [calls.pool.take(peer()), calls.pool.take(peer()), calls.pool.take(peer())] == [second, first, None]
    assert second.reused
    await calls.pool.close()


async def test_a_connection_is_of_one_peer(calls: Calls) -> None:
    calls.pool.release(await calls.open(peer(1)))
    for other in (peer(2), peer(1)._replace(port=81), peer(1, "https"), peer(1)._replace(address="127.0.0.2")):
        assert calls.pool.take(other) is None
    await calls.pool.close()


async def test_a_waiter_takes_a_released_connection_before_its_own_is_open(calls: Calls) -> None:
    held = await calls.open(peer())
    waiting = await calls.wait(peer())
    calls.pool.release(held)
    await turns()
    assert waiting.result() is held
    assert len(calls.pool.begun) == 1  # under way; it becomes an idle one
    await calls.pool.let()
    spare = calls.pool.take(peer())
    assert spare is not None
    assert spare is not held
    await calls.pool.close()


async def test_what_has_not_begun_is_not_opened_where_a_released_connection_served(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lean_pool, "CONNECTS_AT_ONCE", 1)
    calls = Calls()
    held = await calls.open(peer())
    stuck, waiting = await calls.wait(peer(1)), await calls.wait(peer())
    calls.pool.release(held)
    await turns()
    assert waiting.result() is held
    await calls.pool.let()
    assert stuck.done()
    assert not calls.pool.begun
    await calls.pool.close()


async def test_waiters_come_in_their_order_and_a_fresh_one_takes_no_old_connection(calls: Calls) -> None:
    held = await calls.open(peer())
    fresh, first, second = [await calls.wait(peer(), fresh=fresh) for fresh in (True, False, False)]
    calls.pool.release(held)
    await turns()
    assert [task.done() for task in (fresh, first, second)] == [False, True, False]
    for _ in range(2):
        await calls.pool.let()
    assert not fresh.result().reused
    assert second.done()
    await calls.pool.close()


async def test_a_failed_opening_fails_one_waiter_and_no_other(calls: Calls) -> None:
    first, second = await calls.wait(peer()), await calls.wait(peer())
    await calls.pool.let(ConnectionRefusedError())
    with pytest.raises(ConnectionRefusedError):
        await first
    await calls.pool.let()
    assert second.done()
    await calls.pool.close()


async def test_the_failure_of_an_opening_reaches_who_waits_though_it_was_asked_for_by_another(calls: Calls) -> None:
    held = await calls.open(peer())
    served = await calls.wait(peer())
    calls.pool.release(held)
    await turns()
    waiting = await calls.wait(peer())  # joins the opening that is left over
    assert (served.done(), len(calls.pool.begun)) == (True, 1)
    await calls.pool.let(ConnectionRefusedError())
    with pytest.raises(ConnectionRefusedError):
        await waiting
    await calls.pool.close()


async def test_a_waiter_that_is_cancelled_ends_its_opening_and_leaves_nothing(calls: Calls) -> None:
    waiting = await calls.wait(peer())
    waiting.cancel()
    await turns()
    assert (waiting.cancelled(), len(calls.pool.begun), calls.pool._places) == (True, 0, {})


async def test_a_connection_given_to_a_waiter_that_is_cancelled_goes_to_the_next(calls: Calls) -> None:
    first, second = await calls.wait(peer()), await calls.wait(peer())
    opening = next(iter(calls.pool.begun.values()))
    opening.set_result(None)
    while not calls.pool.made:
        await asyncio.sleep(0)
    first.cancel()  # it has been given the connection, and has not run since
    await turns()
    assert first.cancelled()
    assert second.result() is calls.pool.made[0].connection
    await calls.pool.close()


@pytest.mark.parametrize("given", [False, True])
async def test_a_connection_that_comes_just_as_its_only_waiter_is_cancelled_is_closed(
    calls: Calls, given: bool
) -> None:
    waiting = await calls.wait(peer())
    (permit,) = calls.pool.begun.values()
    permit.set_result(None)
    if given:
        while not calls.pool.made:
            await asyncio.sleep(0)
    waiting.cancel()
    await turns()
    assert waiting.cancelled()
    assert all(transport.closed for transport in calls.pool.made)
    assert (calls.pool.take(peer()), calls.pool._places) == (None, {})


async def test_a_waiter_gives_up_after_its_part_of_the_deadline(calls: Calls) -> None:
    waiting = await calls.wait(peer(), limit=0.0)
    with pytest.raises(TimeoutError):
        await waiting
    await turns()
    assert (len(calls.pool.begun), calls.pool._places) == (0, {})


async def test_idle_connections_are_kept_for_75_seconds(calls: Calls) -> None:
    old, young = await calls.open(peer()), await calls.open(peer())
    calls.pool.release(old)
    calls.clock.advance(60)
    calls.pool.release(young)
    calls.pool.sweep()
    assert old.open
    calls.clock.advance(15)
    calls.pool.sweep()
    assert (old.open, young.open) == (False, True)
    assert calls.pool.take(peer()) is young
    await turns()
    assert calls.pool.take(peer()) is None
    await calls.pool.close()


async def test_at_the_limit_the_longest_idle_connection_makes_way() -> None:
    calls = Calls(open_limit=2)
    old, young = await calls.open(peer(1)), await calls.open(peer(2))
    calls.pool.release(old)
    calls.clock.advance(1)
    calls.pool.release(young)
    await calls.open(peer(3))
    assert (old.open, young.open) == (False, True)
    await calls.pool.close()


async def test_at_the_limit_with_none_idle_an_opening_waits_for_one() -> None:
    calls = Calls(open_limit=1)
    held = await calls.open(peer(1))
    waiting = await calls.wait(peer(2))
    assert not calls.pool.begun
    calls.pool.release(held)
    await turns()
    assert not held.open
    await calls.pool.let()
    assert waiting.done()
    held, waiting = waiting.result(), await calls.wait(peer(3))
    held.abort()
    await turns()
    await calls.pool.let()
    assert waiting.done()
    await calls.pool.close()


class Unlimited(ScriptedPool):
    """Broken: opens what is asked for."""

    def _room(self, ahead: bool) -> bool:
        return True


async def test_the_check_catches_a_pool_that_opens_beyond_its_limit() -> None:
    calls = Calls()
    calls.pool = Unlimited(calls.clock, open_limit=1)
    held = await calls.open(peer(1))
    await calls.wait(peer(2))
    assert len(calls.pool.begun) == 1
    assert held.open
    await calls.pool.close()


async def test_a_lost_connection_is_off_the_books(calls: Calls) -> None:
    first, second = await calls.open(peer()), await calls.open(peer())
    calls.pool.release(first)
    first.abort()
    second.abort()
    await turns()
    assert (calls.pool.take(peer()), calls.pool._places, calls.pool._open_ones) == (None, {}, set())


async def test_a_handshake_of_each_scheme_waits_for_its_own_kind_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean_pool, "HANDSHAKES_AT_ONCE", 1)
    calls = Calls()
    for number in range(3):
        await calls.wait(peer(number, "https"))
    assert len(calls.pool.begun) == 1
    for number in range(3):
        await calls.wait(peer(number))
    assert len(calls.pool.begun) == 4
    await calls.pool.close()


async def warmed(calls: Calls, key: PeerKey, count: int) -> "asyncio.Task[bool]":
    task = asyncio.create_task(calls.pool.warm(key, count))
    await turns()
    return task


async def test_a_connection_is_opened_ahead_where_one_is_missing(calls: Calls) -> None:
    calls.pool.release(await calls.open(peer()))
    first, second, more = [await warmed(calls, peer(), 3) for _ in range(3)]
    assert (first.done(), second.done(), more.result()) == (False, False, False)
    await calls.pool.let()
    await calls.pool.let(ConnectionRefusedError())  # nobody waits for it
    assert (first.result(), second.result()) == (True, False)
    assert [calls.pool.take(peer()) is not None for _ in range(3)] == [True, True, False]
    await calls.pool.close()


async def test_a_call_waits_for_nothing_that_is_opened_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean_pool, "CONNECTS_AT_ONCE", 1)
    calls = Calls()
    ahead = [await warmed(calls, peer(number), 1) for number in range(3)]
    first, second = await calls.wait(peer(2)), await calls.wait(peer(2))
    assert ahead[2].done()  # its place goes to the call
    for _ in range(3):  # one was begun before anybody waited
        await calls.pool.let()
    assert (first.done(), second.done()) == (True, True)
    assert [opening.place.key for opening in calls.pool.begun] == [peer(1)]
    await calls.pool.close()


async def test_a_waiter_that_leaves_takes_what_waits_to_be_opened_ahead_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lean_pool, "CONNECTS_AT_ONCE", 1)
    calls = Calls()
    busy, waiting = await calls.wait(peer(1)), await calls.wait(peer())
    ahead = await warmed(calls, peer(), 2)
    waiting.cancel()
    await turns()
    assert waiting.cancelled()
    assert ahead.done()
    await calls.pool.let()
    assert busy.done()
    assert not calls.pool.begun
    await calls.pool.close()


async def test_half_of_the_limit_is_left_to_calls() -> None:
    calls = Calls(open_limit=6)
    calls.pool.release(await calls.open(peer(1)))
    for number in (2, 3):
        await warmed(calls, peer(number), 1)
    assert not await calls.pool.warm(peer(4), 1)
    assert [place.key for place in calls.pool._places.values()] == [peer(1), peer(2), peer(3)]
    await calls.pool.close()


async def test_closing_fails_who_waits_and_closes_every_connection(calls: Calls) -> None:
    idle, held = await calls.open(peer(1)), await calls.open(peer(2))
    calls.pool.release(idle)
    answer = held.send(b"request", "POST", 1.0)
    waiting = await calls.wait(peer(3))
    await calls.pool.close()
    with pytest.raises(ConnectionAbortedError):
        await waiting
    assert (idle.open, held.open, answer.done(), len(calls.pool.begun)) == (False, False, True, 0)
    with pytest.raises(ConnectionAbortedError):
        await calls.pool.wait(peer(1), limit=None, fresh=False)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("slow", [False, True])
async def test_an_opening_that_fails_leaves_its_room_to_what_waits_for_it(scheme: str, slow: bool) -> None:
    calls = Calls(open_limit=1)
    failing = await calls.wait(peer(1))
    other = await calls.wait(peer(2, scheme))
    if slow:
        calls.pool._lanes["http"].free(next(iter(calls.pool.begun)))
    await calls.pool.let(ConnectionRefusedError())
    with pytest.raises(ConnectionRefusedError):
        await failing
    assert [opening.place.key for opening in calls.pool.begun] == [peer(2, scheme)]
    await calls.pool.let()
    assert other.done()
    await calls.pool.close()
