-- Cancel a pending run of a locked task. $1 run. Returns its row, for replanting where it was a next row. Index: pending_pkey.
with gone as (
    delete from pending where run_id = $1 and due_at < 'infinity' returning *
),
written as (
    insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, last_slot, fence, losses, sent, kind, state,
                         outcome, reason)
    select run_id, tenant_id, task_id, clock_timestamp(), due_at, slot, last_slot, fence, losses, false,
           case kind when 'next' then 'slot' else kind end, 'cancelled', 'cancelled', 'cancelled before its call'
      from gone
)
select run_id, fence, tenant_id, task_id, priority, due_at, slot, last_slot, lane, kind, plan_version, losses,
       clock_timestamp() as now
  from gone
