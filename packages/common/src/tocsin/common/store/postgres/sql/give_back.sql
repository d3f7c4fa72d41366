-- Give back: runs of my tenants that no live lease holds return to pending, recorded as lost (rules 5 and 7).
--
-- $1 tenant ids, $2 limit, $3 times lost at which a run ends. Returns (run_id, tenant_id, state or null).
--
-- Index: running_pkey, probed once for each dead lease and once for each gap between the leases that are known: a
-- lease whose row is gone lies in a gap. What a live lease holds is never walked, nor are its dead entries, which an old
-- transaction may keep by the million. Then the rows of the dead ones, lease by lease and one by one (`offset 0` keeps it so),
-- whatever the planner believes of a table that is empty between peaks: a plan made then must not turn quadratic.
-- Locked in run_id order, skip locked: a completion under way goes first.
-- A condition, not an event: a begin that commits after its lease's expiry is found by the next pass.
with known as materialized (
    select id, dead, coalesce(lead(id) over (order by id), 'ffffffff-ffff-ffff-ffff-ffffffffffff') as next
      from (select '00000000-0000-0000-0000-000000000000'::uuid as id, false as dead
            union all
            select l.id, l.expired_at is not null from leases l) every
),
dead as materialized (
    select k.id as lease_id from known k where k.dead
    union all
    select g.lease_id
      from known k
     cross join lateral (
        select distinct r.lease_id from running r where r.lease_id > k.id and r.lease_id < k.next
     ) g
),
orphans as materialized (
    select d.lease_id, r.run_id
      from dead d
     cross join lateral (select run_id, tenant_id from running where lease_id = d.lease_id offset 0) r
     where r.tenant_id = any ($1)
),
locked as materialized (
    select r.lease_id, r.run_id
      from (select * from orphans order by run_id) o
     cross join lateral (
        select lease_id, run_id
          from running where lease_id = o.lease_id and run_id = o.run_id offset 0
           for update skip locked
     ) r
     limit $2
),
gone as (
    delete from running
     where lease_id = any (array(select distinct lease_id from locked))
       and run_id = any (array(select run_id from locked))
    returning *
),
counted as materialized (
    -- put-backs raise `losses` too, and were never called: only what history calls lost counts towards the end
    select g.*, t.call ->> 'on_lease_lost' as on_lease_lost,
           case when g.losses + 1 < $3 then 0
                else (select count(*) from history h where h.run_id = g.run_id and h.outcome = 'lost') + 1 end as lost
      from gone g left join tasks t on t.id = g.task_id
),
judged as materialized (
    select c.*,
           case when c.cancelled then 'cancelled' when c.lost >= $3 or c.on_lease_lost = 'dead' then 'dead' end as state,
           case when c.cancelled then null
                when c.lost >= $3 then 'lost too often'
                when c.on_lease_lost = 'dead' then 'on_lease_lost' end as reason
      from counted c
),
again as (
    insert into pending (run_id, tenant_id, task_id, due_at, slot, last_slot, fence, plan_version, priority, lane,
                         losses, kind)
    select run_id, tenant_id, task_id, greatest(due_at, clock_timestamp()), slot, last_slot, fence, plan_version,
           priority, lane, losses + 1, kind
      from judged where state is null
),
written as (
    insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, last_slot, fence, losses, sent, kind,
                         state, outcome, reason, lease_id)
    select run_id, tenant_id, task_id, clock_timestamp(), due_at, slot, last_slot, fence, losses, true, kind,
           state, 'lost', reason, lease_id
      from judged
)
select run_id, tenant_id, state from judged
