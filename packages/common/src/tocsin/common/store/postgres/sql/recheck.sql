-- Recheck: may these begun runs still be called as they were begun (rule 3)? $1 run_id, $2 fence, $3 lease.
-- Returns (run_id, current: the task's version and state are those of the begin, cancelled). Indexes: running_pkey, tasks_pkey.
-- A run that is missing is no longer ours. Run by run (`offset 0` keeps it so), never along all that the lease holds.
select r.run_id, (t.version = r.version and t.state in ('active', 'faulty')) is true as current, r.cancelled
  from unnest($1::uuid[], $2::int[]) as a (run_id, fence)
  cross join lateral (select * from running where lease_id = $3 and run_id = a.run_id offset 0) r
  left join tasks t on t.id = r.task_id
 where r.fence = a.fence
