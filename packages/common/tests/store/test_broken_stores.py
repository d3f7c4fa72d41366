"""Every guard of the statements is held by a check: without the guard, that check fails."""

from dataclasses import dataclass

import pytest

from store_bench import PostgresBench
from store_suite import CHECKS
from tocsin.common.errors import RowRefusedError, StoreUnavailableError
from tocsin.common.store.postgres import database
from tocsin.common.store.postgres.queries import query


@dataclass(frozen=True, slots=True)
class Twin:
    """A statement without one guard, and the check that must notice."""

    statement: str
    guard: str
    check: str
    instead: str = ""


_BEYOND = "what_is_held_beyond_a_part_of_the_cap_is_counted"
_LIVE = "live_executors_are_counted_by_their_heartbeats"

TWINS = (
    Twin(
        "begin",
        "     where exists (select from leases l where l.id = $1 and l.expired_at is null)\n       and",
        "nothing_is_begun_once_the_lease_has_ended",
        "     where $1::uuid is not null and",
    ),
    Twin("begin", "and p.fence = a.fence", "begin_passes_by_what_is_gone_or_of_another_fence"),
    Twin("begin", "skip locked", "begin_passes_by_what_a_write_holds", "nowait"),
    Twin("begin", "and v.kind = 'next'", "only_next_rows_are_planted_for"),
    Twin("begin", "coalesce(p.last_slot, v.slot)", "planned_begins_make_a_chain", "v.last_slot"),
    Twin("begin", "fence + 1", "begin_grows_the_fence_by_one", "greatest(fence, 1)"),
    Twin(
        "begin",
        "greatest(to_timestamp(coalesce(p.due_at, p.slot)), clock_timestamp())",
        "a_due_instant_already_past_becomes_now",
        "to_timestamp(coalesce(p.due_at, p.slot))",
    ),
    Twin(
        "begin",
        "greatest(to_timestamp(coalesce(p.due_at, p.slot)), clock_timestamp())",
        "a_parked_successor_stays_parked",
        "least(to_timestamp(p.due_at), clock_timestamp() + interval '1 year')",
    ),
    Twin(
        "begin",
        "when t.state = 'paused' then 'paused'",
        "a_waiting_run_of_a_task_that_does_not_run_is_skipped",
    ),
    Twin("begin", "left join tasks t", "a_run_whose_task_is_missing_is_skipped", "join tasks t"),
    Twin(
        "begin",
        "exists (select from running r where r.task_id = p.task_id)",
        "an_exclusive_run_waits_for_the_others_of_its_task",
        "false",
    ),
    Twin(
        "begin",
        "or exists (select from pending q where q.task_id = p.task_id and q.fence > 0 and q.run_id <> p.run_id)",
        "an_exclusive_run_waits_for_the_others_of_its_task",
    ),
    Twin(
        "begin",
        "and not exists (select from busy b where b.run_id = a.run_id)",
        "an_exclusive_run_waits_for_the_others_of_its_task",
    ),
    Twin(
        "begin",
        "case when skip then skip_previous else last_slot end",
        "a_verdict_skips_and_plants",
        "clock_timestamp()",
    ),
    Twin("next_delete", " and kind = 'next'", "a_retry_is_not_deleted_as_the_next_row_it_was"),
    Twin("complete", "and a.fence = l.fence", "a_stale_completion_changes_nothing"),
    Twin("complete", "and d.fence = a.fence", "two_fences_of_a_run_in_one_batch"),
    Twin("complete", "on conflict do nothing", "a_completion_sent_again_changes_nothing"),
    Twin(
        "complete",
        "case when g.cancelled then 'cancelled' else a.state end",
        "a_cancel_mark_wins",
        "a.state",
    ),
    Twin(
        "complete",
        "greatest(retry_at, clock_timestamp())",
        "a_retry_already_due_is_due_now",
        "retry_at",
    ),
    Twin("put_back", "and a.fence = l.fence", "a_put_back_is_fenced_and_of_ones_own"),
    Twin("put_back", "lease_id = $1", "a_put_back_is_fenced_and_of_ones_own", "$1::uuid is not null"),
    Twin("complete", "lease_id = $20", "a_completion_is_of_what_its_lease_holds", "$20::uuid is not null"),
    Twin("put_back", "losses + 1", "a_put_back_was_never_an_attempt", "losses"),
    Twin("put_back", "where not cancelled", "a_put_back_honours_the_cancel_mark"),
    Twin("give_back", "where k.dead", "only_runs_without_a_live_lease_are_given_back"),
    Twin(
        "give_back",
        "l.expired_at is not null from leases",
        "only_runs_without_a_live_lease_are_given_back",
        "false from leases",
    ),
    Twin(
        "give_back",
        "r.lease_id < k.next",
        "only_runs_without_a_live_lease_are_given_back",
        "r.lease_id < k.id",
    ),
    Twin(
        "give_back",
        "where r.tenant_id = any ($1)",
        "only_runs_without_a_live_lease_are_given_back",
        "where $1::uuid[] is not null",
    ),
    Twin("give_back", "lane, losses + 1", "the_fifth_loss_ends_a_run", "lane, losses"),
    Twin("give_back", "c.lost >= $3", "the_fifth_loss_ends_a_run", "$3::int < 0"),
    Twin("give_back", "when c.cancelled then 'cancelled'", "giving_back_honours_the_cancel_mark", "when false then ''"),
    Twin(
        "give_back",
        "or c.on_lease_lost = 'dead' then 'dead'",
        "a_task_may_want_its_lost_runs_dead",
        "then 'dead'",
    ),
    Twin("give_back", "skip locked", "giving_back_passes_by_what_a_write_holds", "nowait"),
    Twin(
        "heads",
        "now() - $8::float8 * interval '1 second'",
        "heads_come_in_queue_order",
        "now() - $8::float8 * interval '1 hour'",
    ),
    Twin("heads", "and p.priority = q.priority", "heads_keep_to_their_queue"),
    Twin("heads", "and p.lane < q.lane_last", "heads_keep_to_their_queue", "and q.lane_last > 0"),
    Twin("recheck", "t.version = r.version and", "a_recheck_sees_edits_pauses_and_marks"),
    Twin("recheck", "lease_id = $3", "a_recheck_sees_edits_pauses_and_marks", "$3::uuid is not null"),
    Twin("cancel_of_tasks", "and fence > 0", "overlap_cancels_what_runs_and_what_waits_for_a_retry"),
    Twin("lease_beat", "and expired_at is null", "an_ended_lease_cannot_beat"),
    Twin(
        "lease_beat",
        "case when clock_timestamp() - heartbeat_at > ttl / 4 then clock_timestamp() else steady_since end",
        "a_late_beat_starts_the_steady_time_anew",
        "steady_since",
    ),
    Twin("lease_judge", "and clock_timestamp() - me.steady_since >= l.ttl", "only_a_steady_lease_may_judge"),
    Twin("lease_judge", "and clock_timestamp() - heartbeat_at <= ttl / 4", "only_a_steady_lease_may_judge"),
    Twin("lease_judge", "id = $1 and expired_at is null", "only_a_steady_lease_may_judge", "id = $1"),
    Twin(
        "lease_judge",
        "me.steady_since >= l.ttl",
        "the_steady_time_is_that_of_the_lease_judged",
        "me.steady_since >= interval '10 s'",
    ),
    Twin(
        "lease_judge",
        "and (not many.suspicious or clock_timestamp() - l.heartbeat_at > 2 * l.ttl)",
        "more_than_half_overdue_get_one_more_ttl",
    ),
    Twin("lease_live", "expired_at is null and", _LIVE),
    Twin("lease_live", "and not draining", _LIVE),
    Twin("lease_live", "and generation > 0", _LIVE),
    Twin("lease_live", "and clock_timestamp() - heartbeat_at <= ttl", _LIVE),
    Twin(
        "lease_remove",
        "and not exists (select from running r where r.lease_id = l.id)",
        "a_lease_is_removed_when_nothing_hangs_on_it",
    ),
    Twin(
        "lease_remove",
        "and not exists (select from shards s where s.owner = l.id)",
        "a_lease_is_removed_when_nothing_hangs_on_it",
    ),
    Twin(
        "shard_take",
        "where l.id = s.owner and l.expired_at is null",
        "shards_without_a_live_owner_are_taken",
        "where l.id = s.owner",
    ),
    Twin(
        "shard_take", "and me.expired_at is null and not me.draining", "a_lease_that_drains_or_has_ended_takes_nothing"
    ),
    Twin("shard_take", "and not p.closing", "a_cell_is_closed_through_zero_owners"),
    Twin("shard_give", "where owner = $1 and", "only_the_owner_gives_a_shard", "where $1::uuid is not null and"),
    Twin("tenant_ask_move", "and not p.closing", "nobody_moves_into_a_closing_cell"),
    Twin("tenant_ask_move", "and exists (select from open)", "nobody_moves_into_a_closing_cell"),
    Twin("tenant_move", "else v.mine end", "the_owner_moves_a_tenant_into_a_cell_of_its_own", "else true end"),
    Twin("tenant_move", "then not v.owned", "a_cell_is_closed_through_zero_owners", "then true"),
    Twin("count_held", " - sum(part)", _BEYOND),
    Twin("count_held", "- sum(part)", _BEYOND, "- 2 * sum(part)"),
    Twin("count_held", "max_in_flight * count(*) / shards", _BEYOND, "max_in_flight / shards * count(*)"),
    Twin("count_held", "/ shards\n", _BEYOND, "::numeric / shards\n"),
    Twin("count_held", " where count > 0", _BEYOND),
    Twin("count_held", "t.shard and s.tenant_id is null", _BEYOND, "t.shard"),
    Twin("count_held", "t.shard and f.tenant_id = t.id", _BEYOND, "t.shard"),
    Twin("count_held", "and l.id <> $2", _BEYOND, "and $2::uuid is not null"),
    Twin("count_held", "l.expired_at is null and", _BEYOND),
    Twin("cell_remove", "and p.closing", "a_cell_is_closed_through_zero_owners"),
    Twin("cell_open", "(i - 1) * 1024 / $2", "the_owner_moves_a_tenant_into_a_cell_of_its_own", "0"),
    Twin("tenant_limits", " where id = $1", "owners_read_new_limits", " where $1::uuid is not null"),
    Twin("cell_close", "o.closing as again", "what_changes_nothing_is_not_recorded", "false as again"),
    Twin("cancel_pending", "and due_at < 'infinity'", "a_parked_row_is_no_run_to_cancel"),
    Twin("withdraw_waiting", "and kind <> 'next'", "withdrawing_leaves_the_next_row"),
    Twin("plant", "greatest(due_at, clock_timestamp())", "a_run_now_is_due_at_once", "due_at - interval '1 s'"),
    Twin("mark_faulty", "and t.state = 'active'", "an_edit_heals_a_faulty_task"),
    Twin("mark_faulty", "and a.plan_version = t.plan_version", "an_edit_heals_a_faulty_task"),
    Twin(
        "begin",
        "case p.kind when 'catchup' then 3 else v.priority end",
        "catch_up_runs_yield_to_live_ones",
        "v.priority",
    ),
    Twin(
        "begin",
        "and v.version is not null and v.skip_reason is distinct from 'deleted'",
        "a_run_whose_task_is_missing_is_skipped",
    ),
    Twin("begin", "and q.run_id <> p.run_id", "an_exclusive_run_waits_for_the_others_of_its_task"),
    Twin("give_back", "c.lost >= $3", "put_backs_do_not_count_as_lost", "c.losses + 1 >= $3"),
    Twin(
        "pending_by_id",
        "and due_at <= now() + $2::float8 * interval '1 second'",
        "hinted_rows_are_due_within_the_lead",
        "and $2::float8 > 0",
    ),
    Twin("task_lock", "for update", "writes_on_a_task_wait_for_each_other"),
    Twin("task_lock", "where tenant_id = $1 and", "nobody_cancels_what_is_not_his", "where $1::uuid is not null and"),
)
"""Of the guards, those whose loss a person would not see at once."""

_CAUGHT = (AssertionError, ValueError, RowRefusedError, StoreUnavailableError, pytest.fail.Exception)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.statement}-{twin.check}")
async def test_a_statement_without_its_guard_is_caught(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch, twin: Twin
) -> None:
    text = query(twin.statement)
    assert twin.guard in text
    broken = text.replace(twin.guard, twin.instead)
    await postgres_bench.admin.prepare(broken)
    monkeypatch.setattr(database, "query", lambda name: broken if name == twin.statement else query(name))
    with pytest.raises(_CAUGHT):
        await CHECKS[twin.check](postgres_bench)
