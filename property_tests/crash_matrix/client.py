"""A tenant's client of the API that insists: what was not answered is asked again, a creation under the same key."""

import asyncio
import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import aiohttp

from property_tests.crash_matrix.stage import Stage
from tocsin.api.timestamps import format_timestamp
from tocsin.cli.tenants import make_key
from tocsin.common.store.tenants import Tenant

_ASK_SECONDS = aiohttp.ClientTimeout(total=5)
_INSIST_SECONDS = 20.0
_PAUSE_SECONDS = 0.05
_FAULTS = (aiohttp.ClientError, TimeoutError, ConnectionError)


class Client:
    """Writes on tasks of `tenant` that end at `end`, until told to stop. `answers`: the Unix second of each answer."""

    def __init__(self, stage: Stage, tenant: Tenant, end: datetime, stop: asyncio.Event) -> None:
        self._stage = stage
        self._tenant = tenant
        self._end = end
        self._stop = stop
        self._rng = random.Random(stage.rng.random())
        self._base = f"http://127.0.0.1:{stage.keeper.api_port}"
        self._headers: dict[str, str] = {}
        self._made: dict[str, str] = {}
        self.answers: list[float] = []

    async def open(self) -> None:
        """Waits until the API serves."""
        _, key = await make_key(self._stage.store, self._stage.clock, self._tenant.id, "cell")
        self._headers = {"Authorization": f"Bearer {key}"}

        async def serves() -> bool:
            try:
                async with aiohttp.ClientSession(timeout=_ASK_SECONDS) as session:
                    return (await session.get(f"{self._base}/readyz")).status == 200
            except _FAULTS:
                return False

        await self._stage.until(serves, "the API serves")

    async def run(self) -> None:
        """Raises:
        TimeoutError: something was not answered, however often it was asked.
        """
        async with aiohttp.ClientSession(self._base, headers=self._headers, timeout=_ASK_SECONDS) as session:
            number = 0
            while not self._stop.is_set():
                number += 1
                await self._write(session, f"written {number}")
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _write(self, session: aiohttp.ClientSession, name: str) -> None:
        """Makes a task, and does one thing with one that was made."""
        document = {
            "name": name,
            "schedule": {"every_seconds": 1},
            "end": format_timestamp(self._end),
            "request": {"url": self._stage.endpoint.url(0, "written")},
        }
        created = await self._insist(session, "POST", "/v1/tasks", document, {"Idempotency-Key": name})
        if "id" not in created:
            raise RuntimeError(f"a creation was answered {created}")
        self._made[name] = created["id"]
        task = f"/v1/tasks/{self._rng.choice(list(self._made.values()))}"
        act = self._rng.choice(("edit", "pause", "skip-next", "run-now", "delete"))
        if act == "edit":
            patch = {
                "schedule": {"every_seconds": self._rng.choice((1, 2))},
                "priority": self._rng.choice(("high", "low")),
            }
            await self._insist(session, "PATCH", task, patch)
        elif act == "delete":
            await self._insist(session, "DELETE", task)
        else:
            await self._insist(session, "POST", f"{task}/{act}")
            if act == "pause":
                await self._insist(session, "POST", f"{task}/resume")

    async def _insist(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        document: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Asks until the answer is no error of the server's; a refusal (of a task that has gone) is an answer too."""
        deadline = self._stage.clock.monotonic() + _INSIST_SECONDS
        while True:
            try:
                async with session.request(method, path, json=document, headers=headers) as response:
                    text = await response.read()
                    if response.status < 500:
                        self.answers.append(self._stage.clock.now().timestamp())
                        return await response.json() if text else None
            except _FAULTS:
                pass
            if self._stage.clock.monotonic() > deadline:
                raise TimeoutError(f"never answered: {method} {path}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def check(self) -> list[str]:
        """Each task that was answered exists, once; none exists twice."""
        rows = await self._stage.connection.fetch(
            "select name, array_agg(id::text) as ids from tasks where name like 'written %' group by name"
        )
        found = {row["name"]: row["ids"] for row in rows}
        faults = [f"task {name!r} was made {len(ids)} times" for name, ids in found.items() if len(ids) > 1]
        return faults + [
            f"task {name!r} was answered and is lost" for name, i in self._made.items() if i not in found.get(name, ())
        ]
