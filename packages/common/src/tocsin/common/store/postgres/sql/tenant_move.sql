-- Move: carries out what `move_to` asks for; that row is the whole move. $1 tenant ids, $2 the owner's lease, or null
-- for the Supervisor, who may move a tenant only while its shards have no live owner. Returns (id, shard).
-- Index: tenants_pkey. Moving to or from several own shards asks that none of them is owned.
with serving as (
    select t.id, t.shard, bool_or(l.id is not null) as owned, bool_and(l.id is not null and s.owner = $2) as mine, count(*) as n
      from tenants t
      join shards s on s.shard = t.shard or (s.tenant_id = t.id and exists (
               select from shards f where f.shard = t.shard and f.tenant_id = t.id))
      left join leases l on l.id = s.owner and l.expired_at is null
     where t.id = any ($1) and t.move_to is not null
     group by t.id, t.shard
)
update tenants t set shard = t.move_to, move_to = null
  from serving v
 where v.id = t.id and t.shard = v.shard and t.move_to is not null  -- as it was when its owners were looked at
   and case when $2::uuid is null then not v.owned else v.mine end
returning t.id, t.shard
