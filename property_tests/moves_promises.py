"""What the move machine holds at all times: promises 1, 2, 3, 5 and 10."""

from collections import Counter
from typing import Any
from uuid import UUID

from hypothesis.stateful import invariant

from property_tests.machine import Machine
from property_tests.moves_town import Town
from tocsin.common.store.rows import Outcome

CAPS = (2, 4)
"""The tenants, by their caps."""


class MovePromises(Machine):
    """`put`: the runs that were made to wait. `ended`: the last row of each that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.town = Town(self.look)
        self.database = self.town.database
        self.put: set[UUID] = set()
        self.ended: dict[UUID, Any] = {}
        self.tenants: list[UUID] = []

    @invariant()
    def look(self) -> None:
        """All of them at once: also between the rounds of one rule."""
        self.promise_1_no_run_is_lost()
        self.promise_2_a_fence_is_begun_once()
        self.promise_3_only_ended_leases_lose_runs()
        self.promise_5_what_has_ended_stays_so()
        self.promise_10_a_cap_is_kept_through_every_hand_over()
        self.promise_10_shares_of_a_cap_come_to_a_cap_at_most()

    def promise_1_no_run_is_lost(self) -> None:
        pending, running = {row.run_id for row in self.database.pending}, set(self.database.running)
        ended = {row.run_id for row in self.database.history.values() if row.state is not None}
        where = Counter([*pending, *running, *ended])
        for run_id in self.put:
            assert where[run_id] == 1, f"promise 1: a run is in {where[run_id]} places"

    def promise_2_a_fence_is_begun_once(self) -> None:
        for (run_id, fence), times in self.town.begins.items():
            assert times == 1, f"promise 2: a run was begun {times} times with one fence"
            assert fence == 1 or (run_id, fence - 1) in self.town.begins, "promise 2: a fence was passed over"

    def promise_3_only_ended_leases_lose_runs(self) -> None:
        for row in self.database.history.values():
            lease = self.database.leases.get(row.lease_id) if row.lease_id is not None else None
            if row.outcome is Outcome.LOST and lease is not None:
                assert lease.expired_at is not None, "promise 3: a run of a live lease was given back as lost"

    def promise_5_what_has_ended_stays_so(self) -> None:
        for row in self.database.history.values():
            if row.state is not None:
                known = self.ended.setdefault(row.run_id, row)
                assert known == row, "promise 5: a run ended twice, or its end has changed"

    def promise_10_a_cap_is_kept_through_every_hand_over(self) -> None:
        """By live leases. No lease is ended wrongly here, so the exception for a wrong hand-over is never needed."""
        live = {lease.id for lease in self.database.leases.values() if lease.expired_at is None}
        flying = Counter(row.run.tenant_id for row in self.database.running.values() if row.lease_id in live)
        for tenant_id, cap in zip(self.tenants, CAPS, strict=True):
            assert flying[tenant_id] <= cap, f"promise 10: {flying[tenant_id]} calls in flight under a cap of {cap}"

    def promise_10_shares_of_a_cap_come_to_a_cap_at_most(self) -> None:
        """Of the owners that may begin: their leases live, and they are not draining."""
        live = {lease.id for lease in self.database.leases.values() if lease.expired_at is None}
        shares: Counter[UUID] = Counter()
        for host in self.town.hosts:
            if host.lease_id in live and not host.dead and not host.owner.beginner.stopped:
                for tenant_id, scheduler in host.owner.board.tenants.items():
                    shares[tenant_id] += scheduler.cap
        for tenant_id, cap in zip(self.tenants, CAPS, strict=True):
            assert shares[tenant_id] <= cap, f"promise 10: owners share {shares[tenant_id]} of a cap of {cap}"
