-- Owned: the shards that lease $1 owns, and whether their cell is closing. Index: shards_owner.
select s.shard, p.closing from shards s join placements p using (cell) where s.owner = $1
