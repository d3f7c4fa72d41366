-- A run in all three tables, in one statement. $1 tenant, $2 run. Indexes: pending_pkey, history's keys, and running_pkey,
-- asked once for each lease (`offset 0` keeps it so). One row of `pending` or `running` if it is there, and one row per ended attempt.
select 'pending' as source, run_id, fence, tenant_id, task_id, kind, slot, last_slot, due_at, losses, null as state,
       null as outcome, null::bool as sent, false as stale, null::uuid as lease_id, null::timestamptz as started_at,
       null::timestamptz as ended_at, null::smallint as http_status, null as reason, null as error,
       null::bytea as response, null::timestamptz as until_slot, null::int as skip_count, null::bool as skip_exact,
       false as cancelled
  from pending where run_id = $2 and tenant_id = $1
union all
select 'running', r.run_id, r.fence, r.tenant_id, r.task_id, r.kind, r.slot, r.last_slot, r.due_at, r.losses, null, null,
       null, false, r.lease_id, null, null, null, null, null, null, null, null, null, r.cancelled
  from leases l
 cross join lateral (select * from running where lease_id = l.id and run_id = $2 offset 0) r
 where r.tenant_id = $1
union all
select 'history', run_id, fence, tenant_id, task_id, kind, slot, last_slot, due_at, losses, state, outcome, sent, stale,
       lease_id, started_at, ended_at, http_status, reason, error, response, until_slot, skip_count, skip_exact, false
  from history where run_id = $2 and tenant_id = $1
 order by fence, ended_at
