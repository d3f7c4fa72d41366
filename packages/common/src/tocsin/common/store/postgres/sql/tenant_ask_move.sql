-- Ask for a move. $1 tenant, $2 shard. A tenant that is there already is not moved.
update tenants set move_to = nullif($2, shard) where id = $1
