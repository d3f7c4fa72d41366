-- Ask for a move. $1 tenant, $2 shard. A tenant that is there already is not moved, and none into a cell that closes.
-- Locks as `cell_close` does, the placement first: whichever comes second sees what the other has done.
with open as materialized (
    select p.cell from shards s join placements p on p.cell = s.cell where s.shard = $2 and not p.closing for share of p
)
update tenants set move_to = nullif($2, shard) where id = $1 and exists (select from open)
