"""Watches, from outside, what only passes by: leases and their heartbeats, processes and their ends, terminal rows.

Over connections of its own, straight to PostgreSQL; while that is away it waits.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import asyncpg

from bench.system import Connection
from property_tests.chaos.ledger import Attempt, Life
from tocsin.common.clock import Clock
from tocsin.common.service import together
from tocsin.engine.process import is_gone

_LOOK_SECONDS = 0.1
_LEASES_EVERY = 3
"""Looks at processes for each at the leases."""

_TERMINAL_SECONDS = 4.0
_TASKS, _RUNS = 20, 3
_REACH_SECONDS = 5.0
AWAY = (
    *(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError),
    asyncpg.InternalClientError,  # a session that was ended just before the statement was sent
)
"""What a statement may raise while the database is away."""


class Watch:
    """`lives` are all leases seen, by id; `terminal` terminal rows, to be compared at the end; `reopened` counts
    terminal runs that were seen to be pending or running."""

    def __init__(self, dsn: Callable[[], str], clock: Clock, rng: random.Random) -> None:
        self.lives: dict[UUID, Life] = {}
        self.terminal: list[tuple[Attempt, float, str, str]] = []
        self.reopened = 0
        self.early_of: dict[int, float] = {}
        """By pid: what a process's drifting clock allows (see `Life`)."""
        self._dsn = dsn
        self._clock = clock
        self._rng = rng
        self._tasks: Sequence[UUID] = ()

    def live(self) -> list[Life]:
        """Those that have neither failed nor expired."""
        return [life for life in self.lives.values() if life.failed is None and life.expired is None]

    def failed(self, lease_id: UUID, since: float, until: float) -> None:
        """Notes that a process stopped acting between two instants; a later word does not change it."""
        life = self.lives.get(lease_id)
        if life is not None and life.failed is None:
            life.failed = since, until

    async def run(self, tasks: Sequence[UUID]) -> None:
        """For ever. `tasks`: those whose terminal rows are looked at. Where one part of it raises, all end."""
        self._tasks = tasks
        await together(self._look(), self._again(self._follow_leases), self._again(self._follow_runs))

    async def _look(self) -> None:
        """Ends of processes. One is noted as between the look before and this."""
        before = self._clock.now().timestamp()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = self._clock.now().timestamp()
            for life in self.lives.values():
                if life.failed is None and is_gone(life.pid, life.started):
                    life.failed = before, now
            before = now

    async def _again(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        while True:
            with contextlib.suppress(*AWAY):
                connection = await asyncpg.connect(
                    self._dsn(),
                    timeout=_REACH_SECONDS,
                    command_timeout=_REACH_SECONDS,
                    server_settings={"application_name": "chaos"},
                )
                try:
                    await work(connection)
                finally:
                    connection.terminate()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _follow_leases(self, connection: Connection) -> None:
        while True:
            await self.read_leases(connection)
            await asyncio.sleep(_LOOK_SECONDS * _LEASES_EVERY)

    async def read_leases(self, connection: Connection) -> None:
        rows = await connection.fetch(
            "select id, pid, process_started, cell, heartbeat_at, expired_at, draining from leases"
        )
        for row in rows:
            life = self.lives.get(row["id"])
            if life is None:
                life = Life(row["id"], row["pid"], row["process_started"], row["cell"])
                life.early = self.early_of.get(life.pid, 0.0)
                self.lives[row["id"]] = life
            beat = row["heartbeat_at"].timestamp()
            if not life.beats or beat > life.beats[-1]:
                life.beats.append(beat)
            life.draining |= row["draining"]
            if row["expired_at"] is not None and life.expired is None:
                life.expired = row["expired_at"].timestamp()

    async def _follow_runs(self, connection: Connection) -> None:
        while True:
            await asyncio.sleep(_TERMINAL_SECONDS)
            chosen = self._rng.sample(self._tasks, min(_TASKS, len(self._tasks)))
            rows = await connection.fetch(
                "select h.run_id, h.fence, h.ended_at, h.state, h.outcome from unnest($1::uuid[]) as t (id)"
                " cross join lateral (select * from history h where h.task_id = t.id and h.state is not null"
                " order by h.run_id desc limit $2) h",
                chosen,
                _RUNS,
            )
            self.terminal += [
                ((row["run_id"], row["fence"]), row["ended_at"].timestamp(), row["state"], row["outcome"])
                for row in rows
            ]
            self.reopened += await connection.fetchval(
                "select count(*) from (select run_id from running union all select run_id from pending where fence > 0)"
                " r where exists (select from history h where h.run_id = r.run_id and h.state is not null)"
            )
