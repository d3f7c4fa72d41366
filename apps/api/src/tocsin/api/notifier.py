"""The wake-up of owners: a coalesced NOTIFY after commits that changed what is due, or cancelled what runs.

A commit with a NOTIFY takes a lock of the whole database server, so there is at most one such statement in
`SPACING` seconds from one process, however many requests there are; after a quiet time the first one
goes out at once. A wake-up is forgotten only when its statement has committed: what failed is sent
again, and twice does no harm. Without any of them runs would still start, at the owners' next sweep,
and the call of a cancelled run would go on to its own end.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from tocsin.common.clock import Clock

SPACING: Final = 0.020
PAYLOAD_BYTES: Final = 7_900
"""PostgreSQL takes less than 8,000."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0

log = logging.getLogger(__name__)


class Notifier:
    """Sends what it was told to, in the order in which it was told, each queue and each cancelled run once.

    Args:
        send: sends one payload; returns once it has committed.
        pause: waits for a number of seconds.
    """

    def __init__(
        self,
        send: Callable[[str], Awaitable[None]],
        clock: Clock,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._send = send
        self._clock = clock
        self._pause = pause
        self._waiting: dict[str, None] = {}
        self._told = asyncio.Event()

    def wake(self, tenant_id: UUID, priority: int) -> None:
        """Has the owner of this queue told, soon. Never waits, never fails."""
        self._tell(f"queue {tenant_id} {int(priority)}")

    def cancelled(self, run_id: UUID) -> None:
        """Has the owner of this run, which is marked as cancelled, told, soon. Never waits, never fails."""
        self._tell(f"cancel {run_id}")

    async def run(self) -> None:
        """Sends until it is cancelled."""
        failures = 0
        while True:
            await self._told.wait()
            started = self._clock.monotonic()
            if await self._send_one():
                failures = 0
                await self._pause(max(0.0, SPACING - (self._clock.monotonic() - started)))
            else:
                await self._pause(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failures, 10)))
                failures += 1

    async def flush(self, seconds: float) -> None:
        """Sends what is left, for at most this long; for the end of a process."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._waiting and await self._send_one():
                    await self._pause(SPACING)

    def _tell(self, item: str) -> None:
        self._waiting[item] = None
        self._told.set()

    async def _send_one(self) -> bool:
        payload = self._take()
        sent = False
        try:
            await self._send(payload)
            sent = True
        except Exception as error:
            log.warning("notify_failed items=%d error=%s", payload.count(",") + 1, type(error).__name__)
        finally:
            if not sent:
                self._waiting = dict.fromkeys(payload.split(",")) | self._waiting
                self._told.set()
        return sent

    def _take(self) -> str:
        items: list[str] = []
        size = -1
        for item in self._waiting:
            size += len(item) + 1
            if size > PAYLOAD_BYTES:
                break
            items.append(item)
        for item in items:
            del self._waiting[item]
        if not self._waiting:
            self._told.clear()
        return ",".join(items)
