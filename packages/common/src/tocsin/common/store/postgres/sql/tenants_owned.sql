-- The tenants that lease $1 serves, by its shards. Indexes: shards_owner, tenants_shard, tenants_pkey.
-- Shared shards serve the tenants that name them; a tenant's own shard serves it while the tenant names it, or
-- names the first of its k shards.
select t.id, t.name, t.shard, t.weight, t.max_in_flight, t.max_in_flight_per_endpoint, t.move_to,
       s.shard as served_by, s.lane_first, s.lane_last,
       (select count(*) from shards o where o.tenant_id = t.id and s.tenant_id is not null)::int as parts
  from shards s
  join tenants t on t.shard = s.shard and s.tenant_id is null
 where s.owner = $1
union all
select t.id, t.name, t.shard, t.weight, t.max_in_flight, t.max_in_flight_per_endpoint, t.move_to,
       s.shard, s.lane_first, s.lane_last,
       (select count(*) from shards o where o.tenant_id = t.id)::int
  from shards s
  join tenants t on t.id = s.tenant_id
 where s.owner = $1
   and exists (select from shards f where f.shard = t.shard and f.tenant_id = t.id)
