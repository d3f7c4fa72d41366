-- A page of the active tasks on a cron schedule in a zone other than UTC, by id, each with its next row: those that a
-- change of zone data can touch. $1 after, $2 limit. Indexes: tasks_zoned (its condition, word for word), pending_task.
select t.id, t.tenant_id, t.name, t.state, t.version, t.plan_version, t.plan, t.call, t.body, t.fault, t.created_at,
       t.updated_at, n.slot as next_slot, n.due_at as next_due_at, n.last_slot as next_last_slot
  from tasks t
  left join lateral (
           select slot, due_at, last_slot from pending p where p.task_id = t.id and p.kind = 'next' order by run_id limit 1
       ) n on true
 where t.state = 'active' and t.plan -> 'schedule' ->> 'zone' <> 'UTC' and t.id > $1
 order by t.id
 limit $2
