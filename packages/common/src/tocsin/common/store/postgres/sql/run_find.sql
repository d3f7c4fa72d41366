-- Where a run is, in one statement. $1 tenant, $2 run. Returns (task_id, state). Indexes: the primary keys.
select task_id, state from runs where run_id = $2 and tenant_id = $1 limit 1
