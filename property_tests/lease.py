"""The lease machine: who lives, who may call, who is judged, under every clock and every cut (promises 6, 7, 8).

Several processes with clocks of their own beat, judge each other, drain, leave, freeze, sleep and die, each over its
own way to one database, whose clock may be set and which may be away. A beat may be slow: it is sent, arrives and is
answered in steps of its own, with anything in between; it may arrive after its sender has given it up.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from property_tests.lease_peers import SAMPLES, START, Court, Journey, Peer
from property_tests.machine import Machine
from tocsin.common.errors import LeaseLostError, StoreUnavailableError
from tocsin.common.ids import Ids
from tocsin.common.models import AtSchedule, CallSpec, Kind, PlanSpec, Priority, TaskState
from tocsin.common.store.memory.leases import MemoryLeases
from tocsin.common.store.memory.runs import MemoryRuns
from tocsin.common.store.rows import BeginItem, Pending, Task
from tocsin.engine import lease as lease_module

EVERY = 1.0
"""A beat: so often that one may be late, or the database's clock set a little, and it has still been steady."""

WANTED, MOST = 3, 8
"""Processes that whoever mends things keeps, and processes at most, the dead ones counted."""

PAUSES = st.sampled_from([0.5, 1.25, 2.5, 5.0, 10.0, 25.0])
WAYS = st.sampled_from([0.0, 0.0, 0.5, 2.5, 5.0])

ROUNDS = st.integers(0, 9)

_TASK, _TENANT = UUID(int=7), UUID(int=8)

peers = st.integers(0, MOST - 1)


class LeaseMachine(Machine):
    """Three processes and more on two hosts. Each invariant says what is not held, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(lease_module, "is_gone", self._is_gone)
        self.court = Court()
        self.database = self.court.database
        self.ids = Ids(self.court.clock, random.Random(3))
        self.looking: Peer | None = None
        plan, call = PlanSpec(schedule=AtSchedule(at=START)), CallSpec(url="https://example.com/")
        task = Task(_TASK, _TENANT, "task", TaskState.ACTIVE, 1, 1, plan, call, None, START, START)
        self.database.tasks[_TASK] = task
        self.peers = self.court.peers
        for _ in range(WANTED):
            self.start()

    def teardown(self) -> None:
        self.patch.undo()
        tasks = [peer.under_way for peer in self.peers if peer.under_way is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def _is_gone(self, pid: int, started: float) -> bool:
        """What a process sees of its own host."""
        assert self.looking is not None
        here = [p for p in self.peers if p.host == self.looking.host and p.process.pid == pid and not p.dead]
        return all(peer.process.started != started for peer in here)

    def run(self, peer: Peer, step: Coroutine[Any, Any, Any]) -> None:
        self.looking = peer
        self._heard(peer, lambda: self.loop.run_until_complete(step))

    def _heard(self, peer: Peer, what: Callable[[], object]) -> None:
        try:
            what()
        except StoreUnavailableError:
            return
        except LeaseLostError:
            peer.lost = True

    def spin(self) -> None:
        async def turns() -> None:
            for _ in range(8):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def peer(self, number: int) -> Peer:
        return self.peers[number % len(self.peers)]

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        peer = Peer(self.court, len(self.peers), self.ids.new)
        self.peers.append(peer)
        self._register(peer)

    def _register(self, peer: Peer) -> None:
        self.run(peer, peer.beat.register("shared", 0, peer.process, "2026a"))
        peer.lost = peer.lease.id not in self.court.records

    @rule(
        rounds=st.sampled_from([1, 3, 9, 12, 22]),
        judging=st.sampled_from([True, True, False]),
        silent=st.sampled_from([frozenset(), frozenset({0}), frozenset({1}), frozenset({0, 1}), frozenset({0, 1, 2})]),
        asleep=st.booleans(),
        stepped=st.sampled_from([0.0, 1.5]),
        mended=st.sampled_from([True, True, False]),
    )
    def go_on(
        self, rounds: int, judging: bool, silent: frozenset[int], asleep: bool, stepped: float, mended: bool
    ) -> None:
        """All live on: each beats, and perhaps judges, every second, as far as it can. The silent ones do not run, or
        their machines are suspended. At first, what was broken may be mended, and the database's clock set a little."""
        if mended:
            self._mend()
        if stepped:
            self.set_the_databases_clock(stepped)
        away = [self.peer(number) for number in silent]
        for _ in range(rounds):
            self.court.pass_time(EVERY, away if asleep else ())
            here = [peer for peer in self.peers if peer not in away]
            for peer in here:
                if peer.acts and peer.journey is None:
                    self.run(peer, peer.beat.run_once())
            for peer in here:
                if judging and peer.acts:
                    self.run(peer, peer.judge.run_once())
            self.look()

    def _mend(self) -> None:
        if self.database.unavailable:
            self.outage_or_end()
        for number, peer in enumerate(self.peers):
            peer.frozen = peer.cut = False
            self.take_a_new_lease(number)
        while sum(peer.acts for peer in self.peers) < WANTED and len(self.peers) < MOST:
            self.start()

    @rule(number=peers, lost=st.booleans(), there=WAYS, back=WAYS)
    def beat(self, number: int, lost: bool, there: float, back: float) -> None:
        peer = self.peer(number)
        if peer.acts and peer.journey is None:
            peer.lose_answer, peer.there, peer.back = lost, there, back
            self.run(peer, peer.beat.run_once())
            peer.lose_answer, peer.there, peer.back = False, 0.0, 0.0

    @rule(number=peers)
    def judge(self, number: int) -> None:
        if self.peer(number).acts:
            self.run(self.peer(number), self.peer(number).judge.run_once())

    def take_a_new_lease(self, number: int) -> None:
        peer = self.peer(number)
        if peer.lost and not peer.dead and not peer.frozen and peer.journey is None:
            peer.take_lease()
            self._register(peer)

    @rule(number=peers, over=st.booleans())
    def drain(self, number: int, over: bool) -> None:
        """`over`: it leaves, as a drain ends, perhaps with a beat under way."""
        peer = self.peer(number)
        peer.lease.draining |= peer.acts
        if peer.acts and over:
            peer.left = True
            peer.lease.give_up()
            self.run(peer, peer.leases.leave(peer.lease.id))

    # --- a slow beat --------------------------------------------------------------------------------------------

    @rule(
        number=peers, arrives=st.booleans(), rounds=ROUNDS, leaving=st.booleans(), answered=st.booleans(), after=ROUNDS
    )
    def send_a_slow_beat(
        self, number: int, arrives: bool, rounds: int, leaving: bool, answered: bool, after: int
    ) -> None:
        """It may arrive at once; all others live on; its sender may leave meanwhile; it may be answered; then its
        sender is silent for a while."""
        peer = self.peer(number)
        if not peer.acts or peer.journey is not None:
            return
        peer.journey = Journey()
        peer.under_way = self.loop.create_task(peer.beat.run_once())
        self.spin()
        self._landed(peer)
        if arrives:
            self.it_arrives(number)
        self.go_on(rounds, True, frozenset(), False, 0.0, mended=False)
        if leaving:
            self.drain(number, True)
        if answered:
            self.it_is_answered(number, False)
            self.look()
            self.go_on(after, True, frozenset({number}), False, 0.0, mended=False)

    @rule(number=peers)
    def it_arrives(self, number: int) -> None:
        if (journey := self.peer(number).journey) is not None:
            journey.arrives.set()
            self.spin()
            self._landed(self.peer(number))

    @rule(number=peers, lost=st.booleans())
    def it_is_answered(self, number: int, lost: bool) -> None:
        peer = self.peer(number)
        if peer.journey is not None and not peer.frozen and not peer.dead and (peer.journey.arrived or lost):
            peer.journey.lost = lost or peer.cut
            peer.journey.arrives.set()
            peer.journey.answered.set()
            self.spin()
            self._landed(peer)

    @rule()
    @precondition(lambda self: self.court.given_up and not self.database.unavailable)
    def it_arrives_after_all(self) -> None:
        lease_id, draining = self.court.given_up.pop()
        now = self.loop.run_until_complete(MemoryLeases(self.database).beat(lease_id, draining=draining))
        self.court.took_effect(lease_id, now, draining=draining)

    def _landed(self, peer: Peer) -> None:
        task = peer.under_way
        if task is not None and task.done():
            peer.journey = peer.under_way = None
            self._heard(peer, task.result)

    # --- faults -------------------------------------------------------------------------------------------------

    @rule(number=peers, how=st.sampled_from(["freeze", "cut", "kill", "set its clock back", "set its clock on"]))
    def a_process_fails(self, number: int, how: str) -> None:
        """`kill`: what it has sent may still arrive."""
        peer = self.peer(number)
        if how == "freeze":
            peer.frozen = not peer.frozen
        elif how == "cut":
            peer.cut = not peer.cut
        elif how == "kill":
            peer.dead = True
        else:
            step = timedelta(hours=-2) if how.endswith("back") else timedelta(days=1)
            peer.clock.set_wall(peer.clock.now() + step)

    @rule(number=peers, seconds=PAUSES)
    def suspend(self, number: int, seconds: float) -> None:
        """The lid of its machine is closed for so long."""
        self.court.pass_time(seconds, [self.peer(number)])

    @rule()
    def outage_or_end(self) -> None:
        court = self.court
        if self.database.unavailable:
            court.outages.append((court.down_since, court.true))
        else:
            court.down_since = court.true
        self.database.unavailable = not self.database.unavailable

    @rule(seconds=st.sampled_from([-60.0, -5.0, -1.0, 1.0, 1.5, 2.0, 2.5, 12.0, 300.0]))
    def set_the_databases_clock(self, seconds: float) -> None:
        self.court.clock.set_wall(self.court.clock.now() + timedelta(seconds=seconds))
        self.court.stepped += seconds
        self.court.stepped_at = self.court.true
        if seconds < 0:
            for peer in self.peers:
                peer.samples = 0

    # --- what leases hold ---------------------------------------------------------------------------------------

    @rule(number=peers, count=st.integers(1, 40))
    def take_shards(self, number: int, count: int) -> None:
        peer = self.peer(number)
        known = peer.lease.id in self.court.records
        if known and not peer.frozen and not peer.dead:  # lost and left ones may have it under way
            self.run(peer, peer.leases.take_shards(peer.lease.id, "shared", count))

    @rule(number=peers)
    def begin(self, number: int) -> None:
        peer, lease_id = self.peer(number), self.peer(number).lease.id
        if peer.cut or self.database.unavailable or lease_id not in self.court.records:
            return
        now = self.court.clock.now()
        row = Pending(self.ids.new(), 0, _TENANT, _TASK, Priority.NORMAL, now, None, None, 0, Kind.NOW, plan_version=1)
        self.database.pending.add(row)
        runs = MemoryRuns(self.database, "tocsin")
        result = self.loop.run_until_complete(runs.begin(lease_id, [BeginItem(row)]))
        if result.begun and self.court.records[lease_id].ended:
            self.court.wrong(3, "a lease that has ended began a run")

    @rule(older_than=st.sampled_from([0.0, 120.0]), giving_back=st.booleans())
    def clear_up(self, older_than: float, giving_back: bool) -> None:
        peer = self.peers[0]
        if giving_back and not self.database.unavailable:
            self.loop.run_until_complete(MemoryRuns(self.database, "tocsin").give_back([_TENANT]))
        self.run(peer, peer.leases.remove(older_than))

    # --- promises -----------------------------------------------------------------------------------------------

    @invariant()
    def look(self) -> None:
        """All of them at once: also between the rounds of one rule."""
        self.promise_6_no_call_starts_without_trust()
        self.promise_6_an_ended_lease_never_lives_again()
        self.promise_7_an_outage_is_not_a_dead_executor()
        self.promise_8_nobody_runs_ahead_of_the_database()

    def promise_6_no_call_starts_without_trust(self) -> None:
        """Whoever trusts its lease has one that nobody has ended.

        Not held: of a dead process, which calls nobody (proven death ends its lease at once); and where the
        database's clock was set forward by more than the margin since the last beat: the margin is all that a process
        leaves for what it cannot see, and none sees that clock jump.
        """
        for peer in self.peers:
            record = self.court.records.get(peer.lease.id)
            if peer.lease.trusted and not peer.dead and record is not None and not record.excused:
                assert not record.ended, "promise 6: a process trusts its lease, which has ended"

    def promise_6_an_ended_lease_never_lives_again(self) -> None:
        for lease_id, record in self.court.records.items():
            row = self.database.leases.get(lease_id)
            is_live = row is not None and row.expired_at is None
            assert is_live != record.ended, "promise 6: an ended lease lives again, or one ended unseen"

    def promise_7_an_outage_is_not_a_dead_executor(self) -> None:
        """And what else each statement may not do to leases, seen at its end (`Court`): 1, 3, 6 and 10."""
        assert not self.court.wrongs, "promise {}: {}".format(*self.court.wrongs[0])

    def promise_8_nobody_runs_ahead_of_the_database(self) -> None:
        """Not held until enough beats are answered after the database's clock was set back: until then, processes
        hold to what it said before."""
        for peer in self.peers:
            if peer.database_clock.known and peer.samples >= SAMPLES:
                ahead = peer.database_clock.timestamp() - self.court.now()
                assert ahead < 1e-3, f"promise 8: a process is {ahead:g} s ahead of the database's clock"
