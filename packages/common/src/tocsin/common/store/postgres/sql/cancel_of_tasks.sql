-- Cancel what runs of these tasks, or waits between two attempts (overlap cancel_previous). $1 task ids.
-- Returns the runs that were marked: their completions write the state. Indexes: running_task, pending_task.
-- Rows of either table are locked in run_id order, so that two statements never wait for each other in turn.
with locked as materialized (
    select lease_id, run_id from running where task_id = any ($1) and not cancelled order by run_id for update
),
marked as (
    update running set cancelled = true
     where lease_id = any (array(select distinct lease_id from locked))
       and run_id = any (array(select run_id from locked))
    returning run_id
),
due as materialized (
    select run_id from pending where task_id = any ($1) and fence > 0 order by run_id for update
),
gone as (
    delete from pending where run_id = any (array(select run_id from due)) returning *
),
written as (
    insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, last_slot, fence, losses, sent, kind, state,
                         outcome, reason)
    select run_id, tenant_id, task_id, clock_timestamp(), due_at, slot, last_slot, fence, losses, false, kind,
           'cancelled', 'cancelled', 'the next run of its task was due'
      from gone
)
select run_id from marked
