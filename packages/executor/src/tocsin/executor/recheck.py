"""The re-check: calls whose connection opened late ask, in one statement, whether they still hold (rule 3)."""

import asyncio
from uuid import UUID

from tocsin.common.store.ports import RunStore
from tocsin.common.store.rows import Begun, Recheck


class Rechecker:
    """Gathers the questions of one step of the event loop, and of the statement under way, into the next statement."""

    def __init__(self, runs: RunStore, lease_id: UUID) -> None:
        self._runs = runs
        self._lease_id = lease_id
        self._asked: dict[UUID, tuple[Begun, asyncio.Future[Recheck | None]]] = {}
        self._under_way: asyncio.Task[None] | None = None

    async def ask(self, run: Begun) -> Recheck | None:
        """What the database says now; None: the run is no longer this lease's.

        Raises:
            StoreUnavailableError: it does not say.
        """
        future: asyncio.Future[Recheck | None] = asyncio.get_running_loop().create_future()
        self._asked[run.run_id] = (run, future)
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._answer())
        return await future

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        while self._asked:
            asked, self._asked = self._asked, {}
            try:
                rows = await self._runs.recheck(self._lease_id, [(run.run_id, run.fence) for run, _ in asked.values()])
            except Exception as error:
                for _, future in asked.values():
                    if not future.done():
                        future.set_exception(error)
                continue
            found = {row.run_id: row for row in rows}
            for run_id, (_, future) in asked.items():
                if not future.done():
                    future.set_result(found.get(run_id))
