"""B3: definitions that nobody can read. B25 and B26: next rows from days and years ago."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest

from node_bench import SECOND, NodeBench, every
from tocsin.common.errors import FaultyDefinitionError
from tocsin.common.models import CronSchedule, Misfire
from tocsin.common.store.postgres.tasks import PostgresTasks
from tocsin.common.store.rows import Task
from tocsin.common.store.tenants import Tenant

NEVER = """{"schedule": {"kind": "cron", "cron": "0 0 30 2 *", "zone": "UTC"}}"""


async def make_due(bench: NodeBench, task: Task, ago: timedelta) -> None:
    """Sets a task's next row back, as if nobody had looked at it for so long."""
    await bench.execute(
        """update pending set last_slot = null, slot = date_trunc('minute', clock_timestamp()) - $2::interval,
                  due_at = date_trunc('minute', clock_timestamp()) - $2::interval
            where task_id = $1 and kind = 'next'""",
        task.id,
        ago,
    )


async def state_of(bench: NodeBench, task: Task) -> str:
    return str((await bench.fetch("select state from tasks where id = $1", task.id))[0]["state"])


async def bad_tasks(bench: NodeBench, tenant: Tenant) -> list[Task]:
    """Two tasks with due slots, spoiled by hand: a schedule that can never fire, and a call that cannot be read."""
    bad = [await bench.a_task(tenant, path) for path in ("/cron", "/call")]
    await bench.execute("update tasks set plan = $2 where id = $1", bad[0].id, NEVER)
    await bench.execute("""update tasks set call = '{"url": 7}' where id = $1""", bad[1].id)
    for task in bad:
        await make_due(bench, task, timedelta(0))
    return bad


async def test_b3_a_row_that_cannot_be_read_marks_its_own_task_and_stops_no_other(bench: NodeBench) -> None:
    tenant = await bench.a_tenant()
    good = await bench.a_task(tenant, "/good")
    bad = await bad_tasks(bench, tenant)
    bench.start()
    for task in bad:
        await bench.until(partial(is_faulty, bench, task), f"{task.name} is faulty")
        await bench.until(partial(parked, bench, task), f"{task.name} is parked")
        (skip,) = (await bench.rows(task)).history
        assert (skip["state"], skip["reason"], skip["sent"]) == ("skipped", "faulty", False)
        with pytest.raises(FaultyDefinitionError):
            await bench.edit_url(task, "/mended")
    await bench.endpoint.until_seen("/good", 2)
    assert {request.path for request in bench.endpoint.seen} == {"/good"}
    for task in bad:
        plan, call = task.plan.model_dump_json(), task.call.model_dump_json()
        await bench.execute("update tasks set plan = $2, call = $3 where id = $1", task.id, plan, call)
    await bench.edit_url(bad[0], "/mended")
    await bench.tasks.resume(tenant.id, bad[1].id)
    await bench.endpoint.until_seen("/mended")
    await bench.endpoint.until_seen("/call")
    assert [await state_of(bench, task) for task in bad] == ["active", "active"]
    await bench.quiet(good, *bad)
    await bench.check(good, *bad)


async def test_rule_2_where_planning_fails_the_due_slot_runs_and_an_edit_mends_the_task(bench: NodeBench) -> None:
    """A next row of a plan version that its task does not have: put in by hand, it can be planned by nobody."""
    tenant = await bench.a_tenant()
    good, bad = await bench.a_task(tenant, "/good"), await bench.a_task(tenant, "/bad")
    await bench.execute("update tasks set plan_version = 7 where id = $1", bad.id)
    await make_due(bench, bad, timedelta(0))
    bench.start()
    await bench.until(partial(is_faulty, bench, bad), "it is faulty")
    await bench.until(partial(parked, bench, bad), "it is parked")
    await bench.endpoint.until_seen("/bad")
    await bench.endpoint.until_seen("/good", 2)
    await bench.edit_url(bad, "/mended")
    await bench.endpoint.until_seen("/mended")
    assert await state_of(bench, bad) == "active"
    await bench.quiet(good, bad)
    assert len(bench.endpoint.of("/bad")) == 1
    await bench.check(good, bad)


async def test_b3_a_reader_that_one_bad_row_stops_is_caught(bench: NodeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: definitions are read together or not at all."""
    whole = PostgresTasks.definitions

    async def all_or_nothing(
        store: PostgresTasks, task_ids: Sequence[UUID]
    ) -> tuple[list[Task], list[FaultyDefinitionError]]:
        tasks, faulty = await whole(store, task_ids)
        if faulty:
            raise faulty[0]
        return tasks, faulty

    tenant = await bench.a_tenant()
    await bench.a_task(tenant, "/good")
    await bad_tasks(bench, tenant)
    monkeypatch.setattr(PostgresTasks, "definitions", all_or_nothing)
    bench.start()
    with pytest.raises(AssertionError):
        await bench.endpoint.until_seen("/good", within=1.5)


async def is_faulty(bench: NodeBench, task: Task) -> bool:
    return await state_of(bench, task) == "faulty"


async def parked(bench: NodeBench, task: Task) -> bool:
    row = await bench.next_row(task)
    return row["slot"] is None


async def test_b25_three_days_behind_is_bounded_work_and_then_on_time(bench: NodeBench) -> None:
    tenant = await bench.a_tenant()
    minutely = CronSchedule(cron="* * * * *")
    tasks = {
        misfire: await bench.a_task(tenant, f"/{misfire}", schedule=minutely, misfire=misfire, max_catchup=5)
        for misfire in Misfire
    }
    for task in tasks.values():
        await make_due(bench, task, timedelta(days=3))
    first = (await bench.now()).replace(second=0, microsecond=0) - timedelta(days=3)
    bench.start()
    catchups = {Misfire.SKIP: 0, Misfire.FIRE_ONCE: 1, Misfire.FIRE_ALL: 5}
    for misfire, task in tasks.items():
        await bench.until(partial(caught_up, bench, task), f"{task.name} has caught up")
        rows = await bench.rows(task)
        (skip,) = rows.ended("skipped")
        assert skip["skip_exact"]
        assert skip["slot"] == first
        late = [row for row in rows.ended("succeeded") if row["kind"] == "catchup"]
        assert len(late) == catchups[misfire]
        on_time = [row for row in rows.ended("succeeded") if row["kind"] == "slot"]
        next_slot = (await bench.next_row(task))["slot"]
        assert first + timedelta(minutes=skip["skip_count"] + len(late) + len(on_time)) == next_slot
        assert next_slot - await bench.now() <= timedelta(minutes=1)
    await bench.check(*tasks.values())


async def caught_up(bench: NodeBench, task: Task) -> bool:
    rows = await bench.rows(task)
    (row,) = [row for row in rows.pending if row["kind"] == "next"]
    return row["slot"] > await bench.now() and len(rows.pending) == 1 and not rows.running


async def test_b26_ten_years_behind_costs_no_more_and_holds_nobody_up(bench: NodeBench) -> None:
    tenant, other = await bench.a_tenant(), await bench.a_tenant()
    now = await bench.now()
    secondly = await bench.a_task(tenant, "/secondly", schedule=every(1, now - timedelta(days=3700)))
    minutely = await bench.a_task(tenant, "/minutely", schedule=CronSchedule(cron="* * * * *"))
    for task in (secondly, minutely):
        await make_due(bench, task, timedelta(days=3652))
    at_once = await bench.an_idle_task(other, "/other")
    first = await bench.run_now(at_once)
    began = bench.clock.monotonic()
    bench.start()
    await bench.until_ended(first)
    assert bench.clock.monotonic() - began < 3
    await bench.until(lambda: caught_up(bench, minutely), "the minutely one has caught up")
    await bench.endpoint.until_seen("/secondly", 3)
    assert bench.clock.monotonic() - began < 8
    assert len(bench.endpoint.of("/minutely")) <= 2
    await bench.quiet(secondly)
    for task in (secondly, minutely):
        rows = await bench.rows(task)
        (skip,) = [row for row in rows.ended("skipped") if row["reason"] == "misfire"]
        assert skip["until_slot"] > now - timedelta(minutes=2)
        assert len([row for row in rows.history if row["kind"] == "catchup"]) == 1
    late = [row for row in (await bench.rows(secondly)).ended("succeeded") if row["kind"] == "slot"]
    assert all(row["started_at"] - row["slot"] < SECOND for row in late[1:])
    await bench.check(secondly, minutely)
