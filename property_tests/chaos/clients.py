"""A tenant that uses the API while everything breaks: run-nows, and tasks at one instant made under an idempotency key.

What the API has promised (202, 201) is kept; what it refused or did not answer promises nothing, but must not be
done twice either.
"""

import asyncio
import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import aiohttp

from property_tests.chaos.ledger import SlotKey
from tocsin.api.timestamps import format_timestamp
from tocsin.common.clock import Clock

EVERY_SECONDS = 0.5
AHEAD_SECONDS = 30
"""How long before its instant a task is made: a request is repeated until then."""

_ANSWER_SECONDS = aiohttp.ClientTimeout(total=5)
_AGAIN_SECONDS = 1.0
_PROMISES = (200, 201, 202)
_MARGIN_SECONDS = 5.0


@dataclass(slots=True)
class Promised:
    """`runs`: run-nows of `task_id` answered 202, `unanswered`: how many may have been made unsaid. `slots`: of tasks
    answered 201. `answers` counts statuses, 0 for none. `unreadable`: answers that are not what the API documents, in
    words."""

    task_id: UUID | None = None
    runs: list[UUID] = field(default_factory=list)
    unanswered: int = 0
    slots: dict[SlotKey, UUID] = field(default_factory=dict)
    answers: Counter[int] = field(default_factory=Counter)
    unreadable: list[str] = field(default_factory=list)


class ApiTenant:
    """`task_id` is one of its tasks, to be run now and again. `end`: no instant of a task is later (Unix seconds)."""

    def __init__(self, base: str, key: str, tenant_id: UUID, task_id: UUID, url: str, clock: Clock, end: float) -> None:
        self.promised = Promised(task_id)
        self._base = base
        self._key = key
        self._tenant_id = tenant_id
        self._task_id = task_id
        self._url = url
        self._clock = clock
        self._end = end
        self._making: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the last task that it may still make; what is under way is finished."""
        headers = {"Authorization": f"Bearer {self._key}"}
        async with aiohttp.ClientSession(
            self._base, headers=headers, timeout=_ANSWER_SECONDS, trust_env=False
        ) as session:
            for number in itertools.count():
                now = self._clock.now()
                if now.timestamp() + AHEAD_SECONDS + 1 > self._end:
                    break
                making = asyncio.create_task(self._make(session, number))
                self._making.add(making)
                making.add_done_callback(self._making.discard)
                await self._run_now(session)
                await asyncio.sleep(EVERY_SECONDS)
            await asyncio.gather(*self._making)

    async def _run_now(self, session: aiohttp.ClientSession) -> None:
        status, run_id = await self._ask(session, f"/v1/tasks/{self._task_id}/run-now", None, {}, "run_id")
        if status == 202 and run_id is not None:
            self.promised.runs.append(run_id)
        elif status in (0, 202) or status >= 500:
            self.promised.unanswered += 1

    async def _make(self, session: aiohttp.ClientSession, number: int) -> None:
        """One task, asked for under one key until an answer says what became of it."""
        at = (self._clock.now() + timedelta(seconds=AHEAD_SECONDS)).replace(microsecond=0)
        document = {"name": f"made {number}", "schedule": {"at": format_timestamp(at)}, "request": {"url": self._url}}
        while self._clock.now().timestamp() < at.timestamp() - _MARGIN_SECONDS:
            status, made = await self._ask(session, "/v1/tasks", document, {"Idempotency-Key": f"made {number}"}, "id")
            if status in (200, 201) and made is not None:
                self.promised.slots[made, at.timestamp()] = self._tenant_id
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _ask(
        self, session: aiohttp.ClientSession, path: str, document: Any, headers: dict[str, str], wanted: str
    ) -> tuple[int, UUID | None]:
        """The answer's status, 0 for none, and of one that promises something the id that it gives as `wanted`."""
        try:
            async with session.post(path, json=document, headers=headers) as response:
                status, body = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            status, body = 0, b""
        self.promised.answers[status] += 1
        try:
            made = json.loads(body) if status else {}
            return status, UUID(made[wanted]) if status in _PROMISES else None
        except (ValueError, TypeError, AttributeError, LookupError):
            self.promised.unreadable.append(f"{path} answered {status} with {body[:80]!r}")
            return status, None
