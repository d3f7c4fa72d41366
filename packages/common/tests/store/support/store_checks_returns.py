"""What becomes of a run after its begin: completions, put back, giving back."""

import pytest

from store_bench import Bench
from store_builders import (
    CALL_DEAD_WHEN_LOST,
    a_lease,
    a_run,
    a_task,
    a_tenant,
    begin_one,
    cancel_mark,
    ended,
    fail_once,
    pairs,
)
from tocsin.common.errors import RowRefusedError
from tocsin.common.models import Kind
from tocsin.common.states import RunState
from tocsin.common.store.rows import GivenBack, Outcome, TaskFault


async def check_a_completion_ends_a_run(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    completion = await ended(bench, run, RunState.DEAD, outcome=Outcome.HTTP_ERROR, reason="gone", error="410")
    result = await bench.store.runs.complete(lease, [completion])
    assert (result.applied, result.stale) == (((run.run_id, 1),), ())
    assert await bench.running(run.task_id) == []
    (row,) = await bench.history(run.task_id)
    assert (row.run_id, row.fence, row.ended_at) == (run.run_id, 1, completion.ended_at)
    assert (row.state, row.outcome, row.sent, row.stale) == (RunState.DEAD, Outcome.HTTP_ERROR, True, False)
    assert (row.reason, row.error, row.http_status, row.lease_id) == ("gone", "410", 200, lease)
    assert (row.slot, row.last_slot, row.kind, row.due_at) == (run.slot, run.last_slot, Kind.SLOT, run.due_at)
    assert row.started_at == completion.started_at


async def check_a_stale_completion_changes_nothing(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    await fail_once(bench, lease, run)
    again = await begin_one(bench, lease, (await bench.pending(run.task_id))[0])
    late = await ended(bench, run)
    result = await bench.store.runs.complete(lease, [late])
    assert (result.applied, result.stale) == ((), ((run.run_id, 1),))
    (running,) = await bench.running(run.task_id)
    assert running.fence == again.fence == 2
    (stale,) = [row for row in await bench.history(run.task_id) if row.stale]
    assert (stale.fence, stale.state, stale.outcome) == (1, None, Outcome.SUCCESS)


async def check_a_completion_sent_again_changes_nothing(bench: Bench) -> None:
    lease = await a_lease(bench)
    for state in (RunState.SUCCEEDED, None):
        run = await a_run(bench, lease)
        completion = await ended(bench, run, state, outcome=Outcome.TIMEOUT)
        await bench.store.runs.complete(lease, [completion])
        before = await bench.pending(run.task_id), await bench.history(run.task_id)
        result = await bench.store.runs.complete(lease, [completion])
        assert result.applied == result.stale == ()
        assert (await bench.pending(run.task_id), await bench.history(run.task_id)) == before


async def check_a_retry_returns_with_its_fence(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    completion = await ended(bench, run, None, outcome=Outcome.TIMEOUT, retry_in=90)
    await bench.store.runs.complete(lease, [completion])
    (row,) = [row for row in await bench.pending(run.task_id) if row.run_id == run.run_id]
    assert (row.fence, row.kind, row.losses, row.due_at) == (1, Kind.SLOT, 0, completion.retry_at)
    (attempt,) = await bench.history(run.task_id)
    assert (attempt.state, attempt.outcome) == (None, Outcome.TIMEOUT)
    assert len(await bench.next_rows(run.task_id)) == 1


async def check_a_retry_already_due_is_due_now(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    before = await bench.now()
    row = await fail_once(bench, lease, run, retry_in=-3600)
    assert before <= row.due_at <= await bench.now()


async def check_a_cancel_mark_wins(bench: Bench) -> None:
    lease = await a_lease(bench)
    for state in (None, RunState.SUCCEEDED, RunState.DEAD):
        run = await a_run(bench, lease)
        await cancel_mark(bench, run)
        result = await bench.store.runs.complete(lease, [await ended(bench, run, state)])
        assert result.applied == ((run.run_id, 1),)
        (row,) = await bench.history(run.task_id)
        assert row.state is RunState.CANCELLED
        assert [row.kind for row in await bench.pending(run.task_id)] == [Kind.NEXT]


async def check_a_bad_row_spoils_its_batch_and_nothing_else(bench: Bench) -> None:
    lease = await a_lease(bench)
    good, bad = await a_run(bench, lease), await a_run(bench, lease)
    fine = await ended(bench, good)
    for fault in ({"error": "nul \x00"}, {"error": "lone \ud800"}, {"http_status": 70_000}):
        with pytest.raises(RowRefusedError):
            await bench.store.runs.complete(lease, [fine, await ended(bench, bad, **fault)])
        for run in (good, bad):
            assert len(await bench.running(run.task_id)) == 1
            assert await bench.history(run.task_id) == []
    assert (await bench.store.runs.complete(lease, [fine])).applied == ((good.run_id, 1),)
    minimal = await ended(bench, bad, RunState.DEAD, outcome=Outcome.PROTOCOL_ERROR)
    assert (await bench.store.runs.complete(lease, [minimal])).applied == ((bad.run_id, 1),)


async def check_two_fences_of_a_run_in_one_batch(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    row = await fail_once(bench, lease, run)
    again = await begin_one(bench, lease, row)
    result = await bench.store.runs.complete(lease, [await ended(bench, run), await ended(bench, again)])
    assert (result.applied, result.stale) == (((run.run_id, 2),), ((run.run_id, 1),))
    with pytest.raises(ValueError):
        await bench.store.runs.complete(lease, [await ended(bench, again), await ended(bench, again)])


async def check_a_put_back_was_never_an_attempt(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    assert await bench.store.runs.put_back(lease, pairs([run])) == [run.run_id]
    (row,) = [row for row in await bench.pending(run.task_id) if row.run_id == run.run_id]
    assert (row.fence, row.losses, row.kind, row.due_at) == (1, 1, Kind.SLOT, run.due_at)
    assert (row.slot, row.last_slot) == (run.slot, run.last_slot)
    assert await bench.history(run.task_id) == []
    assert len(await bench.next_rows(run.task_id)) == 1
    assert (await begin_one(bench, lease, row)).attempt == 1


async def check_a_completion_is_of_what_its_lease_holds(bench: Bench) -> None:
    lease, stranger = await a_lease(bench), await a_lease(bench)
    run = await a_run(bench, lease)
    result = await bench.store.runs.complete(stranger, [await ended(bench, run)])
    assert (result.applied, result.stale) == ((), ((run.run_id, 1),))
    assert len(await bench.running(run.task_id)) == 1


async def check_a_put_back_is_fenced_and_of_ones_own(bench: Bench) -> None:
    lease, stranger = await a_lease(bench), await a_lease(bench)
    run = await a_run(bench, lease)
    assert await bench.store.runs.put_back(stranger, pairs([run])) == []
    assert await bench.store.runs.put_back(lease, [(run.run_id, 0), (run.run_id, 2)]) == []
    assert await bench.store.runs.put_back(lease, [(bench.ids.new(), 1)]) == []
    assert len(await bench.running(run.task_id)) == 1


async def check_a_put_back_honours_the_cancel_mark(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    await cancel_mark(bench, run)
    await bench.store.runs.put_back(lease, pairs([run]))
    (row,) = await bench.history(run.task_id)
    assert (row.state, row.outcome, row.sent) == (RunState.CANCELLED, Outcome.CANCELLED, False)
    assert [row.kind for row in await bench.pending(run.task_id)] == [Kind.NEXT]


async def check_only_runs_without_a_live_lease_are_given_back(bench: Bench) -> None:
    tenant, other_tenant = await a_tenant(bench), await a_tenant(bench)
    live, dead, gone = [await a_lease(bench) for _ in range(3)]
    kept = await a_run(bench, live, tenant_id=tenant)
    lost = [await a_run(bench, lease, tenant_id=tenant) for lease in (dead, gone)]
    foreign = await a_run(bench, dead, tenant_id=other_tenant)
    assert await bench.store.runs.give_back([tenant, other_tenant]) == []
    await bench.store.leases.expire([dead])
    await bench.forget_lease(gone)
    before = await bench.now()
    given = await bench.store.runs.give_back([tenant])
    assert sorted(given, key=lambda back: back.run_id) == [GivenBack(run.run_id, tenant, None) for run in lost]
    for run, lease in zip(lost, (dead, gone), strict=True):
        (row,) = [row for row in await bench.pending(run.task_id) if row.run_id == run.run_id]
        assert (row.fence, row.losses, row.kind) == (1, 1, Kind.SLOT)
        assert row.due_at == max(run.due_at, row.due_at)
        (history,) = await bench.history(run.task_id)
        assert (history.outcome, history.state, history.sent) == (Outcome.LOST, None, True)
        assert (history.lease_id, history.losses, history.fence) == (lease, 0, 1)
        assert before <= history.ended_at <= await bench.now()
    for run in (kept, foreign):
        assert len(await bench.running(run.task_id)) == 1
    assert await bench.store.runs.give_back([tenant]) == []


async def check_giving_back_takes_a_limit_in_run_order(bench: Bench) -> None:
    tenant = await a_tenant(bench)
    lease = await a_lease(bench)
    runs = [await a_run(bench, lease, tenant_id=tenant) for _ in range(3)]
    await bench.store.leases.expire([lease])
    given = [await bench.store.runs.give_back([tenant], 2) for _ in range(3)]
    ids = sorted(run.run_id for run in runs)
    assert [{back.run_id for back in part} for part in given] == [set(ids[:2]), set(ids[2:]), set()]


async def check_the_fifth_loss_ends_a_run(bench: Bench) -> None:
    run = await a_run(bench, await a_lease(bench))
    for loss in range(1, 6):
        lease = (await bench.running(run.task_id))[0].lease_id
        await bench.store.leases.expire([lease])
        (back,) = await bench.store.runs.give_back([run.tenant_id])
        assert back.state is (RunState.DEAD if loss == 5 else None)
        if loss < 5:
            (row,) = [row for row in await bench.pending(run.task_id) if row.run_id == run.run_id]
            assert (row.fence, row.losses) == (loss, loss)
            await begin_one(bench, await a_lease(bench), row)
    history = await bench.history(run.task_id)
    assert [row.outcome for row in history] == [Outcome.LOST] * 5
    assert [row.state for row in history] == [None] * 4 + [RunState.DEAD]
    assert history[-1].reason == "lost too often"


async def check_put_backs_do_not_count_as_lost(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    for _ in range(5):
        await bench.store.runs.put_back(lease, pairs([run]))
        (row,) = [row for row in await bench.pending(run.task_id) if row.run_id == run.run_id]
        run = await begin_one(bench, lease, row)
    assert (run.losses, run.attempt) == (5, 1)
    await bench.store.leases.expire([lease])
    (back,) = await bench.store.runs.give_back([run.tenant_id])
    assert back.state is None


async def check_a_task_may_want_its_lost_runs_dead(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease, call=CALL_DEAD_WHEN_LOST)
    await bench.store.leases.expire([lease])
    (back,) = await bench.store.runs.give_back([run.tenant_id])
    assert back.state is RunState.DEAD
    (row,) = await bench.history(run.task_id)
    assert (row.state, row.outcome, row.reason) == (RunState.DEAD, Outcome.LOST, "on_lease_lost")
    assert [row.kind for row in await bench.pending(run.task_id)] == [Kind.NEXT]


async def check_giving_back_honours_the_cancel_mark(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    await cancel_mark(bench, run)
    await bench.store.leases.expire([lease])
    (back,) = await bench.store.runs.give_back([run.tenant_id])
    assert back.state is RunState.CANCELLED
    (row,) = await bench.history(run.task_id)
    assert (row.state, row.outcome) == (RunState.CANCELLED, Outcome.LOST)
    assert [row.kind for row in await bench.pending(run.task_id)] == [Kind.NEXT]


async def check_giving_back_passes_by_what_a_write_holds(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    await bench.store.leases.expire([lease])
    async with bench.other.tasks.write() as tx:
        await tx.lock(run.tenant_id, run.task_id)
        assert await tx.cancel_running(run.run_id)
        assert await bench.store.runs.give_back([run.tenant_id]) == []
    (back,) = await bench.store.runs.give_back([run.tenant_id])
    assert back.state is RunState.CANCELLED


async def check_a_result_after_giving_back_is_stale(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    await bench.store.leases.expire([lease])
    await bench.store.runs.give_back([run.tenant_id])
    before = await bench.pending(run.task_id)
    result = await bench.store.runs.complete(lease, [await ended(bench, run)])
    assert (result.applied, result.stale) == ((), ((run.run_id, 1),))
    assert await bench.pending(run.task_id) == before
    assert await bench.store.runs.put_back(lease, pairs([run])) == []


async def check_what_a_lease_holds_can_be_read(bench: Bench) -> None:
    lease, other = await a_lease(bench), await a_lease(bench)
    tenant = await a_tenant(bench)
    mine = await a_run(bench, lease, tenant_id=tenant)
    theirs = [await a_run(bench, other, tenant_id=tenant) for _ in range(2)]
    (held,) = await bench.store.runs.held(lease)
    assert (held.run_id, held.fence, held.version) == (mine.run_id, 1, 1)
    assert 0 <= held.age < 60
    count = bench.store.runs.count_held
    assert await count([tenant], lease) == {tenant: 2}
    assert await count([tenant], other) == {tenant: 1}
    await bench.store.leases.expire([other])
    assert await count([tenant], lease) == {}
    assert len(await bench.store.runs.held(other)) == len(theirs)


async def check_a_recheck_sees_edits_pauses_and_marks(bench: Bench) -> None:
    lease, stranger = await a_lease(bench), await a_lease(bench)
    recheck = bench.store.runs.recheck
    run = await a_run(bench, lease)
    (found,) = await recheck(lease, pairs([run]))
    assert (found.run_id, found.current, found.cancelled) == (run.run_id, True, False)
    assert await recheck(stranger, pairs([run])) == []
    assert await recheck(lease, [(run.run_id, 2)]) == []
    await cancel_mark(bench, run)
    assert (await recheck(lease, pairs([run])))[0].cancelled
    await bench.tasks.pause(run.tenant_id, run.task_id)
    assert not (await recheck(lease, pairs([run])))[0].current
    await bench.tasks.resume(run.tenant_id, run.task_id)
    assert not (await recheck(lease, pairs([run])))[0].current


async def check_faults_do_not_stop_a_recheck(bench: Bench) -> None:
    lease = await a_lease(bench)
    task = await a_task(bench)
    run = await begin_one(bench, lease, await bench.next_row(task.id))
    await bench.store.tasks.mark_faulty([TaskFault(task.id, 1, "cannot be planned")])
    assert (await bench.store.runs.recheck(lease, pairs([run])))[0].current


async def check_a_run_is_shown_with_its_attempts(bench: Bench) -> None:
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    tasks = bench.store.tasks
    view = await tasks.run(run.tenant_id, run.run_id)
    assert view is not None
    assert (view.state, view.attempts, view.cancelled) == (RunState.RUNNING, (), False)
    row = await fail_once(bench, lease, run)
    view = await tasks.run(run.tenant_id, run.run_id)
    assert view is not None
    assert (view.state, len(view.attempts), view.due_at) == (RunState.PENDING, 1, row.due_at)
    again = await begin_one(bench, lease, row)
    await bench.store.runs.complete(lease, [await ended(bench, again)])
    await bench.store.runs.complete(lease, [await ended(bench, run, started_at=None)])
    view = await tasks.run(run.tenant_id, run.run_id)
    assert view is not None
    assert (view.state, view.slot) == (RunState.SUCCEEDED, run.slot)
    assert [(a.fence, a.stale) for a in view.attempts] == [(1, False), (1, True), (2, False)]
    assert await tasks.run(bench.ids.new(), run.run_id) is None
    first, second = await tasks.runs(run.tenant_id, run.task_id, None, 10)
    assert (first.state, second.state, second.attempts) == (RunState.PENDING, RunState.SUCCEEDED, 2)
    assert second.run_id == run.run_id
    assert second.outcome is Outcome.SUCCESS
    assert await tasks.runs(run.tenant_id, run.task_id, first.run_id, 10) == [second]
    assert await tasks.runs(run.tenant_id, run.task_id, None, 1) == [first]
    assert await tasks.runs(bench.ids.new(), run.task_id, None, 10) == []
