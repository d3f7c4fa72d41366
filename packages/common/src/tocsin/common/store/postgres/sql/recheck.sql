-- Recheck: may these begun runs still be called as they were begun (rule 3)? $1 run_id, $2 fence, $3 lease.
-- Returns (run_id, current: the task's version and state are those of the begin, cancelled). Index: running_pkey, tasks_pkey.
-- A run that is missing is no longer ours.
select r.run_id, (t.version = r.version and t.state in ('active', 'faulty')) is true as current, r.cancelled
  from unnest($1::uuid[], $2::int[]) as a (run_id, fence)
  join running r on r.run_id = a.run_id and r.fence = a.fence
  left join tasks t on t.id = r.task_id
 where r.lease_id = $3
