-- Plant: puts rows into pending. $1 run_id, $2 tenant, $3 task, $4 due_at, $5 slot, $6 last_slot, $7 plan_version,
-- $8 priority, $9 lane, $10 kind. A due_at already past becomes now (rule 10).
insert into pending (run_id, tenant_id, task_id, due_at, slot, last_slot, plan_version, priority, lane, kind)
select run_id, tenant_id, task_id, greatest(due_at, clock_timestamp()), slot, last_slot, plan_version, priority, lane, kind
  from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::int[],
              $8::smallint[], $9::smallint[], $10::text[])
       as p (run_id, tenant_id, task_id, due_at, slot, last_slot, plan_version, priority, lane, kind)
