-- Write a locked task. $1 id, $2 name, $3 state, $4 version, $5 plan_version, $6 plan, $7 call, $8 body, $9 fault,
-- $10 updated_at: the instant up to which its slots are accounted for.
-- Index: tasks_pkey.
update tasks
   set name = $2, state = $3, version = $4, plan_version = $5, plan = $6, call = $7, body = $8, fault = $9,
       updated_at = $10
 where id = $1
returning id, tenant_id, name, state, version, plan_version, plan, call, body, fault, created_at, updated_at
