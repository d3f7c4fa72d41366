"""The rules of the move machine's day: runs that wait, executors and cells that come and go, and what fails."""

import asyncio
from collections import Counter
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from property_tests.moves_promises import CAPS, MovePromises
from property_tests.moves_town import START, STEPS, Host
from tocsin.common.crashpoints import POINTS, set_handler
from tocsin.common.errors import ConflictError
from tocsin.common.ids import shard_of
from tocsin.common.models import AtSchedule, CallSpec, Kind, PlanSpec, Priority, TaskState
from tocsin.common.store.memory.database import Shard
from tocsin.common.store.rows import Pending, Task
from tocsin.common.store.tenants import Tenant

LANES = (0, 400, 600, 1023)
"""Of runs: with two and three shards of its own, each of a tenant's shards serves one at least."""

MOST_WAITING = 2
"""Runs of a lane that the machine makes wait at a time."""

MOST = 6
"""Executors that live at most, but for those that the Supervisor starts."""

SETTLED_WITHIN = 60
"""Rounds, of an eighth of a ttl: a crashed owner's lease runs out (two ttls where it was half of all), its shards are
taken, a promotion or a demotion is carried through, and what waits is begun, six times over."""

SUPERVISOR_POINTS = ["ask_move.before", "ask_move.after", "move_unowned.before", "move_unowned.after"]
_OF_HOSTS = (
    *("begin", "beat", "take_shards", "give_shards", "move_tenant", "give_back", "complete", "put_back", "leave"),
)
HOST_POINTS = sorted(point for point in POINTS if point.partition(".")[0] in _OF_HOSTS)

hosts = st.integers(0, 7)
tenants = st.integers(0, len(CAPS) - 1)


class DayRules(MovePromises):
    def __init__(self) -> None:
        super().__init__()
        set_handler(self.town.reach)
        self.tenants = [self._a_tenant(cap) for cap in CAPS]
        shared = sorted({shard_of(tenant_id) for tenant_id in self.tenants} | {0, 63})
        self.database.shards = {number: Shard("shared") for number in shared}  # few, so that each counts
        self.town.run(self.town.supervisor.begin_generation())
        self.town.run(self.town.store.tenants.set_executors("shared", 2))
        self.go_on(3, ending=True, supervised=True, youngest_first=False)

    def teardown(self) -> None:
        set_handler(None)
        tasks = [task for host in self.town.hosts for task in host.under_way.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            self.town.loop.run_until_complete(asyncio.wait(tasks))
        self.town.loop.close()

    def _a_tenant(self, cap: int) -> UUID:
        tenant = Tenant(self.town.ids.new(), f"tenant {cap}", 0, 1.0, cap, None)
        self.town.run(self.town.store.tenants.insert(tenant, ["c2VjcmV0"]))
        plan, call = PlanSpec(schedule=AtSchedule(at=START)), CallSpec(url="https://example.com/")
        task = Task(tenant.id, tenant.id, "task", TaskState.ACTIVE, 1, 1, plan, call, None, START, START)
        self.database.tasks[task.id] = task  # under its tenant's id: it has one
        return tenant.id

    def host(self, number: int) -> Host | None:
        alive = [host for host in self.town.hosts if not host.dead]
        return alive[number % len(alive)] if alive else None

    def cell(self, tenant: int) -> str:
        return f"tenant-{self.tenants[tenant]}"

    @initialize(
        tenant=tenants,
        k=st.integers(0, 3),
        lanes=st.lists(st.sampled_from(LANES), max_size=3),
        youngest_first=st.booleans(),
        crowded=st.booleans(),
    )
    def begin_the_day(self, tenant: int, k: int, lanes: list[int], youngest_first: bool, crowded: bool) -> None:
        """With calls in flight, and a tenant on shards of its own: the random rules alone come there too seldom.
        `crowded`: its new owners have more to begin than they may, while the old one's calls go on."""
        self.runs_wait(tenant, lanes, 1)
        if k:
            self.promote(tenant, k, True, youngest_first)
        if k and crowded:
            self.more_waits_than_may_begin(2, Priority.NORMAL)

    # --- work ---------------------------------------------------------------------------------------------------

    @rule(
        tenant=tenants,
        lanes=st.lists(st.sampled_from(LANES), min_size=1, max_size=6),
        rounds=st.integers(0, 2),
    )
    def runs_wait(self, tenant: int, lanes: list[int], rounds: int) -> None:
        """And are perhaps begun, within so many rounds."""
        for lane in lanes:
            self._wait_for(self.tenants[tenant], lane)
        if rounds:
            self.go_on(rounds, ending=False, supervised=False, youngest_first=False)

    @rule(rounds=st.integers(1, 2), priority=st.sampled_from([Priority.CRITICAL, Priority.NORMAL]))
    def more_waits_than_may_begin(self, rounds: int, priority: Priority) -> None:
        """Of every tenant and lane: whoever believes that it has room takes it."""
        waiting = Counter((row.tenant_id, row.lane) for row in self.database.pending if row.priority is priority)
        for tenant_id in self.tenants:
            for lane in LANES:
                for _ in range(MOST_WAITING - waiting[tenant_id, lane]):
                    self._wait_for(tenant_id, lane, priority)
        self.go_on(rounds, ending=False, supervised=False, youngest_first=False)

    def _wait_for(self, tenant_id: UUID, lane: int, priority: Priority = Priority.NORMAL) -> None:
        run_id, now = self.town.ids.new(), self.town.clock.now()
        row = Pending(run_id, 0, tenant_id, tenant_id, priority, now, None, None, lane, Kind.NOW, plan_version=1)
        self.database.pending.add(row)
        self.put.add(run_id)

    @rule(rounds=st.integers(1, 6), ending=st.booleans(), supervised=st.booleans(), youngest_first=st.booleans())
    def go_on(self, rounds: int, ending: bool, supervised: bool, youngest_first: bool) -> None:
        """All do all that they do; `ending`: calls are answered."""
        for _ in range(rounds):
            if supervised:
                self.supervise()
            self.town.run(self.town.round(ending=ending, youngest_first=youngest_first))
            self.look()

    @rule(number=hosts, name=st.sampled_from(STEPS))
    def step(self, number: int, name: str) -> None:
        host = self.host(number)
        if host is not None and host.acts:
            self.town.run(self.town.begin_step(host, name, lambda: host.step(name)))

    @rule(number=hosts, which=st.integers(0, 3), fails=st.booleans())
    def a_call_ends(self, number: int, which: int, fails: bool) -> None:
        host = self.host(number)
        if host is not None and host.acts and host.calls.open:
            run = host.calls.open[which % len(host.calls.open)]
            self.town.run(self.town.whole(host, lambda: host.end_call(run, fails=fails)))

    # --- moves --------------------------------------------------------------------------------------------------

    @rule()
    def supervise(self) -> None:
        if sum(not host.dead for host in self.town.hosts) < MOST:
            self.town.run(self.town.supervise())

    @rule(
        tenant=tenants,
        k=st.sampled_from([2, 1, 3, 2]),
        at_once=st.sampled_from([True, False, True]),
        youngest_first=st.booleans(),
    )
    def promote(self, tenant: int, k: int, at_once: bool, youngest_first: bool) -> None:
        """`at_once`: and it is carried through, with no call answered meanwhile."""
        try:
            self.town.run(self.town.store.tenants.open_cell(self.tenants[tenant], k))
        except ConflictError:
            return
        if at_once:
            self.go_on(5, ending=False, supervised=True, youngest_first=youngest_first)

    @rule(tenant=tenants)
    def demote(self, tenant: int) -> None:
        self.town.run(self.town.store.tenants.close_cell(self.cell(tenant), self.tenants[tenant]))

    @rule(cell=st.sampled_from(["shared", 0, 1]), executors=st.integers(1, 3))
    def size(self, cell: str | int, executors: int) -> None:
        name = self.cell(cell) if isinstance(cell, int) else cell
        self.town.run(self.town.store.tenants.set_executors(name, executors))

    @rule(number=hosts, over=st.booleans())
    def drain(self, number: int, over: bool) -> None:
        """`over`: and its grace is over at once, if it drained before."""
        host = self.host(number)
        if host is None:
            return
        if over and host.draining and host.acts and not host.under_way:
            self.town.run(self.town.whole(host, host.leave))
        host.draining = True

    # --- faults -------------------------------------------------------------------------------------------------

    @rule(number=hosts, fault=st.sampled_from(["crash", "freeze or thaw", *HOST_POINTS]))
    def an_executor_fails(self, number: int, fault: str) -> None:
        """At once, or at a crash point when it comes there."""
        if (host := self.host(number)) is None:
            return
        if fault == "crash":
            host.die()
            self.town.run(self.town.spin())
        elif fault == "freeze or thaw":
            host.frozen = not host.frozen
        else:
            host.armed = fault

    @rule(point=st.sampled_from(SUPERVISOR_POINTS), seconds=st.sampled_from([0.25, 5.0, 11.0]))
    def the_supervisor_fails(self, point: str, seconds: float) -> None:
        """And nobody runs for so long."""
        self.town.supervisor_armed = point
        self.town.clock.advance(seconds)

    @rule(
        number=hosts,
        mode=st.sampled_from(["slow", "slow", "slow", "unread", "lost", "late", "never", "held up"]),
        draining=st.sampled_from([True, True, False]),
        rounds=st.sampled_from([3, 2, 0]),
        arrives=st.booleans(),
    )
    def a_begin_goes_wrong(self, number: int, mode: str, draining: bool, rounds: int, arrives: bool) -> None:
        """Of runs that have just come to wait; its executor is perhaps told to drain. Meanwhile others go on, with what
        is more urgent; then it may arrive."""
        host = self.host(number)
        if host is None or not host.acts or host.under_way:
            return
        self._all_wait(host)
        if host.dead:
            return
        host.runs.mode = mode
        self.town.run(self.town.begin_step(host, "begin", lambda: host.step("begin")))
        host.runs.mode = "fast"  # there may have been nothing to begin
        host.draining |= draining
        if rounds:
            self.more_waits_than_may_begin(rounds, Priority.CRITICAL)
        if arrives:
            self._arrives(host)

    def _all_wait(self, host: Host) -> None:
        """A run of each lane of its tenants, and it has read them."""
        for tenant_id in host.owner.board.tenants:
            for lane in LANES:
                self._wait_for(tenant_id, lane)
            host.owner.reader.want_everything([tenant_id])
        self.town.run(self.town.whole(host, lambda: host.step("read")))

    @rule(number=hosts)
    def what_is_under_way_arrives(self, number: int) -> None:
        if self.town.on_the_way:
            runs, lease_id, items = self.town.on_the_way.pop()
            self.town.run(runs.arrive(lease_id, items))
        elif (host := self.host(number)) is not None:
            self._arrives(host)

    def _arrives(self, host: Host) -> None:
        if host.runs.gate is not None and not host.frozen:
            host.runs.gate.set()
            self.town.run(self.town.spin())

    # --- at rest ------------------------------------------------------------------------------------------------

    @rule()
    def promise_1_all_comes_to_rest(self) -> None:
        """No faults any more: every shard finds an owner that lives, every move is carried out, every run is called."""
        for host in self.town.hosts:
            host.frozen, host.armed, host.runs.mode = False, None, "fast"
            if host.runs.gate is not None:
                host.runs.gate.set()
        self.town.supervisor_armed = None
        self.town.run(self.town.spin())
        left = "nothing was done"
        for _ in range(SETTLED_WITHIN):
            self.town.run(self.town.round(ending=True))
            self.town.run(self.town.supervise())
            self.look()
            left = self._unsettled()
            if not left:
                break
        assert not left, f"promise 1: after {SETTLED_WITHIN} rounds {left}"

    def _unsettled(self) -> str:
        living = {host.lease_id for host in self.town.hosts if not host.dead}
        live = {lease.id for lease in self.database.leases.values() if lease.expired_at is None}
        if any(shard.owner not in living & live for shard in self.database.shards.values()):
            return "a shard has no owner that lives"
        if self.database.moves or any(placement.closing for placement in self.database.placements.values()):
            return "a move is not carried out"
        for tenant_id in self.tenants:
            own = {n for n, shard in self.database.shards.items() if shard.tenant_id == tenant_id}
            if self.database.tenants[tenant_id].shard not in (own or {shard_of(tenant_id)}):
                return "a tenant is not where it belongs"
        waiting = self.put - {row.run_id for row in self.database.history.values() if row.state is not None}
        return f"{len(waiting)} runs have not ended" if waiting else ""
