-- Lock the making of cells, and what holds for all of them: two made at once would take the same shard numbers, and a
-- new generation would pass by the cell made meanwhile, which no snapshot shows in time.
-- The shared cell's row is never removed. Index: placements_pkey.
select cell from placements where cell = 'shared' for no key update
