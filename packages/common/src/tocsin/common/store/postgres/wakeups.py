"""Wake-ups: one LISTEN connection per process.

What it misses of queues, the sweep finds within two seconds; a cancel that it misses leaves its call to end by itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg

from tocsin.common.store.postgres.database import UNREACHABLE

log = logging.getLogger("tocsin.store.wakeups")

CHANNEL = "tocsin"
_LONGEST_PAUSE = 2.0
_KEEPALIVE = 15.0

Queues = Sequence[tuple[UUID, int]]


@dataclass(slots=True)
class Named:
    """What a payload names: queues that changed, runs that were cancelled, whether tenants or shards changed."""

    queues: list[tuple[UUID, int]] = field(default_factory=list)
    cancelled: list[UUID] = field(default_factory=list)
    tenants: bool = False


def queue_payload(queues: Queues) -> str:
    """The payload that names these queues. Payloads joined by a comma are one; `tenants` is one too."""
    return ",".join(f"queue {tenant_id} {priority}" for tenant_id, priority in queues)


def cancel_payload(run_ids: Sequence[UUID]) -> str:
    """The payload that names these runs as cancelled."""
    return ",".join(f"cancel {run_id}" for run_id in run_ids)


def parse_payload(payload: str) -> Named:
    """What a payload names. What cannot be read names nothing."""
    named = Named()
    for item in payload.split(","):
        match item.split(" "):
            case ["tenants"]:
                named.tenants = True
            case ["queue", tenant_id, priority]:
                with contextlib.suppress(ValueError):
                    named.queues.append((UUID(tenant_id), int(priority)))
            case ["cancel", run_id]:
                with contextlib.suppress(ValueError):
                    named.cancelled.append(UUID(run_id))
    return named


class PostgresWakeUps:
    """Listens until stopped; connects again by itself, and then calls `tenants`, since it may have missed anything."""

    def __init__(self, dsn: str, name: str) -> None:
        self._dsn = dsn
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(
        self,
        queues: Callable[[Queues], None],
        tenants: Callable[[], None],
        cancelled: Callable[[Sequence[UUID]], None],
    ) -> None:
        def heard(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            named = parse_payload(str(payload))
            if named.queues:
                queues(named.queues)
            if named.tenants:
                tenants()
            if named.cancelled:
                cancelled(named.cancelled)

        self._task = asyncio.create_task(self._listen(heard, tenants), name="wakeups")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _listen(self, heard: Callable[[object, int, str, object], None], connected: Callable[[], None]) -> None:
        pause = 0.1
        while True:
            try:
                connection = await asyncpg.connect(
                    self._dsn, timeout=5, command_timeout=5, server_settings={"application_name": self._name}
                )
            except UNREACHABLE as error:
                log.debug("cannot listen (%s); trying again", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = 0.1
            try:
                await connection.add_listener(CHANNEL, heard)
                connected()
                while True:  # a silent cut shows only when something is sent
                    await asyncio.sleep(_KEEPALIVE)
                    await connection.execute("select 1")
            except UNREACHABLE as error:
                log.debug("listening broke (%s); connecting again", error)
            finally:
                connection.terminate()
