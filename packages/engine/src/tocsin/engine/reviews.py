"""Reviews: the definitions of rows that wait for full endpoints, read again: an edit may have given them another."""

from collections.abc import Iterable
from uuid import UUID

from tocsin.engine.board import Board
from tocsin.engine.planner import Planner

AT_ONCE = 400
"""Definitions that a round reads at most."""

_STATEMENT = 100


class Reviews:
    """Some definitions a round, the tenants in turn: however many have full endpoints, no round is held up."""

    def __init__(self, board: Board, planner: Planner) -> None:
        self._board = board
        self._planner = planner
        self._tasks: dict[UUID, list[UUID]] = {}

    def plan(self, tenant_ids: Iterable[UUID]) -> None:
        """Asks for what waits of these tenants by now, but of those whose last review is not over."""
        for tenant_id in tenant_ids:
            tasks = list({row.task_id for row in self._board.endpoints.of_tenant(tenant_id)})
            if tasks:
                self._tasks.setdefault(tenant_id, tasks)

    async def run_once(self) -> None:
        """Reads some, and brings back the rows of the tenants of which all were read.

        Raises:
            StoreUnavailableError: nothing was brought back, and these are read again in the next round.
        """
        some: dict[UUID, list[UUID]] = {}
        room = AT_ONCE
        for tenant_id, tasks in self._tasks.items():
            some[tenant_id] = tasks[:room]
            room -= len(some[tenant_id])
            if room <= 0:
                break
        ids = [task_id for tasks in some.values() for task_id in tasks]
        for start in range(0, len(ids), _STATEMENT):
            await self._planner.load(ids[start : start + _STATEMENT], again=True)
        for tenant_id, tasks in some.items():
            if rest := self._tasks.pop(tenant_id)[len(tasks) :]:
                self._tasks[tenant_id] = rest
            else:
                self._board.return_waiting(tenant_id)
