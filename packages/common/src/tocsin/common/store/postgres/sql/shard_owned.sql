-- Owned: the shards that lease $1 owns and that are not closing, as the database has them. Index: shards_owner.
select s.shard, p.closing from shards s join placements p using (cell) where s.owner = $1
