"""Give back: once a second, every run of the owned tenants that no live lease holds returns to pending (rule 5).

And, every ten seconds, what one's own lease holds in the database without knowing it, twice running, is put
back: the net under lost answers (rule 4).
"""

import logging
from collections.abc import Sequence
from uuid import UUID

from tocsin.common.clock import Clock
from tocsin.common.models import Priority
from tocsin.common.store.ports import Store
from tocsin.common.store.rows import GivenBack, Outcome
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import RUNS
from tocsin.engine.begin import Beginner
from tocsin.engine.board import Board
from tocsin.engine.read import Reader

log = logging.getLogger("tocsin.engine.give_back")

NET_EVERY = 10.0


async def give_back(store: Store, tenant_ids: Sequence[UUID], meter: Meter) -> list[GivenBack]:
    """Gives back, and counts as lost, what no live lease holds of these tenants, as much as one statement takes."""
    given = await store.runs.give_back(tenant_ids)
    if given:
        meter.add(RUNS, len(given), Outcome.LOST)
    return given


class GiveBack:
    def __init__(
        self, store: Store, lease_id: UUID, board: Board, reader: Reader, beginner: Beginner, clock: Clock, meter: Meter
    ) -> None:
        self._store = store
        self._lease_id = lease_id
        self._board = board
        self._reader = reader
        self._beginner = beginner
        self._clock = clock
        self._meter = meter
        self._net_at = clock.monotonic() + NET_EVERY
        self._unknown: set[tuple[UUID, int]] = set()

    async def run_once(self) -> dict[str, int]:
        given = await give_back(self._store, list(self._board.tenants), self._meter)
        if given:
            log.warning("gave back %d runs of ended leases", len(given))
            self._reader.want({(run.tenant_id, int(p)) for run in given for p in Priority})
        put_back = 0
        if self._clock.monotonic() >= self._net_at:
            self._net_at = self._clock.monotonic() + NET_EVERY
            put_back = await self._net()
        return {"given_back": len(given), "put_back": put_back}

    async def _net(self) -> int:
        async with self._beginner.between_begins:
            held = {(row.run_id, row.fence) for row in await self._store.runs.held(self._lease_id)}
            known = {(run.run_id, run.fence) for run in self._board.in_flight.values()}
        unknown = held - known
        twice = sorted(unknown & self._unknown)
        self._unknown = unknown
        if twice:
            await self._store.runs.put_back(self._lease_id, twice)
            log.warning("put back %d runs that this lease held without knowing them", len(twice))
        return len(twice)
