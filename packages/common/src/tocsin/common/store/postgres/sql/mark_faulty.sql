-- Mark faulty: tasks whose plan raised; others go on. $1 task ids, $2 the plan versions that raised, $3 reasons.
-- Index: tasks_pkey; locked in id order. A task repaired meanwhile has another plan version, and is left alone.
-- The version stays: nothing about the call changed, and what is in flight goes on.
with locked as (
    select t.id, a.reason
      from tasks t join unnest($1::uuid[], $2::int[], $3::text[]) as a (task_id, plan_version, reason)
        on a.task_id = t.id and a.plan_version = t.plan_version
     where t.id = any ($1) and t.state = 'active'
     order by t.id for update of t
)
update tasks t set state = 'faulty', fault = l.reason, updated_at = clock_timestamp() from locked l where t.id = l.id
returning t.id
