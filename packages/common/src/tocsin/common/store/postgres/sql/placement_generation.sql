-- A new Supervisor's generation, in every placement: all rise together. Returns (generation).
update placements set generation = generation + 1 returning generation
