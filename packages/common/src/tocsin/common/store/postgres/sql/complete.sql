-- Completion: deletes from running by (run_id, fence) what the lease holds, appends to history, and puts retries back into pending.
--
-- $1 run_id, $2 fence, $3 ended_at, $4 outcome, $5 sent, $6 state or null for a retry, $7 retry_at, $8 started_at,
-- $9 http_status, $10 reason, $11 error, $12 response, and for a result whose run is no longer ours $13 tenant_id,
-- $14 task_id, $15 kind, $16 slot, $17 last_slot, $18 due_at, $19 losses; $20 the lease.
-- Returns (run_id, fence, stale), for what was recorded now.
--
-- Index: running_pkey, read by `= any` (a join on the unnested ids can fall into a bad plan). Rows are locked in
-- run_id order, in their newest version, so that the fences read are final. The delete goes by run_id, not by ctid: a
-- cancel mark may just have moved the row.
-- A cancel mark wins over the result: no retry, state cancelled. Sent again after a lost answer, it changes nothing.
with asked as materialized (
    select * from unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::text[], $5::bool[], $6::text[],
                         $7::timestamptz[], $8::timestamptz[], $9::int[], $10::text[], $11::text[], $12::bytea[],
                         $13::uuid[], $14::uuid[], $15::text[], $16::timestamptz[], $17::timestamptz[],
                         $18::timestamptz[], $19::int[])
        as a (run_id, fence, ended_at, outcome, sent, state, retry_at, started_at, http_status, reason, error,
              response, tenant_id, task_id, kind, slot, last_slot, due_at, losses)
),
locked as materialized (
    select run_id, fence from running where lease_id = $20 and run_id = any ($1) order by run_id for update
),
gone as (
    delete from running
     where lease_id = $20
       and run_id = any (array(select l.run_id from locked l join asked a on a.run_id = l.run_id and a.fence = l.fence))
    returning *
),
done as materialized (
    select g.run_id, g.fence, g.tenant_id, g.task_id, g.kind, g.slot, g.last_slot, g.due_at, g.losses,
           g.priority, g.lane, g.plan_version, a.ended_at, a.outcome, a.sent, a.retry_at, a.started_at,
           a.http_status, a.reason, a.error, a.response,
           case when g.cancelled then 'cancelled' else a.state end as state
      from gone g join asked a on a.run_id = g.run_id and a.fence = g.fence
),
again as (
    insert into pending (run_id, tenant_id, task_id, due_at, slot, last_slot, fence, plan_version, priority, lane,
                         losses, kind)
    select run_id, tenant_id, task_id, greatest(retry_at, clock_timestamp()), slot, last_slot, fence, plan_version,
           priority, lane, losses, kind
      from done where state is null
),
written as (
    insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, last_slot, started_at, fence, losses,
                         http_status, sent, stale, kind, state, outcome, reason, error, response, lease_id)
    select run_id, tenant_id, task_id, ended_at, due_at, slot, last_slot, started_at, fence, losses,
           http_status, sent, false, kind, state, outcome, reason, error, response, $20::uuid
      from done
    union all
    select run_id, tenant_id, task_id, ended_at, due_at, slot, last_slot, started_at, fence, losses,
           http_status, sent, true, kind, null, outcome, reason, error, response, $20::uuid
      from asked a where not exists (select from done d where d.run_id = a.run_id and d.fence = a.fence)
    on conflict do nothing
    returning run_id, fence, stale
)
select run_id, fence, stale from written
