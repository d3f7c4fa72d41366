-- Lock a task for a write (rule 2: the task first, then pending, then running). $1 tenant, $2 task. Index: tasks_pkey.
-- Returns the task and the database's time, read after the lock was had.
with locked as materialized (
    select id, tenant_id, name, state, version, plan_version, plan, call, body, fault, created_at, updated_at
      from tasks where tenant_id = $1 and id = $2 and state <> 'deleted'
       for update
)
select *, clock_timestamp() as now from locked
