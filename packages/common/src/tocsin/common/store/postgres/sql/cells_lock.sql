-- Lock the making of cells: two made at once would take the same shard numbers, which no snapshot shows in time.
-- The shared cell's row is never removed. Index: placements_pkey.
select cell from placements where cell = 'shared' for no key update
