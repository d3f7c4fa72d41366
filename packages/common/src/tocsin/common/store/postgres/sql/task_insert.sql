-- Insert a task. $1 id, $2 tenant, $3 name, $4 plan, $5 call, $6 body, $7 state.
insert into tasks (id, tenant_id, name, plan, call, body, state) values ($1, $2, $3, $4, $5, $6, $7)
returning id, tenant_id, name, state, version, plan_version, plan, call, body, fault, created_at, updated_at
