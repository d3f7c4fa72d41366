-- Find the next row of a locked task, in a new statement each time (rule 2). $1 task. Index: pending_task.
select run_id, fence, tenant_id, task_id, priority, due_at, slot, last_slot, lane, kind, plan_version, losses,
       clock_timestamp() as now
  from pending where task_id = $1 and kind = 'next'
