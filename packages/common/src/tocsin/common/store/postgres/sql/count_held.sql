-- Count held: runs of these tenants that live leases other than mine hold beyond their parts of the caps, for the room
-- of a new owner (rule 1): what they hold within them is theirs. $1 tenant ids, $2 my lease.
-- Returns (tenant_id, count), and no tenant without any.
-- A part is what an owner takes for its own: the cap by the share that it owns of the shards that serve the tenant
-- (tenants_owned), rounded down.
-- Indexes: running_pkey, probed once for each live lease (`offset 0` keeps it so), and tenants_pkey. Held and parts are
-- brought together by grouping, not by a join: this must not turn quadratic, whatever the planner believes of tables
-- that were empty as it planned.
with holding as (
    select r.tenant_id, l.id as lease_id, count(*) as held
      from leases l
     cross join lateral (
        select tenant_id from running where lease_id = l.id and tenant_id = any ($1) offset 0
     ) r
     where l.expired_at is null and l.id <> $2
     group by r.tenant_id, l.id
),
serving as (
    select t.id as tenant_id, t.max_in_flight, s.owner, 1::bigint as shards
      from tenants t join shards s on s.shard = t.shard and s.tenant_id is null
     where t.id = any ($1)
    union all
    select t.id, t.max_in_flight, s.owner, count(*) over (partition by t.id)
      from tenants t
      join shards f on f.shard = t.shard and f.tenant_id = t.id
      join shards s on s.tenant_id = t.id
     where t.id = any ($1)
),
owners as (
    select tenant_id, lease_id, held, 0 as part from holding
    union all
    select tenant_id, owner, 0, max_in_flight * count(*) / shards
      from serving group by tenant_id, owner, max_in_flight, shards
),
beyond as (
    select tenant_id, sum(held) - sum(part) as count from owners group by tenant_id, lease_id
)
select tenant_id, sum(count)::int as count from beyond where count > 0 group by tenant_id
