-- The next rows of some tasks, and the greatest slot ever accounted for of those without any. $1 task ids.
-- Indexes: tasks_pkey, pending_task, running_task, history_task. One statement, so one snapshot.
select t.id, t.tenant_id, t.name, t.state, t.version, t.plan_version, t.plan, t.call, t.body, t.fault, t.created_at,
       t.updated_at, n.next_rows::int as next_rows,
       case when n.next_rows = 0 then greatest(
           (select max(p.slot) from pending p where p.task_id = t.id),
           (select max(r.slot) from running r where r.task_id = t.id),
           (select max(greatest(h.slot, h.until_slot)) from history h where h.task_id = t.id)) end as greatest_slot,
       clock_timestamp() as now
  from tasks t
 cross join lateral (select count(*) as next_rows from pending q where q.task_id = t.id and q.kind = 'next') n
 where t.id = any ($1) and t.state <> 'deleted'
