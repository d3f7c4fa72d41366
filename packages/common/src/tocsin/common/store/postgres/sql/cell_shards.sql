-- A cell's shards with their live owners. $1 cell. Index: shards_cell.
select s.shard, l.id as owner
  from shards s left join leases l on l.id = s.owner and l.expired_at is null
 where s.cell = $1 order by s.shard
