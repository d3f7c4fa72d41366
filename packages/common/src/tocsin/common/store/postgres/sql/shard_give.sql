-- Give: lets go of shards of lease $1. $2 shards. Returns (shard). Index: shards_pkey.
update shards set owner = null where owner = $1 and shard = any ($2) returning shard
