-- Take: up to $3 shards of cell $2 for lease $1 that have no owner, or whose owner's lease is gone or expired (rule 1).
-- Returns (shard, tenant_id, lane_first, lane_last).
-- Index: shards_cell. Locked in shard order, skip locked: two takers get different shards.
with free as (
    select s.shard
      from shards s join placements p on p.cell = s.cell and not p.closing
     where s.cell = $2
       and (s.owner is null or not exists (select from leases l where l.id = s.owner and l.expired_at is null))
       and exists (select from leases me where me.id = $1 and me.expired_at is null and not me.draining)
     order by s.shard limit $3
       for update of s skip locked
)
update shards s set owner = $1 from free f where s.shard = f.shard
returning s.shard, s.tenant_id, s.lane_first, s.lane_last
