-- Definitions: tasks by id. $1 task ids. Index: tasks_pkey.
select id, tenant_id, name, state, version, plan_version, plan, call, body, fault, created_at, updated_at
  from tasks where id = any ($1)
