"""Zone data upgrade: after a new release of `tzdata`, next rows that the older one planned are planned anew (rule 2).

Begun only when every live lease reports this process's release: an executor of another one would plan successors by
its own, behind this one's back. Work goes by pages of tasks, a page a round, and how far it got is a row in the
database, so that a crash costs one page, done twice to the same effect.
"""

import logging
from collections import Counter
from dataclasses import dataclass

from tocsin.common.errors import FaultyDefinitionError, StoreUnavailableError
from tocsin.common.store.next_rows import FIRST_TASK, NextRowStore, Planned, ZoneDataState
from tocsin.common.store.rows import Task
from tocsin.common.tasks import Tasks, stands

log = logging.getLogger("tocsin.engine.zone_data")


@dataclass(frozen=True, slots=True)
class ZoneDataConfig:
    """`release`: the one of this process, as leases report theirs. A round looks at `page` tasks at most."""

    release: str
    page: int = 500


class ZoneDataUpgrade:
    def __init__(self, store: NextRowStore, tasks: Tasks, config: ZoneDataConfig) -> None:
        self._store = store
        self._tasks = tasks
        self._config = config
        self._totals: Counter[str] = Counter()
        self._waits_for: frozenset[str] = frozenset()

    async def run_once(self) -> dict[str, int]:
        """Looks at one page, if there is any to look at; counts of tasks `looked_at`, `replanted` and `failed`."""
        state = await self._store.zone_data()
        if others := state.live - {self._config.release}:
            await self._wait(state, others)
            return {}
        self._waits_for = frozenset()
        if state.release == self._config.release and state.through is None:
            return {}
        return await self._page(state)

    async def _wait(self, state: ZoneDataState, others: frozenset[str]) -> None:
        """What executors of another release plan must be looked at once they are gone, whatever was done before."""
        if others != self._waits_for:
            self._waits_for = others
            log.warning(
                "zone data: this process has %s, live leases report %s too; next rows are planned anew once all agree",
                self._config.release,
                ", ".join(sorted(others)),
            )
        if state.release:
            await self._store.note_zone_data(state, "", None)

    async def _page(self, state: ZoneDataState) -> dict[str, int]:
        after = state.through or FIRST_TASK
        if state.release != self._config.release:
            after = FIRST_TASK
            self._totals.clear()
            log.info("zone data %s: looking at the next rows of all zones", self._config.release)
        page = await self._store.zoned(after, self._config.page)
        counts = Counter(looked_at=len(page.tasks) + len(page.unreadable), replanted=0, failed=len(page.unreadable))
        for task_id in page.unreadable:
            log.warning("zone data: the definition of task %s cannot be read; its next row is left alone", task_id)
        for task, row in page.tasks:
            counts[await self._replant(task, row, state)] += 1
        del counts["left"]
        if not await self._store.note_zone_data(state, self._config.release, page.last):
            return dict(counts)  # another Supervisor is at it too
        self._totals += counts
        if page.last is None:
            log.info(
                "zone data %s: done; of %d tasks looked at, %d were replanted and %d failed",
                self._config.release,
                self._totals["looked_at"],
                self._totals["replanted"],
                self._totals["failed"],
            )
        return dict(counts)

    async def _replant(self, task: Task, row: Planned | None, state: ZoneDataState) -> str:
        """What became of one task: `left`, `replanted` or `failed`. One that cannot be planned hinders no other, and
        what fails for a passing reason is done at the second try: this page is not looked at again."""
        for tries_left in (1, 0):
            try:
                if stands(task, row, None if row is None else row.last_slot, state.now):
                    return "left"
                return "replanted" if await self._tasks.replant(task.tenant_id, task.id) else "left"
            except StoreUnavailableError:
                raise
            except FaultyDefinitionError as error:
                log.warning("zone data: %s; its next row is left alone", error)
                return "failed"
            except Exception:
                if not tries_left:
                    log.exception("zone data: task %s could not be planned; its next row is left alone", task.id)
        return "failed"
