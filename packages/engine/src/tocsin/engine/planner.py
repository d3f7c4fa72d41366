"""The planner: definitions for the rows in memory, and the begin of each row, faults included.

Planning is pure (plan.py); this part knows which definition belongs to a row, and what to do where there is
none, or where the plan raises: the run happens all the same, and that one task becomes faulty (rule 2).
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from uuid import UUID

from tocsin.common.crashpoints import reach
from tocsin.common.ids import Ids
from tocsin.common.models import Kind
from tocsin.common.store.ports import Store
from tocsin.common.store.rows import BeginItem, Pending, Skip, SkipReason, Task, TaskFault
from tocsin.common.time.schedule import next_slot
from tocsin.engine.board import Board
from tocsin.engine.plan import parked_successor, plan_faulty, plan_overlap_skip, plan_run

log = logging.getLogger("tocsin.engine.planner")

_AT_ONCE = 1000

_UNREADABLE = 10_000
"""Reasons kept, the latest: more than the tasks of several begins. Another is read again when its run is due."""


class Planner:
    def __init__(self, store: Store, board: Board, ids: Ids, expect: Callable[[datetime, Task], None]) -> None:
        """`expect` is told of every row that is planned ahead."""
        self._expect = expect
        self._store = store
        self._board = board
        self._ids = ids
        self._unreadable: dict[UUID, str] = {}
        self._faults: dict[UUID, TaskFault] = {}
        self._suspects: dict[UUID, TaskFault] = {}

    async def load(self, task_ids: Collection[UUID], *, again: bool = False) -> None:
        """Reads the definitions (and their tenants' signing secrets) that memory lacks; `again`: all of them."""
        missing = [t for t in task_ids if again or self._board.definitions.get(t) is None]
        for start in range(0, len(missing), _AT_ONCE):
            tasks, faulty = await self._store.tasks.definitions(missing[start : start + _AT_ONCE])
            for task in tasks:
                self._board.definitions.put(task)
                self._unreadable.pop(task.id, None)
            for error in faulty:
                self._unreadable.pop(error.task_id, None)
                self._unreadable[error.task_id] = error.reason
                while len(self._unreadable) > _UNREADABLE:
                    del self._unreadable[next(iter(self._unreadable))]
                self._board.definitions.drop(error.task_id)  # a repaired one is read again
        tenants = {t.tenant_id for i in task_ids if (t := self._board.definitions.get(i)) is not None}
        if unknown := [t for t in tenants if t not in self._board.secrets]:
            self._board.secrets.update(await self._store.tenants.secrets(unknown))

    async def refresh_secrets(self, tenant_ids: Iterable[UUID]) -> None:
        """Reads the signing secrets of these tenants again, of those in memory: a rotated one takes effect."""
        known = [tenant_id for tenant_id in tenant_ids if tenant_id in self._board.secrets]
        if not known:
            return
        for tenant_id, secrets in (await self._store.tenants.secrets(known)).items():
            if tenant_id in self._board.secrets:  # not given away meanwhile
                self._board.secrets[tenant_id] = secrets

    def stale(self, row: Pending) -> bool:
        """Whether the definition in memory is older than the row, not the one a next row is of, or not there."""
        if row.task_id in self._unreadable:
            return False
        task = self._board.definitions.get(row.task_id)
        if task is None or task.plan_version < row.plan_version:
            return True
        return row.kind is Kind.NEXT and task.plan_version != row.plan_version

    def item(self, row: Pending, now: datetime, *, overlapped: bool = False) -> BeginItem:
        """The begin of a row by the definition in memory. `overlapped`: skip it, its task is busy."""
        if (reason := self._unreadable.get(row.task_id)) is not None:
            return self._unreadable_item(row, reason)
        task = self._board.definitions.get(row.task_id)
        if task is None:
            return BeginItem(row)  # no such task: the begin records it as deleted
        if row.kind is Kind.NEXT and task.plan_version != row.plan_version:
            reason = f"its next row is of plan version {row.plan_version}, the task of {task.plan_version}"
            self._suspects[row.run_id] = TaskFault(row.task_id, task.plan_version, reason)
            return plan_faulty(row, self._ids.new)
        try:
            if overlapped:
                return plan_overlap_skip(row, task, self._ids.new)
            return plan_run(row, task, now, self._ids.new, held=self._board.is_held(row))
        except Exception as error:
            log.exception(
                "task %s: planning its run %s failed; it runs, and the task is faulty",
                row.task_id,
                row.run_id,
            )
            self._faults[row.task_id] = TaskFault(row.task_id, task.plan_version, f"planning failed: {error}")
            return plan_faulty(row, self._ids.new)

    def _unreadable_item(self, row: Pending, reason: str) -> BeginItem:
        self._faults[row.task_id] = TaskFault(row.task_id, row.plan_version, reason)
        skip = Skip(row.run_id, row.slot, row.slot, row.last_slot, 1, True, SkipReason.FAULTY)
        return BeginItem(row, skip=skip, plants=parked_successor(row, self._ids.new))

    def settle(self, asked: Iterable[UUID], gotten: Collection[UUID]) -> None:
        """After a begin: a next row of another plan version is a fault only if it was there. Mostly an edit has
        replaced it, and memory had not heard of that."""
        if not self._suspects:
            return
        for run_id in asked:
            fault = self._suspects.pop(run_id, None)
            if fault is not None and run_id in gotten:
                self._faults[fault.task_id] = fault

    async def report_faults(self) -> int:
        """Marks the tasks whose plan raised. Asked for before the begin that parks their next rows: a process that dies
        between the two leaves a faulty task whose slot is due, not an active one that has stopped in silence."""
        if not self._faults:
            return 0
        faults, self._faults = self._faults, {}
        try:
            reach("mark_faulty.before")
            await self._store.tasks.mark_faulty(list(faults.values()))
            reach("mark_faulty.after")
        except BaseException:
            self._faults = faults | self._faults
            raise
        for fault in faults.values():
            log.warning("task %s is faulty: %s", fault.task_id, fault.reason)
        return len(faults)

    def warm(self, row: Pending) -> None:
        """Works out the successor ahead of time: the slot is memoised, and its begin finds it ready. The executor hears
        of the row, to be ready for its call."""
        task = self._board.definitions.get(row.task_id)
        if task is None:
            return
        self._expect(row.due_at, task)
        if row.kind is Kind.NEXT and row.slot is not None:
            with contextlib.suppress(Exception):  # reported when the row is begun
                next_slot(task.plan, row.slot)
