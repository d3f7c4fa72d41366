"""Turns: whose queues a sweep looks at from their start. Pure.

Each tenant's in one of so many sweeps. A turn is over once it is taken, whatever comes of it: where it failed, it comes
again after the others. Tenants that failed together are then looked at each alone, so that the one at fault holds up
no other; one that fails alone too takes part in ever fewer rounds of turns.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

log = logging.getLogger("tocsin.engine.read")

_LONGEST = 8
"""Of its own turns, those that a tenant which keeps failing passes over at most."""


@dataclass(slots=True)
class _Failed:
    alone: int = 0
    passes: int = 0


class Turns:
    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._taken = 0
        self._failed: dict[UUID, _Failed] = {}
        self._owed: set[UUID] = set()
        self._missed: list[tuple[list[UUID], bool]] = []

    def owe(self, tenant_ids: Iterable[UUID]) -> None:
        """Asks for a look at each of these in the next round, whosever turn it is."""
        self._owed.update(tenant_ids)

    def owed(self) -> Iterator[list[UUID]]:
        """The groups to be looked at now, each no longer owed once it is given out."""
        for group in self.groups(self._owed):
            self._owed.difference_update(group)
            yield group

    def take(self, tenant_ids: Iterable[UUID]) -> tuple[list[UUID], list[UUID]]:
        """Of all owned tenants, those whose turn it is not, and those whose it is."""
        turn = self._taken % self._turns
        self._taken += 1
        others: list[UUID] = []
        in_turn: list[UUID] = []
        still_failed: dict[UUID, _Failed] = {}
        for tenant_id in tenant_ids:
            mine = tenant_id.int % self._turns == turn
            if (failed := self._failed.get(tenant_id)) is not None:
                still_failed[tenant_id] = failed
                if mine and failed.passes:
                    failed.passes -= 1
                    mine = False
            (in_turn if mine else others).append(tenant_id)
        self._failed = still_failed
        return others, in_turn

    def groups(self, tenant_ids: Iterable[UUID]) -> list[list[UUID]]:
        """Who is looked at together: those that have not failed, and of those that have, each alone."""
        tenant_ids = list(tenant_ids)
        together = [tenant_id for tenant_id in tenant_ids if tenant_id not in self._failed]
        alone = [[tenant_id] for tenant_id in tenant_ids if tenant_id in self._failed]
        return [together, *alone] if together else alone

    def missed(self, group: list[UUID], *, taken_over: bool) -> None:
        """A look at this group failed."""
        self._missed.append((group, taken_over))

    def settle(self, *, answered: bool) -> None:
        """What becomes of what failed in a round; `answered`: the database answered others. An outage says nothing
        against a tenant."""
        missed, self._missed = self._missed, []
        before = set(self._failed)
        for group, taken_over in missed:
            by_itself = answered and len(group) == 1 and group[0] in before
            if taken_over and not by_itself:  # one that failed by itself has its turns
                self.owe(group)
            if by_itself:
                self._pass_over(group[0])
            elif answered:
                self._failed.update({tenant_id: _Failed() for tenant_id in group if tenant_id not in self._failed})

    def _pass_over(self, tenant_id: UUID) -> None:
        failed = self._failed[tenant_id]
        if not failed.alone:
            log.warning("tenant %s: its queues could not be read from their start; that is tried again", tenant_id)
        failed.passes = min(2**failed.alone, _LONGEST)
        failed.alone = min(failed.alone + 1, _LONGEST)

    def done(self, group: Iterable[UUID]) -> None:
        for tenant_id in group:
            if (failed := self._failed.pop(tenant_id, None)) is not None and failed.alone:
                log.warning("tenant %s: its queues could be read from their start after all", tenant_id)
