-- Put back: a living executor returns what it began and never called. No attempt, no history row, due_at unchanged.
--
-- $1 lease, $2 run_id, $3 fence. Returns (run_id, cancelled). Index: running_pkey; locked in run_id order.
-- A run that was cancelled meanwhile ends instead.
with locked as materialized (
    select run_id, fence from running where lease_id = $1 and run_id = any ($2) order by run_id for update
),
gone as (
    delete from running
     where lease_id = $1
       and run_id = any (array(select l.run_id
                                 from locked l
                                 join unnest($2::uuid[], $3::int[]) as a (run_id, fence)
                                   on a.run_id = l.run_id and a.fence = l.fence))
    returning *
),
again as (
    insert into pending (run_id, tenant_id, task_id, due_at, slot, last_slot, fence, plan_version, priority, lane,
                         losses, kind)
    select run_id, tenant_id, task_id, due_at, slot, last_slot, fence, plan_version, priority, lane, losses + 1, kind
      from gone where not cancelled
),
ended as (
    insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, last_slot, fence, losses, sent, kind,
                         state, outcome, lease_id)
    select run_id, tenant_id, task_id, clock_timestamp(), due_at, slot, last_slot, fence, losses, false, kind,
           'cancelled', 'cancelled', lease_id
      from gone where cancelled
)
select run_id, cancelled from gone
