"""The demo as a tenant: what it asks of the API, over HTTP, with its key."""

from collections.abc import Sequence
from typing import Any, Self

import aiohttp

from tocsin.cli.demo.tasks import ONCE, DemoTask
from tocsin.common.errors import TocsinError

_SECONDS = aiohttp.ClientTimeout(total=10)
_PAGE = 100


class DemoClient:
    """A session with the API at `base`. To be used as a context manager."""

    def __init__(self, base: str, key: str) -> None:
        self._session = aiohttp.ClientSession(
            base, headers={"Authorization": f"Bearer {key}"}, timeout=_SECONDS, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ensure(self, tasks: Sequence[DemoTask], endpoint: str) -> list[dict[str, Any]]:
        """Makes the tasks that are missing, and points those that exist to the endpoint; returns them as they are."""
        existing: dict[str, dict[str, Any]] = {}
        for task in await self.tasks():
            if task["name"] == ONCE:
                await self._ask("DELETE", f"/v1/tasks/{task['id']}")
            else:
                existing[task["name"]] = task
        made = []
        for wanted in tasks:
            document = wanted.document(endpoint)
            found = existing.get(wanted.name)
            if found is None:
                found = await self._ask("POST", "/v1/tasks", document)
            elif found["request"]["url"] != document["request"]["url"]:
                patch = {"request": {"url": document["request"]["url"]}}
                found = await self._ask("PATCH", f"/v1/tasks/{found['id']}", patch)
            made.append(found)
        return made

    async def tasks(self) -> list[dict[str, Any]]:
        """All tasks of the tenant."""
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            after = f"&cursor={cursor}" if cursor else ""
            page = await self._ask("GET", f"/v1/tasks?limit={_PAGE}{after}")
            found += page["tasks"]
            cursor = page["next_cursor"]
        return found

    async def runs(self, task_id: str, limit: int) -> list[dict[str, Any]]:
        """The task's newest runs."""
        runs: list[dict[str, Any]] = (await self._ask("GET", f"/v1/tasks/{task_id}/runs?limit={limit}"))["runs"]
        return runs

    async def _ask(self, method: str, path: str, document: Any = None) -> Any:
        async with self._session.request(method, path, json=document) as response:
            if response.status >= 400:
                raise TocsinError(f"{method} {path} was answered {response.status}: {await response.text()}")
            return None if response.status == 204 else await response.json(content_type=None)
