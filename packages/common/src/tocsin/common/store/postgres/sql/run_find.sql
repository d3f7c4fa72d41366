-- Where a run is, in one statement. $1 tenant, $2 run. Returns (task_id, state). Indexes: the primary keys; of running,
-- asked once for each lease (`offset 0` keeps it so).
select task_id, 'pending' as state from pending where run_id = $2 and tenant_id = $1
union all
select r.task_id, 'running'
  from leases l
 cross join lateral (select task_id, tenant_id from running where lease_id = l.id and run_id = $2 offset 0) r
 where r.tenant_id = $1
union all
select task_id, state from history where run_id = $2 and tenant_id = $1 and state is not null
 limit 1
