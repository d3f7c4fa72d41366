-- Cancel what runs of these tasks, or waits between two attempts (overlap cancel_previous). $1 task ids.
-- Returns the runs that were marked: their completions write the state. Indexes: running_task, pending_task.
-- Rows of running are locked in run_id order.
with locked as materialized (
    select run_id from running where task_id = any ($1) and not cancelled order by run_id for update
),
marked as (
    update running r set cancelled = true from locked l where r.run_id = l.run_id returning r.run_id
),
gone as (
    delete from pending where task_id = any ($1) and fence > 0 returning *
),
written as (
    insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, last_slot, fence, losses, sent, kind, state,
                         outcome, reason)
    select run_id, tenant_id, task_id, clock_timestamp(), due_at, slot, last_slot, fence, losses, false, kind,
           'cancelled', 'cancelled', 'the next run of its task was due'
      from gone
)
select run_id from marked
