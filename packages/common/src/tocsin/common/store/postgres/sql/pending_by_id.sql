-- Pending rows by id, for hints: due within the lead, or not at all. $1 run ids, $2 lead s. Index: pending_pkey.
select run_id, fence, tenant_id, task_id, priority, due_at, slot, last_slot, lane, kind, plan_version, losses
  from pending
 where run_id = any ($1) and due_at <= now() + $2::float8 * interval '1 second'
