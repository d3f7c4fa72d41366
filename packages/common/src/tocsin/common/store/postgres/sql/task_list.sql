-- A page of a tenant's tasks, newest first. $1 tenant, $2 before (exclusive; null: from the newest), $3 limit.
-- Indexes: tasks_tenant, pending_task.
select t.id, t.tenant_id, t.name, t.state, t.version, t.plan_version, t.plan, t.call, t.body, t.fault, t.created_at,
       t.updated_at, n.slot as next_slot, n.due_at as next_due_at
  from tasks t
  left join lateral (select slot, due_at from pending p where p.task_id = t.id and p.kind = 'next' limit 1) n on true
 where t.tenant_id = $1 and t.state <> 'deleted' and ($2::uuid is null or t.id < $2)
 order by t.id desc
 limit $3
