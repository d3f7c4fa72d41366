-- Note how far next rows are planned by a release of zone data. $1 release, $2 through; $3 and $4: the same as they were
-- seen, so that a Supervisor that has been followed by another overwrites nothing. Returns (release).
update zone_data set release = $1, through = $2 where release = $3 and through is not distinct from $4 returning release
