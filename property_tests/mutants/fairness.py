"""Broken twins of the choice: each takes one guard out, and the fairness machine must notice."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import pytest

from property_tests.fairness import FairnessMachine
from property_tests.machine import Profile
from property_tests.mutant import Instead, Mutant
from tocsin.common.store.rows import Begun, Pending
from tocsin.engine import choose as choose_module
from tocsin.engine.board import Board
from tocsin.engine.choose import Candidate
from tocsin.engine.endpoints import Endpoint, Endpoints
from tocsin.engine.tenant import TenantScheduler


def one_more_than_the_cap(patch: pytest.MonkeyPatch) -> None:
    def room(self: TenantScheduler) -> int:
        return self.cap + 1 - self.in_flight

    patch.setattr(TenantScheduler, "room", property(room))


def a_landing_frees_an_endpoint_twice(patch: pytest.MonkeyPatch) -> None:
    def land(self: Endpoints, endpoint: Endpoint) -> None:
        self.in_flight[endpoint] = max(0, self.in_flight[endpoint] - 2)

    patch.setattr(Endpoints, "land", land)


def a_landing_frees_nothing(patch: pytest.MonkeyPatch) -> None:
    land = Board.land

    def forget(self: Board, run: Begun) -> None:
        land(self, run)
        if (scheduler := self.tenants.get(run.tenant_id)) is not None:
            scheduler.in_flight += 1

    patch.setattr(Board, "land", forget)


def weights_are_ignored(patch: pytest.MonkeyPatch) -> None:
    candidates = Board._candidates

    def alike(self: Board, until: datetime) -> Iterator[Candidate]:
        for candidate in candidates(self, until):
            weight = self.tenants[candidate.tenant_id].tenant.weight
            candidate.usage *= weight
            candidate.cost *= weight
            yield candidate

    patch.setattr(Board, "_candidates", alike)


def the_lowest_priority_starves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(choose_module, "ANY_PRIORITY", 10**9)


def priority_is_left_out(patch: pytest.MonkeyPatch) -> None:
    key = choose_module._Order._key

    def flat(self: choose_module._Order, tenant: choose_module._Tenant, number: int) -> choose_module._Key:
        return (0 if self._with_priority else key(self, tenant, number)[0], *key(self, tenant, number)[1:])

    patch.setattr(choose_module._Order, "_key", flat)


def full_endpoints_are_looked_at_each_time(patch: pytest.MonkeyPatch) -> None:
    """Their rows stay in the queue, before those that could be begun."""

    def stay(_self: Board, _refused: Sequence[tuple[Pending, Endpoint]]) -> None:
        return

    patch.setattr(Board, "_set_waiting", stay)


MUTANTS: Sequence[Mutant] = (
    Mutant("a cap is off by one", 10, FairnessMachine, one_more_than_the_cap, Profile(30, 30)),
    Mutant(
        "a landing frees an endpoint twice", 10, FairnessMachine, a_landing_frees_an_endpoint_twice, Profile(30, 30)
    ),
    Mutant(
        "a landing frees nothing",
        9,
        FairnessMachine,
        a_landing_frees_nothing,
        Profile(30, 30),
        instead=Instead(10, "for a tenant that nothing is begun of falls short of its share before it waits too long"),
    ),
    Mutant("weights are ignored", 10, FairnessMachine, weights_are_ignored, Profile(30, 30)),
    Mutant("the lowest priority starves", 9, FairnessMachine, the_lowest_priority_starves, Profile(30, 30)),
    Mutant("priority is left out", 9, FairnessMachine, priority_is_left_out, Profile(30, 30)),
    Mutant(
        "full endpoints are looked at each time",
        10,
        FairnessMachine,
        full_endpoints_are_looked_at_each_time,
        Profile(30, 30),
    ),
)
