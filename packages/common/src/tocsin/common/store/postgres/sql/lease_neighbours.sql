-- Neighbours: live leases of processes that this one can look at. $1 boot, $2 pid namespace.
-- Returns (id, pid, process_started).
select id, pid, process_started from leases where boot = $1 and pid_namespace = $2 and expired_at is null
