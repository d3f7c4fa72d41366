"""The path of a run, in memory."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tocsin.common.crashpoints import reach
from tocsin.common.errors import RowRefusedError
from tocsin.common.models import Kind, OnLeaseLost, Priority, TaskState
from tocsin.common.states import RunState
from tocsin.common.store.memory.database import MemoryDatabase, Running, ended_row
from tocsin.common.store.rows import (
    MARGIN_SECONDS,
    MAX_LOSSES,
    Backend,
    BeginItem,
    BeginResult,
    Begun,
    Completion,
    CompletionResult,
    GivenBack,
    Held,
    Outcome,
    Pending,
    Plant,
    QueuePage,
    Recheck,
    Skip,
    SkipReason,
    Task,
    begun_of,
    check_completions,
    check_items,
)
from tocsin.common.store.tenants import part_of_cap
from tocsin.common.store.views import HistoryRow


class MemoryRuns:
    def __init__(self, database: MemoryDatabase, name: str) -> None:
        self._db = database
        self._name = name

    async def heads(self, pages: Sequence[QueuePage], lead: float) -> list[Pending]:
        await self._db.round_trip()
        now = self._db.now()
        found: list[Pending] = []
        for page in pages:
            first = (page.from_due or now - timedelta(seconds=MARGIN_SECONDS), page.from_run)
            rows = [
                row
                for row in self._db.pending.of_queue(page.tenant_id, page.priority)
                if (row.due_at, row.run_id) > first
                and row.due_at <= now + timedelta(seconds=lead)
                and page.lane_first <= row.lane < page.lane_last
            ]
            found += sorted(rows, key=lambda row: (row.due_at, row.run_id))[: page.limit]
        return found

    async def hinted(self, run_ids: Sequence[UUID], lead: float) -> list[Pending]:
        await self._db.round_trip()
        latest = self._db.now() + timedelta(seconds=lead)
        rows = (self._db.pending.get(run_id) for run_id in dict.fromkeys(run_ids))
        return [row for row in rows if row is not None and row.due_at <= latest]

    async def begin(
        self, lease_id: UUID, items: Sequence[BeginItem], note: Callable[[Backend], None] | None = None
    ) -> BeginResult:
        check_items(items)
        reach("begin.before")
        await self._db.round_trip()
        if note is not None:
            note(Backend(0, self._name))
        result = self._begin(lease_id, items)
        reach("begin.after")
        return result

    def _begin(self, lease_id: UUID, items: Sequence[BeginItem]) -> BeginResult:
        there = [item for item in items if self._db.pending.get(item.row.run_id) and self._same_fence(item)]
        busy = {item.row.run_id for item in there if item.exclusive and self._is_busy(item.row)}
        got = [
            item
            for item in there
            if item.row.run_id not in busy
            and item.row.run_id not in self._db.row_locks
            and self._db.live(lease_id) is not None
        ]
        begun: list[Begun] = []
        skipped: list[UUID] = []
        for item in got:
            row = self._db.pending.remove(item.row.run_id)
            task = self._db.tasks.get(row.task_id)
            reason = item.skip.reason if item.skip is not None else _reason_of(task)
            if reason is not None or task is None:
                self._db.record(self._skipped(row, item.skip, reason or SkipReason.DELETED))
                skipped.append(row.run_id)
            else:
                run = begun_of(row, task.version)
                self._db.running[run.run_id] = Running(run, lease_id, self._db.now())
                begun.append(run)
            if row.kind is Kind.NEXT:
                gone = task is None or reason is SkipReason.DELETED
                for plant in () if gone else item.plants:
                    self._db.pending.add(self._planted(row, plant))
                for skip in item.skips:
                    self._db.record(skip_row(row.tenant_id, row.task_id, skip, self._db.stamp()))
        return BeginResult(tuple(begun), tuple(skipped), tuple(busy))

    def _same_fence(self, item: BeginItem) -> bool:
        row = self._db.pending.get(item.row.run_id)
        return row is not None and row.fence == item.row.fence

    def _is_busy(self, row: Pending) -> bool:
        between_attempts = (other for other in self._db.pending.of_task(row.task_id) if other.fence > 0)
        return bool(self._db.of_task(row.task_id)) or any(other.run_id != row.run_id for other in between_attempts)

    def _planted(self, row: Pending, plant: Plant) -> Pending:
        return replace(
            row,
            run_id=plant.run_id,
            kind=plant.kind,
            due_at=self._db.clamped(plant.due_at),
            slot=plant.slot,
            last_slot=plant.last_slot,
            priority=Priority.LOW if plant.kind is Kind.CATCHUP else row.priority,
            fence=0,
            losses=0,
        )

    def _skipped(self, row: Pending, skip: Skip | None, reason: SkipReason) -> HistoryRow:
        ended = ended_row(row, self._db.stamp(), Outcome.SKIPPED, RunState.SKIPPED, reason=reason)
        if skip is None:
            return replace(ended, until_slot=row.slot, skip_count=1, skip_exact=True)
        return replace(
            ended,
            slot=skip.first_slot or row.slot,
            until_slot=skip.until_slot or row.slot,
            last_slot=skip.previous_slot,
            skip_count=skip.count,
            skip_exact=skip.exact,
        )

    async def complete(self, lease_id: UUID, completions: Sequence[Completion]) -> CompletionResult:
        check_completions(completions)
        reach("complete.before")
        await self._db.round_trip()
        _refuse_bad_rows(completions)
        await self._db.unlocked([c.run_id for c in completions])
        applied: list[tuple[UUID, int]] = []
        stale: list[tuple[UUID, int]] = []
        for completion in completions:
            pair = (completion.run_id, completion.fence)
            row = self._db.running.get(completion.run_id)
            if row is None or row.run.fence != completion.fence or row.lease_id != lease_id:
                if self._db.record(_stale_row(completion, lease_id)):
                    stale.append(pair)
                continue
            self._end(row, completion, lease_id)
            applied.append(pair)
        reach("complete.after")
        return CompletionResult(tuple(applied), tuple(stale))

    def _end(self, row: Running, completion: Completion, lease_id: UUID) -> None:
        del self._db.running[completion.run_id]
        state = RunState.CANCELLED if row.cancelled else completion.state
        if state is None:
            assert completion.retry_at is not None, "a completion without a state says when to retry"
            self._db.pending.add(row.again(self._db.clamped(completion.retry_at), row.run.losses))
        ended = ended_row(row.run, completion.ended_at, completion.outcome, state, lease_id=lease_id)
        self._db.record(_with_answer(ended, completion))

    async def put_back(self, lease_id: UUID, pairs: Sequence[tuple[UUID, int]]) -> list[UUID]:
        reach("put_back.before")
        await self._db.round_trip()
        await self._db.unlocked([run_id for run_id, _ in pairs])
        done: list[UUID] = []
        for run_id, fence in pairs:
            row = self._db.running.get(run_id)
            if row is None or row.run.fence != fence or row.lease_id != lease_id:
                continue
            del self._db.running[run_id]
            done.append(run_id)
            if row.cancelled:
                self._db.record(
                    ended_row(row.run, self._db.stamp(), Outcome.CANCELLED, RunState.CANCELLED, lease_id=lease_id)
                )
            else:
                self._db.pending.add(row.again(row.run.due_at, row.run.losses + 1))
        reach("put_back.after")
        return done

    async def give_back(self, tenant_ids: Sequence[UUID], limit: int = 1000) -> list[GivenBack]:
        reach("give_back.before")
        await self._db.round_trip()
        lost = [
            row
            for run_id, row in sorted(self._db.running.items())
            if row.run.tenant_id in tenant_ids
            and self._db.live(row.lease_id) is None
            and run_id not in self._db.row_locks
        ]
        result = [self._give_back(row) for row in lost[:limit]]
        reach("give_back.after")
        return result

    def _give_back(self, row: Running) -> GivenBack:
        run = row.run
        task = self._db.tasks.get(run.task_id)
        state, reason = None, None
        if row.cancelled:
            state = RunState.CANCELLED
        elif self._times_lost(run.run_id) + 1 >= MAX_LOSSES:
            state, reason = RunState.DEAD, "lost too often"
        elif task is not None and task.call.on_lease_lost is OnLeaseLost.DEAD:
            state, reason = RunState.DEAD, "on_lease_lost"
        del self._db.running[run.run_id]
        if state is None:
            self._db.pending.add(row.again(self._db.clamped(run.due_at), run.losses + 1))
        self._db.record(
            ended_row(run, self._db.stamp(), Outcome.LOST, state, sent=True, reason=reason, lease_id=row.lease_id)
        )
        return GivenBack(run.run_id, run.tenant_id, state)

    def _times_lost(self, run_id: UUID) -> int:
        rows = self._db.history.values()
        return sum(1 for row in rows if row.run_id == run_id and row.outcome is Outcome.LOST)

    async def cancel_of_tasks(self, task_ids: Sequence[UUID]) -> list[UUID]:
        await self._db.round_trip()
        affected = [run_id for run_id, row in self._db.running.items() if row.run.task_id in task_ids]
        await self._db.unlocked(affected)
        marked = [
            run_id
            for run_id in sorted(affected)
            if (row := self._db.running.get(run_id)) is not None and not row.cancelled
        ]
        for run_id in marked:
            self._db.running[run_id].cancelled = True
        for task_id in task_ids:
            for waiting in self._db.pending.of_task(task_id):
                if waiting.fence > 0 and waiting.run_id not in self._db.row_locks:
                    self._db.pending.remove(waiting.run_id)
                    reason = "the next run of its task was due"
                    now = self._db.stamp()
                    self._db.record(ended_row(waiting, now, Outcome.CANCELLED, RunState.CANCELLED, reason=reason))
        return marked

    async def held(self, lease_id: UUID) -> list[Held]:
        await self._db.round_trip()
        now = self._db.now()
        return [
            Held(run_id, row.run.fence, row.run.version, (now - row.begun_at).total_seconds())
            for run_id, row in self._db.running.items()
            if row.lease_id == lease_id
        ]

    async def recheck(self, lease_id: UUID, pairs: Sequence[tuple[UUID, int]]) -> list[Recheck]:
        await self._db.round_trip()
        found = []
        for run_id, fence in pairs:
            row = self._db.running.get(run_id)
            if row is None or row.run.fence != fence or row.lease_id != lease_id:
                continue
            task = self._db.tasks.get(row.run.task_id)
            current = (
                task is not None
                and task.version == row.run.version
                and task.state in (TaskState.ACTIVE, TaskState.FAULTY)
            )
            found.append(Recheck(run_id, current, row.cancelled))
        return found

    async def count_held(self, tenant_ids: Sequence[UUID], lease_id: UUID) -> dict[UUID, int]:
        await self._db.round_trip()
        held = Counter(
            (row.run.tenant_id, row.lease_id)
            for row in self._db.running.values()
            if row.run.tenant_id in tenant_ids and row.lease_id != lease_id and self._db.live(row.lease_id) is not None
        )
        counts: Counter[UUID] = Counter()
        for (tenant_id, holder), count in held.items():
            counts[tenant_id] += max(0, count - self._part_of(tenant_id, holder))
        return dict(+counts)

    def _part_of(self, tenant_id: UUID, lease_id: UUID) -> int:
        tenant = self._db.tenants.get(tenant_id)
        owners = [shard.owner for shard in self._db.serving(tenant).values()] if tenant is not None else []
        return part_of_cap(tenant.max_in_flight, owners.count(lease_id), len(owners)) if tenant and owners else 0


def skip_row(tenant_id: UUID, task_id: UUID, skip: Skip, ended_at: datetime) -> HistoryRow:
    """The history row of slots that get no run."""
    return HistoryRow(
        run_id=skip.run_id,
        fence=0,
        ended_at=ended_at,
        tenant_id=tenant_id,
        task_id=task_id,
        kind=Kind.SLOT,
        slot=skip.first_slot,
        last_slot=skip.previous_slot,
        due_at=None,
        losses=0,
        state=RunState.SKIPPED,
        outcome=Outcome.SKIPPED,
        sent=False,
        stale=False,
        lease_id=None,
        started_at=None,
        http_status=None,
        reason=skip.reason,
        error=None,
        response=None,
        until_slot=skip.until_slot,
        skip_count=skip.count,
        skip_exact=skip.exact,
    )


def _reason_of(task: Task | None) -> SkipReason | None:
    if task is None or task.state is TaskState.DELETED:
        return SkipReason.DELETED
    return SkipReason.PAUSED if task.state is TaskState.PAUSED else None


def _with_answer(row: HistoryRow, completion: Completion) -> HistoryRow:
    return replace(
        row,
        sent=completion.sent,
        started_at=completion.started_at,
        http_status=completion.http_status,
        reason=completion.reason,
        error=completion.error,
        response=completion.response,
    )


def _stale_row(c: Completion, lease_id: UUID) -> HistoryRow:
    row = HistoryRow(
        run_id=c.run_id,
        fence=c.fence,
        ended_at=c.ended_at,
        tenant_id=c.tenant_id,
        task_id=c.task_id,
        kind=c.kind,
        slot=c.slot,
        last_slot=c.last_slot,
        due_at=c.due_at,
        losses=c.losses,
        state=None,
        outcome=c.outcome,
        sent=c.sent,
        stale=True,
        lease_id=lease_id,
        started_at=None,
        http_status=None,
        reason=None,
        error=None,
        response=None,
    )
    return _with_answer(row, c)


def _refuse_bad_rows(completions: Sequence[Completion]) -> None:
    """What PostgreSQL's types cannot hold."""
    for completion in completions:
        for text in (completion.reason, completion.error):
            if text is not None and ("\x00" in text or _unencodable(text)):
                raise RowRefusedError("a text has a character that cannot be stored")
        if completion.http_status is not None and not -(2**15) <= completion.http_status < 2**15:
            raise RowRefusedError("a status is out of range")


def _unencodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
