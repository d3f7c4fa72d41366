-- A new Supervisor's generation, in every placement: above all that were. Returns (generation).
-- A new statement after `cells_lock`, so that it sees the cell made before it.
update placements set generation = (select max(generation) from placements) + 1 returning generation
