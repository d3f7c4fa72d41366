-- Lock a task whatever its state, without its definition: it may be deleted, or unreadable. $1 tenant, $2 task.
-- Index: tasks_pkey. Returns (state, now), the time read after the lock was had.
with locked as materialized (
    select state from tasks where tenant_id = $1 and id = $2 for update
)
select state, clock_timestamp() as now from locked
