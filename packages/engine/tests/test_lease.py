"""The lease: trust that needs no database, the end that is told, and who may judge whom."""

import math
import os

import psutil
import pytest

from engine_bench import EngineBench, Executor
from tocsin.common.clock import ManualClock
from tocsin.common.errors import LeaseLostError, StoreUnavailableError
from tocsin.engine.lease import Judge, Lease, LeaseConfig
from tocsin.engine.process import is_gone, this_process


def a_lease(clock: ManualClock, lease: type[Lease] = Lease) -> Lease:
    return lease(EngineBench().ids.new(), clock, LeaseConfig(ttl=10, margin=2))


def last_trusted(lease: Lease, clock: ManualClock) -> float:
    """Seconds after the sending of the last heartbeat for which it is trusted, to a tenth."""
    lease.beaten(clock.boottime())
    clock.advance(1.0)  # the answer takes a second
    seconds = 1.0
    while lease.trusted and seconds < 20:
        clock.advance(0.1)
        seconds += 0.1
    return seconds


def test_a_lease_is_trusted_until_its_margin_counted_from_the_sending_of_its_beat() -> None:
    clock = EngineBench().clock
    assert last_trusted(a_lease(clock), clock) == pytest.approx(8.0, abs=0.11)


class TrustsAllItsTime(Lease):
    """Broken: no margin is left for what is under way."""

    @property
    def trusted(self) -> bool:
        return self._clock.boottime() < self._beaten_at + self.config.ttl


class TrustsTheOtherClock(Lease):
    """Broken: goes by a clock that stands still while the machine is suspended."""

    def beaten(self, started: float) -> None:
        super().beaten(self._clock.monotonic())

    @property
    def trusted(self) -> bool:
        return self._clock.monotonic() < self._beaten_at + self.config.ttl - self.config.margin


def test_the_check_catches_a_lease_without_margin() -> None:
    clock = EngineBench().clock
    assert last_trusted(a_lease(clock, TrustsAllItsTime), clock) > 9


def trusted_after_a_suspension(lease: Lease, clock: ManualClock) -> bool:
    lease.beaten(clock.boottime())
    clock.suspend(60)
    return lease.trusted


def test_a_suspended_machine_does_not_trust_its_lease_when_it_wakes() -> None:
    clock = EngineBench().clock
    assert not trusted_after_a_suspension(a_lease(clock), clock)
    assert trusted_after_a_suspension(a_lease(clock, TrustsTheOtherClock), clock)


def test_an_older_beat_does_not_take_trust_back() -> None:
    clock = EngineBench().clock
    lease = a_lease(clock)
    lease.beaten(clock.boottime())
    lease.beaten(clock.boottime() - 100)
    assert lease.trusted


async def test_a_beat_renews_trust_and_samples_the_databases_clock(bench: EngineBench) -> None:
    bench.clock.advance(9)
    before = bench.owner.lease.trusted
    await bench.first.beat()
    assert (before, bench.owner.lease.trusted) == (False, True)
    assert bench.owner._database_clock.now() == bench.clock.now()


async def test_a_beat_that_does_not_get_through_renews_nothing(bench: EngineBench) -> None:
    bench.database.unavailable = True
    bench.clock.advance(8)
    with pytest.raises(StoreUnavailableError):
        await bench.first.beat()
    assert not bench.owner.lease.trusted


async def test_a_lease_that_has_ended_is_lost(bench: EngineBench) -> None:
    bench.database.leases[bench.first.lease_id].expired_at = bench.clock.now()
    with pytest.raises(LeaseLostError):
        await bench.first.beat()


def judge_of(executor: Executor) -> Judge:
    return Judge(executor.store.leases, executor.owner.lease, executor.process, executor.meter)


async def pass_time(seconds: float, *beating: Executor) -> None:
    for _ in range(round(seconds)):
        beating[0].bench.clock.advance(1)
        for executor in beating:
            await executor.beat()


async def three(bench: EngineBench) -> list[Executor]:
    others = [bench.executor() for _ in range(2)]
    for executor in others:
        await executor.start()
    return [bench.first, *others]


async def test_a_silent_lease_is_ended_by_a_steady_judge_after_its_ttl(bench: EngineBench) -> None:
    one, two, silent = await three(bench)
    await pass_time(9, one, two)
    assert await judge_of(one).run_once() == {"expired": 0}
    await pass_time(2, one, two)
    assert await judge_of(one).run_once() == {"expired": 1}
    assert bench.database.leases[silent.lease_id].expired_at is not None
    assert bench.first.meter.counters["tocsin_leases_lost_total",] == 1


async def test_who_was_away_as_well_judges_nobody(bench: EngineBench) -> None:
    """The database was away for all of them: an outage is not a dead executor (promise 7)."""
    one, two, silent = await three(bench)
    bench.clock.advance(60)
    await pass_time(9, one, two)
    assert await judge_of(one).run_once() == {"expired": 0}
    await silent.beat()
    await pass_time(3, one, two)
    assert await judge_of(one).run_once() == {"expired": 0}


async def test_a_process_that_is_provably_gone_is_not_waited_for(bench: EngineBench) -> None:
    one, two, _ = await three(bench)
    here = this_process()
    one.process = here
    for executor in (one, two):
        bench.database.leases[executor.lease_id].process = here
    gone = bench.database.leases[two.lease_id]
    gone.process = type(here)(here.node, here.boot, here.pid_namespace, here.pid, here.started - 100)
    assert await judge_of(one).run_once() == {"expired": 1}
    assert gone.expired_at is not None
    assert bench.database.leases[one.lease_id].expired_at is None


def test_a_process_is_known_by_its_pid_and_its_start() -> None:
    me = this_process()
    assert not is_gone(me.pid, me.started)
    assert is_gone(me.pid, me.started - 10)
    unused = next(pid for pid in range(4_000_000, 0, -1) if not psutil.pid_exists(pid))
    assert is_gone(unused, me.started)
    assert me.pid == os.getpid()


class RevivedByAnAnswer(Lease):
    """Broken: a heartbeat that was under way gives the trust back."""

    def give_up(self) -> None:
        self._beaten_at = -math.inf


@pytest.mark.parametrize(("lease", "trusted"), [(Lease, False), (RevivedByAnAnswer, True)])
def test_promise_6_a_heartbeat_under_way_does_not_revive_what_was_given_up(lease: type[Lease], trusted: bool) -> None:
    clock = EngineBench().clock
    given_up = a_lease(clock, lease)
    sent = clock.boottime()
    given_up.give_up()
    given_up.beaten(sent)
    assert given_up.trusted is trusted
