-- Begin: moves pending runs to running (or, by verdict, to history as skipped) and plants what follows.
--
-- $1 lease; items: $2 run_id, $3 fence (null: 0), $4 exclusive, $5 skip, $6 skip_first, $7 skip_until,
-- $8 skip_previous, $9 skip_count, $10 skip_exact, $11 skip_reason; plants: $12 the number of the item they belong to
-- (null: their own number), $13 run_id, $14 kind (null: next), $15 due_at (null: its slot) and $16 slot in Unix
-- seconds, $17 last_slot (null: the item's slot); further skips: $18 the number of the item, $19 run_id, $20 first, $21 until, $22 previous,
-- $23 count, $24 exact, $25 reason. Returns one row of two arrays: the numbers of the items that are not gone, locked or of
-- another fence, and for each the task's version: 0 of a skipped run, -1 of a busy one.
--
-- Indexes: pending_pkey per item; running_task and pending_task for exclusive items; tasks_pkey.
-- The ctids are safe because pending rows are never updated and this statement has locked them.
-- Catch-up runs get the lowest priority: they yield to live ones.
-- A row gone, locked or of another fence is not in the answer: somebody edited or cancelled it.
-- What goes over the wire is a fifth of the work: what is usual is null, and arrays of numbers are the cheapest.
with asked as materialized (
    select run_id, coalesce(given_fence, 0) as fence, exclusive, skip, skip_first, skip_until, skip_previous, skip_count,
           skip_exact, skip_reason, number
      from unnest($2::uuid[], $3::int[], $4::bool[], $5::bool[], $6::timestamptz[], $7::timestamptz[],
                  $8::timestamptz[], $9::int[], $10::bool[], $11::text[]) with ordinality
           as a (run_id, given_fence, exclusive, skip, skip_first, skip_until, skip_previous, skip_count, skip_exact,
                 skip_reason, number)
),
busy as materialized (
    select a.run_id, a.number
      from asked a join pending p on p.run_id = a.run_id and p.fence = a.fence
     where a.exclusive
       and (exists (select from running r where r.task_id = p.task_id)
            or exists (select from pending q where q.task_id = p.task_id and q.fence > 0 and q.run_id <> p.run_id))
),
k as materialized (
    select p.ctid
      from asked a join pending p on p.run_id = a.run_id and p.fence = a.fence
     where exists (select from leases l where l.id = $1 and l.expired_at is null)
       and not exists (select from busy b where b.run_id = a.run_id)
       for update of p skip locked
),
got as (
    delete from pending where ctid = any (array(select ctid from k)) returning *
),
v as materialized (
    select g.*, t.version, a.number,
           a.skip, a.skip_first, a.skip_until, a.skip_previous, a.skip_count, a.skip_exact,
           case when a.skip then a.skip_reason
                when t.state is null or t.state = 'deleted' then 'deleted'
                when t.state = 'paused' then 'paused' end as skip_reason
      from got g
      join asked a on a.run_id = g.run_id and a.fence = g.fence
      left join tasks t on t.id = g.task_id
),
ran as (
    insert into running (run_id, tenant_id, task_id, lease_id, due_at, slot, last_slot, fence, version, plan_version,
                         priority, lane, losses, kind)
    select run_id, tenant_id, task_id, $1, due_at, slot, last_slot, fence + 1, version, plan_version,
           priority, lane, losses, case kind when 'next' then 'slot' else kind end
      from v where skip_reason is null
),
planted as (
    insert into pending (run_id, tenant_id, task_id, due_at, slot, last_slot, plan_version, priority, lane, kind)
    select p.run_id, v.tenant_id, v.task_id, greatest(to_timestamp(coalesce(p.due_at, p.slot)), clock_timestamp()),
           to_timestamp(p.slot),
           coalesce(p.last_slot, v.slot), v.plan_version, case p.kind when 'catchup' then 3 else v.priority end, v.lane,
           coalesce(p.kind, 'next')
      from unnest($12::int[], $13::uuid[], $14::text[], $15::float8[], $16::float8[], $17::timestamptz[])
           with ordinality as p (item, run_id, kind, due_at, slot, last_slot, number)
      join v on v.number = coalesce(p.item, p.number)
             -- a task that is gone plants nothing
             and v.kind = 'next' and v.version is not null and v.skip_reason is distinct from 'deleted'
),
skipped as (
    insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, last_slot, until_slot, skip_count,
                         skip_exact, fence, losses, sent, kind, state, outcome, reason)
    select run_id, tenant_id, task_id, clock_timestamp(), due_at,
           coalesce(skip_first, slot), case when skip then skip_previous else last_slot end,
           coalesce(skip_until, slot), coalesce(skip_count, 1), coalesce(skip_exact, true),
           fence, losses, false, case kind when 'next' then 'slot' else kind end, 'skipped', 'skipped', skip_reason
      from v where skip_reason is not null
    union all
    select s.run_id, v.tenant_id, v.task_id, clock_timestamp(), null, s.first, s.previous, s.until, s.count,
           s.exact, 0, 0, false, 'slot', 'skipped', 'skipped', s.reason
      from unnest($18::int[], $19::uuid[], $20::timestamptz[], $21::timestamptz[], $22::timestamptz[], $23::int[],
                  $24::bool[], $25::text[]) as s (item, run_id, first, until, previous, count, exact, reason)
      join v on v.number = s.item and v.kind = 'next'
)
select array_agg(number) as numbers, array_agg(version) as versions
  from (select number::int, case when skip_reason is null then version else 0 end as version from v
        union all
        select number::int, -1 from busy) done
