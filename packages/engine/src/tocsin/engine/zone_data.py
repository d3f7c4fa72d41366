"""Zone data upgrade: after a new release of `tzdata`, next rows that the older one planned are planned anew (rule 2).

Begun only when every live lease reports this process's release: an executor of another one would plan successors by
its own, behind this one's back. Work goes by pages of tasks, a page a round, and how far it got is a row in the
database, so that a crash costs one page, done twice to the same effect. A task that fails for a passing reason holds up
no other: it is tried again until it is done, and till then the row in the database stays before it.

Such a reason is also a task's row that somebody keeps locked: to its task the store gives the same error as in an
outage. So the page ends there, for one such wait a round is enough, and the next goes on behind it. In an outage the
next statement fails as well, and that ends the round.
"""

import logging
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tocsin.common.errors import FaultyDefinitionError, StoreUnavailableError
from tocsin.common.store.next_rows import FIRST_TASK, NextRowStore, Planned, ZoneDataState
from tocsin.common.store.rows import Task
from tocsin.common.tasks import Tasks, stands

log = logging.getLogger("tocsin.engine.zone_data")


@dataclass(frozen=True, slots=True)
class ZoneDataConfig:
    """`release`: the one of this process, as leases report theirs. A round looks at `page` tasks at most, and tries as
    many again. What failed is tried again after `retry` seconds, and after twice as many each time, up to
    `longest_retry`."""

    release: str
    page: int = 500
    retry: float = 1.0
    longest_retry: float = 3600.0


@dataclass(slots=True)
class _Failed:
    """A task to be tried again, and from when on the store's clock."""

    tenant_id: UUID
    due: datetime
    tries: int = 1


class ZoneDataUpgrade:
    """`_noted` is the note that `_after`, the last task looked at (None: all were), and `_failed` belong to."""

    def __init__(self, store: NextRowStore, tasks: Tasks, config: ZoneDataConfig) -> None:
        self._store = store
        self._tasks = tasks
        self._config = config
        self._totals: Counter[str] = Counter()
        self._waits_for: frozenset[str] = frozenset()
        self._noted: UUID | None = None
        self._after: UUID | None = FIRST_TASK
        self._failed: dict[UUID, _Failed] = {}

    async def run_once(self) -> dict[str, int]:
        """Looks at one page, if there is any to look at, and at what failed before, if it is time to; counts of tasks
        `looked_at`, `replanted` and `failed`."""
        state = await self._store.zone_data()
        if others := state.live - {self._config.release}:
            await self._wait(state, others)
            return {}
        self._waits_for = frozenset()
        if state.release == self._config.release and state.through is None:
            return {}
        return await self._go_on(state)

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

    async def _go_on(self, state: ZoneDataState) -> dict[str, int]:
        if state.release != self._config.release:
            self._totals.clear()
            self._begin(FIRST_TASK)
            log.info("zone data %s: looking at the next rows of all zones", self._config.release)
        elif state.through != self._noted:  # as one before this process has left it, or one beside it
            self._begin(state.through or FIRST_TASK)
        counts: Counter[str] = Counter()
        if self._after is not None:
            await self._page(self._after, state, counts)
        await self._try_again(state, counts)
        self._noted = self._done_through()
        said = {"looked_at": counts["looked_at"], "replanted": counts["replanted"]}
        said["failed"] = counts["failed"] + counts["again"] + counts["refused"]
        noted = (self._config.release, self._noted)
        if noted != (state.release, state.through) and not await self._store.note_zone_data(state, *noted):
            return said  # another Supervisor is at it too
        self._totals.update(counts)
        if self._noted is None:
            log.info(
                "zone data %s: done; of %d tasks looked at, %d were replanted and %d failed",
                self._config.release,
                self._totals["looked_at"],
                self._totals["replanted"],
                self._totals["failed"],
            )
        return said

    def _begin(self, after: UUID) -> None:
        self._after = after
        self._failed.clear()

    def _done_through(self) -> UUID | None:
        """The last task up to which all are done; None: all are."""
        return UUID(int=min(self._failed).int - 1) if self._failed else self._after

    async def _page(self, after: UUID, state: ZoneDataState, counts: Counter[str]) -> None:
        page = await self._store.zoned(after, self._config.page)
        last = page.last
        for task, row in page.tasks:
            counts["looked_at"] += 1
            outcome = await self._replant(task.tenant_id, task.id, state.now, (task, row))
            counts[outcome] += 1
            if outcome == "refused":
                last = task.id
                break
        for task_id in page.unreadable:
            if last is None or task_id <= last:
                counts["looked_at"] += 1
                counts["failed"] += 1
                log.warning("zone data: the definition of task %s cannot be read; its next row is left alone", task_id)
        self._after = last

    async def _try_again(self, state: ZoneDataState, counts: Counter[str]) -> None:
        due = [(failed.tenant_id, task_id) for task_id, failed in self._failed.items() if failed.due <= state.now]
        for tenant_id, task_id in due[: self._config.page]:
            outcome = await self._replant(tenant_id, task_id, state.now)
            counts[outcome] += 1
            if outcome == "refused":
                break

    async def _replant(
        self, tenant_id: UUID, task_id: UUID, now: datetime, read: tuple[Task, Planned | None] | None = None
    ) -> str:
        """What became of one task: `left`, `replanted`, `failed` for good, or to be tried `again`, as where it was
        `refused` by the store. `read`: what was read of it, which may show that there is nothing to do."""
        try:
            if read is not None and stands(*read, None if read[1] is None else read[1].last_slot, now):
                outcome = "left"
            else:
                outcome = "replanted" if await self._tasks.replant(tenant_id, task_id) else "left"
        except StoreUnavailableError as error:  # a lost answer among them: replanting twice has the same effect
            self._fail(tenant_id, task_id, now, error)
            return "refused"
        except FaultyDefinitionError as error:
            log.warning("zone data: %s; its next row is left alone", error)
            outcome = "failed"
        except Exception as error:
            self._fail(tenant_id, task_id, now, error)
            return "again"
        if self._failed.pop(task_id, None) is not None and outcome != "failed":
            log.info("zone data: task %s of tenant %s could be planned after all", task_id, tenant_id)
        return outcome

    def _fail(self, tenant_id: UUID, task_id: UUID, now: datetime, error: Exception) -> None:
        failed = self._failed.get(task_id)
        if failed is None:
            said = "zone data: task %s of tenant %s could not be planned%s; it is tried again"
            if isinstance(error, StoreUnavailableError):
                log.warning(said, task_id, tenant_id, f" ({error})")
            else:
                log.error(said, task_id, tenant_id, "", exc_info=error)
            self._failed[task_id] = _Failed(tenant_id, now + timedelta(seconds=self._config.retry))
            return
        pause = min(self._config.retry * 2.0 ** min(failed.tries, 30), self._config.longest_retry)
        failed.tries += 1
        failed.due = now + timedelta(seconds=pause)
