"""What a zone data upgrade must keep, on any store."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from next_row_bench import DAY, SECOND, NextRowBench
from tocsin.common.clock import PARKED
from tocsin.common.store.rows import SkipReason, Task
from tocsin.engine.zone_data import ZoneDataConfig, ZoneDataUpgrade

OLD, NEW = "2025b", "2026f"
_CAUGHT = (AssertionError, ValueError)
BLOCKED = """
select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')
"""

Check = Callable[[NextRowBench], Awaitable[None]]


def upgrade(rows: NextRowBench, *, page: int = 500, release: str = NEW) -> ZoneDataUpgrade:
    return ZoneDataUpgrade(rows.store.next_rows, rows.tasks, ZoneDataConfig(release, page))


async def planned_by(rows: NextRowBench, release: str = OLD) -> None:
    """Notes that every next row was planned by a release."""
    state = await rows.store.next_rows.zone_data()
    assert await rows.store.next_rows.note_zone_data(state, release, None)


async def replanted(service: ZoneDataUpgrade) -> int:
    return (await service.run_once()).get("replanted", 0)


async def noted(rows: NextRowBench) -> tuple[str, UUID | None]:
    state = await rows.store.next_rows.zone_data()
    return state.release, state.through


# --- what is replanted, and what is not --------------------------------------------------------------------------


async def check_rows_an_hour_off_are_corrected(rows: NextRowBench) -> None:
    await planned_by(rows)
    tasks = [await rows.a_task(spread_seconds=600) for _ in range(2)]
    right = [await rows.next_row(task) for task in tasks]
    old = [await rows.age(task, hours) for task, hours in zip(tasks, (1, -1), strict=True)]
    await rows.a_waiting_run(tasks[0], UUID(int=1))
    assert await upgrade(rows).run_once() == {"looked_at": 2, "replanted": 2, "failed": 0}
    for task, was, aged in zip(tasks, right, old, strict=True):
        row = await rows.next_row(task)
        assert (row.slot, row.due_at, row.last_slot) == (was.slot, was.due_at, aged.last_slot)
        assert row.run_id not in (was.run_id, aged.run_id), "a run id is never used again"
        now = await rows.the_task(task.id)
        assert row.plan_version == now.plan_version == task.plan_version + 1
        assert (now.version, now.updated_at) == (task.version, task.updated_at), "nothing about the call has changed"
    assert await noted(rows) == (NEW, None)


async def check_other_rows_are_left_alone(rows: NextRowBench) -> None:
    await planned_by(rows)
    lease = await rows.a_lease(NEW)
    right = await rows.a_task()
    of_utc = await rows.a_task(await rows.daily("UTC"))
    interval = await rows.a_task(await rows.hourly())
    once = await rows.a_task(await rows.once())
    paused = await rows.a_task()
    await rows.tasks.pause(paused.tenant_id, paused.id)
    due = await rows.a_task()
    await rows.age(due, slot=await rows.now() - SECOND)
    fired = await rows.a_task()
    await rows.begin(fired, lease)
    waiting = await rows.a_waiting_run(right)
    for task in (of_utc, interval, once):
        await rows.age(task)
    tasks = (right, of_utc, interval, once, paused, due, fired)
    before = {task.id: await rows.pending(task.id) for task in tasks}
    versions = {task.id: (await rows.the_task(task.id)).plan_version for task in tasks}
    assert await upgrade(rows).run_once() == {"looked_at": 3, "replanted": 0, "failed": 0}
    assert {task.id: await rows.pending(task.id) for task in tasks} == before
    assert {task.id: (await rows.the_task(task.id)).plan_version for task in tasks} == versions
    assert waiting in before[right.id]
    assert (await rows.next_row(paused)).slot is None


async def check_a_parked_row_of_an_active_task_stays(rows: NextRowBench) -> None:
    await planned_by(rows)
    task = await rows.a_task()
    row = await rows.next_row(task)
    await rows.take(row)
    parked = replace(row, slot=None, due_at=PARKED)
    await rows.put(parked)
    assert await replanted(upgrade(rows)) == 0
    assert await rows.next_row(task) == parked


async def check_what_has_fired_is_not_fired_again(rows: NextRowBench) -> None:
    """Today's has fired an hour too early, by the old rules; its right instant is still to come."""
    await planned_by(rows)
    lease = await rows.a_lease(NEW)
    task = await rows.a_task(await rows.daily(hours=0.5))
    right = await rows.next_row(task)
    assert right.slot is not None
    await rows.update_at(task.id, right.slot - 3 * DAY)
    await rows.age(task, -1)
    fired = await rows.begin(task, lease)
    await rows.end(fired, lease)
    await rows.age(task, 23, last_slot=fired.slot)
    assert await replanted(upgrade(rows)) == 1
    row = await rows.next_row(task)
    assert (row.slot, row.last_slot) == (right.slot + DAY, right.slot)
    (skip,) = await skips(rows, task)
    assert (skip.slot, skip.until_slot, skip.reason) == (right.slot, right.slot, SkipReason.ZONE_DATA)


async def skips(rows: NextRowBench, task: Task) -> list[Any]:
    runs = await rows.store.tasks.runs(task.tenant_id, task.id, None, 10)
    return [run for run in runs if run.skip_count is not None]


async def check_what_the_new_rules_say_has_passed_is_late_not_lost(rows: NextRowBench) -> None:
    await planned_by(rows)
    task = await rows.a_task(await rows.daily(hours=0))
    tomorrow = (await rows.next_row(task)).slot
    assert tomorrow is not None
    await rows.update_at(task.id, tomorrow - 3 * DAY)
    await rows.age(task, -23)  # today's, an hour later than the rules in use have it
    before = await rows.now()
    assert await replanted(upgrade(rows)) == 1
    row = await rows.next_row(task)
    assert row.slot == tomorrow - DAY
    assert before <= row.due_at <= await rows.now(), "due at once, for its owner's misfire policy to judge"


# --- when, and how far -------------------------------------------------------------------------------------------


async def check_it_waits_for_every_live_lease(rows: NextRowBench) -> None:
    await planned_by(rows)
    task = await rows.a_task()
    aged = await rows.age(task)
    await rows.a_lease(NEW)
    older = await rows.a_lease(OLD)
    service = upgrade(rows)
    assert await service.run_once() == {}
    assert await rows.next_row(task) == aged
    await rows.store.leases.leave(older)
    assert await replanted(service) == 1


async def check_what_an_older_executor_planned_meanwhile_is_looked_at_again(rows: NextRowBench) -> None:
    task = await rows.a_task()
    service = upgrade(rows)
    await service.run_once()
    assert await noted(rows) == (NEW, None)
    assert await service.run_once() == {}, "it is done"
    older = await rows.a_lease(OLD)
    assert await service.run_once() == {}
    await rows.age(task)
    await rows.store.leases.leave(older)
    assert await replanted(service) == 1


async def check_a_round_is_one_page_and_another_process_goes_on(rows: NextRowBench) -> None:
    await planned_by(rows)
    tasks = [await rows.a_task() for _ in range(5)]
    for task in tasks:
        await rows.age(task)
    assert await replanted(upgrade(rows, page=2)) == 2
    assert await noted(rows) == (NEW, tasks[1].id)
    second = upgrade(rows, page=2)
    assert await second.run_once() == {"looked_at": 2, "replanted": 2, "failed": 0}
    assert await second.run_once() == {"looked_at": 1, "replanted": 1, "failed": 0}
    assert await second.run_once() == {}
    assert await noted(rows) == (NEW, None)


async def check_another_release_starts_over(rows: NextRowBench) -> None:
    await planned_by(rows)
    tasks = [await rows.a_task() for _ in range(3)]
    await upgrade(rows, page=2).run_once()
    assert await upgrade(rows, release="2026g").run_once() == {"looked_at": 3, "replanted": 0, "failed": 0}
    assert await noted(rows) == ("2026g", None)
    assert tasks


async def check_one_that_cannot_be_read_hinders_no_other(rows: NextRowBench) -> None:
    await planned_by(rows)
    first, second = await rows.a_task(), await rows.a_task()
    spoiled = await rows.age(first)
    await rows.age(second)
    await rows.spoil(first.id)
    assert await upgrade(rows).run_once() == {"looked_at": 2, "replanted": 1, "failed": 1}
    assert await rows.next_row(first) == spoiled
    assert await noted(rows) == (NEW, None)


async def check_a_stale_supervisor_overwrites_nothing(rows: NextRowBench) -> None:
    seen = await rows.store.next_rows.zone_data()
    assert await rows.store.next_rows.note_zone_data(seen, OLD, None)
    assert not await rows.store.next_rows.note_zone_data(seen, NEW, None)
    assert await noted(rows) == (OLD, None)


CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}
