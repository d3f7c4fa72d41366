-- A page of a task's runs, newest planting first, each with its newest row. $1 tenant, $2 task, $3 before run (exclusive;
-- null: from the newest), $4 limit. Indexes: pending_task, running_task, history_task.
-- In one statement, so that a run on the move between tables is neither missed nor met twice.
with page as (
    select 'pending' as source, 0 as rank, run_id, fence, kind, slot, last_slot, due_at, losses, null as state,
           null as outcome, null::timestamptz as started_at, null::timestamptz as ended_at, null::smallint as http_status,
           null as reason, null::timestamptz as until_slot, null::int as skip_count, null::bool as skip_exact
      from pending where task_id = $2 and tenant_id = $1 and ($3::uuid is null or run_id < $3)
    union all
    select 'running', 0, run_id, fence, kind, slot, last_slot, due_at, losses, null, null, null, null, null, null, null,
           null, null
      from running where task_id = $2 and tenant_id = $1 and ($3::uuid is null or run_id < $3)
    union all
    (select distinct on (run_id)
            'history', 1, run_id, fence, kind, slot, last_slot, due_at, losses, state, outcome, started_at, ended_at,
            http_status, reason, until_slot, skip_count, skip_exact
       from history where task_id = $2 and tenant_id = $1 and not stale and ($3::uuid is null or run_id < $3)
      order by run_id desc, fence desc, ended_at desc
      limit $4)
)
select distinct on (run_id) *
  from page
 order by run_id desc, rank, fence desc
 limit $4
