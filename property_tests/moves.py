"""The move machine: tenants, shards and cells change hands while runs wait and calls are in flight.

Promises 1, 2, 3, 5 and 10. Real owners and a real Supervisor over one store in memory. Executors come and go, crash at
any point, freeze, drain; begins are slow, or lose their answers; tenants are promoted to k shards of their own and
brought back.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import rule

from property_tests.moves_day import HOST_POINTS, MOST, SUPERVISOR_POINTS, DayRules, hosts, tenants
from property_tests.moves_town import Host
from tocsin.common.errors import ConflictError

WAYS: Mapping[str, str] = {
    "ask_move": "to_a_move",
    "beat": "to_a_beat",
    "begin": "to_a_begin",
    "complete": "to_an_answer",
    "give_back": "to_a_giving_back",
    "give_shards": "to_a_departure",
    "leave": "to_a_departure",
    "move_tenant": "to_a_move",
    "move_unowned": "to_a_move",
    "put_back": "to_a_begin_found_late",
    "take_shards": "to_a_new_executor",
}
"""How an executor or the Supervisor comes to its crash points: by their names without `before` or `after`."""

NO_WAYS: Mapping[str, str] = {
    "api.write": "nobody writes tasks here",
    "call": "a call is an order that the machine answers",
    "cancel_of_tasks": "all tasks allow overlaps",
    "expire": "each executor has a machine of its own, so none can prove another's death",
    "judge": "the store is asked without the engine's judge",
    "mark_faulty": "one-time schedules have no plan that could raise",
}
"""Crash points that nobody can come to here, and why."""

Way = Iterator[Sequence[Host]]


class MoveMachine(DayRules):
    @rule(number=hosts, tenant=tenants, point=st.sampled_from([*HOST_POINTS, *SUPERVISOR_POINTS]))
    def somebody_dies(self, number: int, tenant: int, point: str) -> None:
        """On its way to a crash point, to which the random rules alone come too seldom."""
        way: Callable[[int, int], Way] = getattr(self, WAYS[point.removesuffix(".before").removesuffix(".after")])
        for threatened in way(number, tenant):
            if point in SUPERVISOR_POINTS:
                self.town.supervisor_armed = point
            else:
                for host in threatened:
                    host.armed = point
        self.town.supervisor_armed = None
        for host in self.town.hosts:
            host.armed = None

    def _one_at_work(self, number: int, tenant: int) -> Host | None:
        """One that serves a tenant, this one if it is served; more of its runs wait than it may begin."""
        ready = [host for host in self.town.hosts if host.acts and not host.under_way and not host.draining]
        serving = [host for host in ready if self.tenants[tenant] in host.owner.board.tenants] or [
            host for host in ready if host.owner.board.tenants
        ]
        if not serving:
            return None
        host = serving[number % len(serving)]
        self._all_wait(host)
        return host

    def to_a_beat(self, number: int, _tenant: int) -> Way:
        host = self.host(number)
        if host is not None and host.acts:
            yield [host]
            self.town.run(self.town.whole(host, lambda: host.step("beat")))

    def to_a_begin(self, number: int, tenant: int) -> Way:
        host = self._one_at_work(number, tenant)
        if host is not None:
            self._end_calls(host)
            yield [host]
            self.town.run(self.town.whole(host, lambda: host.step("begin")))

    def to_an_answer(self, number: int, tenant: int) -> Way:
        host = self._one_at_work(number, tenant)
        if host is not None:
            self.town.run(self.town.whole(host, lambda: host.step("begin")))
            yield [host]
            self._end_calls(host)

    def to_a_begin_found_late(self, number: int, tenant: int) -> Way:
        """Its answer was lost, and to end its connection took so long that its runs are put back."""
        host = self._one_at_work(number, tenant)
        if host is not None:
            self._end_calls(host)
            host.runs.mode = "held up"
            self.town.run(self.town.whole(host, lambda: host.step("begin")))
            host.runs.mode = "fast"
            yield [host]
            self.town.run(self.town.whole(host, host.put_back))

    def to_a_giving_back(self, number: int, tenant: int) -> Way:
        """Of what another has held that died."""
        host = self._one_at_work(number, tenant)
        if host is not None:
            self.town.run(self.town.whole(host, lambda: host.step("begin")))
            host.die()
            self.town.run(self.town.spin())
            self.go_on(9, ending=True, supervised=False, youngest_first=False)
            yield [each for each in self.town.hosts if each.acts]
            self.go_on(2, ending=True, supervised=False, youngest_first=False)

    def to_a_departure(self, number: int, tenant: int) -> Way:
        host = self._one_at_work(number, tenant)
        if host is not None:
            yield [host]
            host.draining = True
            self.go_on(3, ending=True, supervised=False, youngest_first=False)

    def to_a_new_executor(self, number: int, _tenant: int) -> Way:
        alive = [host for host in self.town.hosts if not host.dead]
        if len(alive) >= MOST:
            alive[number % len(alive)].die()
            self.town.run(self.town.spin())
        self.town.run(self.town.start("shared", self.town.supervisor.generation))
        yield [self.town.hosts[-1]]
        self.go_on(3, ending=False, supervised=False, youngest_first=False)

    def to_a_move(self, _number: int, tenant: int) -> Way:
        self.demote(tenant)
        self.go_on(6, ending=True, supervised=True, youngest_first=False)
        with contextlib.suppress(ConflictError):
            self.town.run(self.town.store.tenants.open_cell(self.tenants[tenant], 1))
        yield [each for each in self.town.hosts if each.acts and each.cell == "shared"]
        self.go_on(5, ending=True, supervised=True, youngest_first=False)

    def _end_calls(self, host: Host) -> None:
        for run in list(host.calls.open):
            if host.acts:
                self.town.run(self.town.whole(host, partial(host.end_call, run)))
