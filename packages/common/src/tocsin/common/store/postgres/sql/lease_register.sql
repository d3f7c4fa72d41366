-- Register a lease: one life of one process. $1 id, $2 cell, $3 generation, $4 node, $5 boot, $6 pid namespace, $7 pid,
-- $8 process start (Unix s), $9 zone data release, $10 ttl s. Returns the database's time.
insert into leases (id, cell, generation, node, boot, pid_namespace, pid, process_started, zone_data, ttl)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::float8 * interval '1 second')
returning clock_timestamp() as now
