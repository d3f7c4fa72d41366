"""The Supervisor: keeps as many executors in each cell as `placements` says, and living ones; carries promotions and
demotions through, keeps history's partitions, ages history out, audits next rows, and replants them after a new release
of zone data. No run needs it to fire.

A promotion is asked for by opening a tenant's own cell, a demotion by closing it; both are rows, so that a
Supervisor that dies halfway is followed by one that goes on.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tocsin.common.clock import Clock
from tocsin.common.crashpoints import reach
from tocsin.common.store.ports import Store
from tocsin.common.store.tenants import Placement
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import TENANTS_DEDICATED
from tocsin.engine.audit import NextRowAudit
from tocsin.engine.silence import Silence, SilenceConfig
from tocsin.engine.zone_data import ZoneDataUpgrade

log = logging.getLogger("tocsin.engine.supervisor")


class Cells(Protocol):
    """The executor processes of each cell. Every method may be repeated without harm."""

    async def running(self) -> dict[str, list[str]]:
        """The names of the executors that exist, by cell."""
        ...

    async def start(self, cell: str, generation: int) -> str:
        """Starts one more executor of a cell; says its name."""
        ...

    async def drain(self, names: Sequence[str]) -> None:
        """Lets executors finish what is in flight, then ends them. Does not wait for their end."""
        ...

    async def end_silent(self, names: Sequence[str], most: int) -> list[str]:
        """Asks executors whether they live, and ends those that do not answer within seconds; says which. Where more
        than `most` do not, somebody lives and cannot be reached, and which one cannot be told: nobody is ended. One
        that is being restarted is left alone."""
        ...


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    retention_days: int = 30
    partition_days_ahead: int = 7
    keep_every: float = 600.0
    idempotency_seconds: float = 86_400.0
    silence: SilenceConfig = field(default_factory=SilenceConfig)


class Supervisor:
    def __init__(
        self,
        store: Store,
        cells: Cells,
        clock: Clock,
        meter: Meter,
        zone_data: ZoneDataUpgrade,
        config: SupervisorConfig | None = None,
    ) -> None:
        self._store = store
        self._cells = cells
        self._clock = clock
        self._meter = meter
        self._zone_data = zone_data
        self._audit = NextRowAudit(store.next_rows, meter)
        self._config = config or SupervisorConfig()
        self._silence = Silence(clock, self._config.silence)
        self._kept_at = -1e12
        self.generation = 0

    async def begin_generation(self) -> int:
        """Outdates every executor of an earlier Supervisor: it drains when it sees the new number (rule 12)."""
        self.generation = await self._store.tenants.next_generation()
        return self.generation

    async def run_once(self) -> dict[str, int]:
        placements = await self._store.tenants.placements()
        started, drained = await self._size(placements)
        ended = await self._end_silent()
        await self._carry_moves(placements)
        dedicated = [p for p in placements if p.tenant_id is not None and not p.closing]
        self._meter.set(TENANTS_DEDICATED, len(dedicated))
        if self._clock.monotonic() - self._kept_at >= self._config.keep_every:
            self._kept_at = self._clock.monotonic()
            try:
                await self._keep_history()
            finally:
                await self._audit.run_once()
        replanted = (await self._zone_data.run_once()).get("replanted", 0)
        counts = {"started": started, "drained": drained, "ended": ended}
        return {**counts, "dedicated": len(dedicated), "replanted": replanted}

    async def _size(self, placements: Sequence[Placement]) -> tuple[int, int]:
        """Starts what is missing, drains what is too many."""
        running = await self._cells.running()
        started = drained = 0
        wanted = {p.cell: 0 if p.closing and not await self._needed(p) else p.executors for p in placements}
        for cell in sorted(wanted.keys() | running.keys()):
            have, want = sorted(running.get(cell, [])), wanted.get(cell, 0)
            for _ in range(want - len(have)):
                name = await self._cells.start(cell, self.generation)
                log.info("started executor %s of cell %s", name, cell)
                started += 1
            if len(have) > want:
                surplus = have[want:]
                log.info("draining %s of cell %s", ", ".join(surplus), cell)
                await self._cells.drain(surplus)
                drained += len(surplus)
        return started, drained

    async def _end_silent(self) -> int:
        """Ends executors that have no live lease and do not answer; the next round starts others in their place."""
        running = await self._cells.running()
        live = await self._store.leases.live_executors()
        count = 0
        for cell, lacking in self._silence.look({c: len(names) for c, names in running.items()}, live).items():
            ended = await self._cells.end_silent(sorted(running[cell]), lacking)
            if ended:
                self._silence.ended(cell)
                log.warning("ended %s of cell %s: no live lease, and no answer", ", ".join(ended), cell)
            count += len(ended)
        return count

    async def _needed(self, placement: Placement) -> bool:
        """Whether a closing cell still serves its tenant: its owner has yet to move it away."""
        if placement.tenant_id is None:
            return False
        tenant = await self._store.tenants.find(tenant_id=placement.tenant_id)
        shards = {shard for shard, _ in await self._store.tenants.cell_shards(placement.cell)}
        return tenant is not None and tenant.shard in shards

    async def _carry_moves(self, placements: Sequence[Placement]) -> None:
        for placement in placements:
            if placement.tenant_id is None:
                continue
            if placement.closing:
                if not await self._needed(placement):
                    await self._store.tenants.remove_cell(placement.cell)
                continue
            tenant = await self._store.tenants.find(tenant_id=placement.tenant_id)
            shards = await self._store.tenants.cell_shards(placement.cell)
            ready = bool(shards) and all(owner is not None for _, owner in shards)
            if tenant is not None and tenant.shard not in {s for s, _ in shards} and tenant.move_to is None and ready:
                reach("ask_move.before")
                await self._store.tenants.ask_move(tenant.id, shards[0][0])
                reach("ask_move.after")
                await self._store.tasks.notify("tenants")
                log.info("tenant %s may move to its own cell %s", tenant.id, placement.cell)
        moving = await self._store.tenants.moving()
        if not moving:
            return
        reach("move_unowned.before")
        moved = await self._store.leases.move_tenants(moving, None)
        reach("move_unowned.after")
        if moved:
            await self._store.tasks.notify("tenants")

    async def _keep_history(self) -> None:
        await self._store.history.keep(None, self._config.partition_days_ahead)
        for name in await self._store.history.expire(self._config.retention_days):
            log.info("dropped %s: older than %d days", name, self._config.retention_days)
        await self._store.history.expire_keys(self._config.idempotency_seconds)
        stray = await self._store.history.default_rows()
        if stray:
            log.warning("history's DEFAULT partition holds %d rows: a clock or a partition is wrong", stray)
