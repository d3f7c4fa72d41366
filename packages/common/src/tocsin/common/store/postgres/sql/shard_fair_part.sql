-- Fair part: shards of a cell, live executors of it that take shards, and how many this one owns. $1 lease, $2 cell.
select (select count(*) from shards s join placements p using (cell) where s.cell = $2 and not p.closing)::int as shards,
       (select count(*) from leases l where l.cell = $2 and l.expired_at is null and not l.draining)::int as executors,
       (select count(*) from shards s where s.owner = $1)::int as mine
